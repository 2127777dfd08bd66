"""An experiment that can wait, fail or die, and that keeps a log of the tasks that it computes.

Where the log is, how long to wait and for what is read from the environment, which processes
inherit.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np

from flowbias.experiments import Check, Experiment, Panel, Preset
from flowbias.experiments._base import checkpoint_file
from flowbias.ground.progress import shown
from flowbias.theory import Reference

COUNT = 8
# Tasks before the gate: a run whose gate is shut has these results and no others.
FREE = 4


def tasks(settings):
    for i in range(settings["count"]):
        yield "sums", {"i": i, "size": 300}
    yield "words", {"letter": "a"}


def compute(task):
    if log := os.environ.get("TOY_LOG"):
        with Path(log).open("a") as stream:
            stream.write(f"{task.name}\n")
    time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
    if (gate := os.environ.get("TOY_GATE")) and not is_free(task):
        while not Path(gate).exists():
            time.sleep(0.01)
    if task.part == "words":
        return {"word": ["b", "c"]}
    # The last bits of a large product depend on the number of BLAS threads.
    matrix = task.rng().standard_normal((task.integer("size"), task.integer("size")))
    return {"row": [0, 1], "value": (matrix @ matrix.T @ matrix)[0, :2]}


def is_free(task):
    return any(("i", i) in task.settings for i in range(FREE))


def compute_or_fail(task):
    if ("i", 3) in task.settings:
        raise FloatingPointError("told to fail")
    return compute(task)


def compute_shown(task):
    with shown("epochs", 5) as show:
        for epoch in range(3):
            show(epoch)
            time.sleep(0.2)  # longer than a bar waits between two changes
        return compute_or_fail(task)


def compute_in_two_sittings(task):
    """The first sitting ends half way, with a file that says so."""
    file = checkpoint_file()
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("half")
        raise KeyboardInterrupt
    return {"found": file.read_text()}


def compute_or_die(task):
    if ("i", 3) in task.settings:
        os._exit(1)
    return compute(task)


def blocked_signals(_):
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def check(table):
    values = table.part("sums")["value"]
    finite = bool(np.isfinite(values).all())
    yield Check("finite", "all values are finite", f"{values.size} values", finite)


def draw(axes, table):
    sums = table.part("sums")
    axes.plot(sums["i"], sums["value"], "o")


def toy(**changes):
    fields = {
        "name": "toy",
        "title": "A toy <b>",
        "reference": Reference("flowbias", "tests"),
        "summary": "Sums of products.",
        "paper_says": "Nothing.",
        "settings": {preset: {"count": COUNT} for preset in Preset},
        "tasks": tasks,
        "compute": compute,
        "panels": (Panel("a", "Values", draw),),
        "check": check,
    }
    return Experiment(**{**fields, **changes})

"""How fast `flowbias explore` answers a slider, and what ten tabs at once cost it.

From the input event in Chromium to the frame after the one that shows the first new picture, and
after the last one where a view shows more than one: new data in Sparse regression come without
their curves at first. The server runs in a process of its own. Needs the extra `explore`,
playwright, and a Chromium.

    python benchmarks/explorer.py            latency, Geometry and Sparse regression (d = 200)
    python benchmarks/explorer.py --tabs 10  and ten tabs that move sliders for a minute
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _common import Report, Row, parser, progress

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
# Each with the slider that moves.
VIEWS = {
    "Geometry, scale": ("geometry", "log_scale"),
    "Geometry, direction": ("geometry", "angle"),
    "Sparse regression d = 200, scale": ("sparse-regression&d=200", "log_scale"),
    # New data: the limit at the cursor comes first, the curves when they are solved.
    "Sparse regression d = 200, seed": ("sparse-regression&d=200", "seed"),
}
# The times of all pictures of one move: it is over when none has come for REST.
REST = 500
MOVE = """async ([name, step, rest]) => {
  const slider = document.getElementById(`control-${name}`);
  const to = (Number(slider.value) + step) % (Number(slider.max) + 1);
  const started = performance.now();
  slider.value = to;
  const times = [];
  await new Promise(done => {
    let over = null;
    const note = () => {
      times.push(performance.now() - started);
      clearTimeout(over);
      over = setTimeout(() => { removeEventListener("drawn", note); done(); }, rest);
    };
    addEventListener("drawn", note);
    slider.dispatchEvent(new Event("input", {bubbles: true}));
  });
  return times;
}"""
MOVE_FOR = """async seconds => {
  const sliders = [...document.querySelectorAll("input[type=range]")];
  const end = performance.now() + 1000 * seconds;
  let moves = 0;
  while (performance.now() < end) {
    const slider = sliders[moves % sliders.length];
    slider.value = Math.floor(Math.random() * (Number(slider.max) + 1));
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    moves += 1;
    await new Promise(done => setTimeout(done, 100));
  }
  return [moves, Number(document.body.dataset.drawn)];
}"""


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """The address of a running explorer, and its process."""
    command = [sys.executable, "-m", "flowbias", "explore", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr.readline() if process.stderr else ""
        found = re.search(r"http://\S+/", said)
        if found is None:
            raise RuntimeError(f"the server did not start: {said}")
        try:
            yield found.group(), process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=10)


def resident_megabytes(pid: int) -> float:
    """Memory of a process that is in RAM."""
    sizes = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(sizes[0]) / 1024


def opened(browser: Any, address: str, query: str) -> Any:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{address}?view={query}")
    page.wait_for_selector("body:not([data-drawn='0'])", timeout=60_000)
    return page


def latency(browser: Any, address: str, count: int) -> Iterator[Row]:
    for name, (query, slider) in VIEWS.items():
        page = opened(browser, address, query)
        # Its curves may still be on their way, and are no answer to the first move.
        page.wait_for_timeout(2 * REST)
        times = []
        for move in range(count):
            progress(f"{name}: {move} of {count}")
            times.append(page.evaluate(MOVE, [slider, 7, REST]))
        page.close()
        first, last = ([of_move[place] for of_move in times] for place in (0, -1))
        middle, high = np.quantile(first, [0.5, 0.95])
        yield {
            "slider": name,
            "moves": count,
            "median ms": float(middle),
            "95% ms": float(high),
            "largest ms": max(first),
            "whole: median ms": float(np.median(last)),
            "pictures": sum(len(of_move) for of_move in times),
        }


def many_tabs(browser: Any, address: str, pid: int, tabs: int, seconds: float) -> Iterator[Row]:
    """All tabs move their sliders at once; memory at the start, on the way, and after."""
    complaints: list[str] = []
    pages = [opened(browser, address, list(VIEWS.values())[k % len(VIEWS)][0]) for k in range(tabs)]
    for page in pages:
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.evaluate(f"() => {{ window.moved = ({MOVE_FOR})({seconds}); }}")
    began = time.monotonic()
    for share in (0.0, 1 / 3, 2 / 3, 1.0):
        pages[0].wait_for_timeout(1000 * max(began + share * seconds - time.monotonic(), 0.0))
        yield {"when": f"{share * seconds:.0f} s", "server MB": resident_megabytes(pid)}
    ended = [page.evaluate("() => window.moved") for page in pages]
    failing = sum(not page.locator("#error").is_hidden() for page in pages)
    for page in pages:
        page.close()
    time.sleep(6)
    yield {
        "when": "6 s after all tabs were closed",
        "server MB": resident_megabytes(pid),
        "moves": sum(moves for moves, _ in ended),
        "pictures": sum(drawn for _, drawn in ended),
        "console errors": len(complaints),
        "tabs whose last settings were refused": failing,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--moves", type=int, default=60, help="of each slider")
    arguments.add_argument("--tabs", type=int, default=0, help="that move sliders at once")
    arguments.add_argument("--seconds", type=float, default=60.0)
    chosen = arguments.parse_args()
    from playwright.sync_api import sync_playwright

    report = Report(chosen.json)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with server() as (address, pid), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(QUIET))
        report.table("slider to first new picture", list(latency(browser, address, chosen.moves)))
        if chosen.tabs:
            rows = list(many_tabs(browser, address, pid, chosen.tabs, chosen.seconds))
            report.table(f"{chosen.tabs} tabs at once", rows)
        browser.close()
    report.finish()


if __name__ == "__main__":
    main()

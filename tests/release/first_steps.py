"""The first steps of four people, in an empty environment: commands, and minutes to success.

    python tests/release/first_steps.py [student] [statistician] [teacher] [practitioner]

A student runs the README's lines and a figure with one thing changed, a statistician fits a file as
she has it and predicts, a teacher opens the explorer, and a practitioner, whose training loop is
there already, asks whether her network is lazy: watched by three more lines, then before and after.
PyTorch is installed for her in its build for processors, where pip has one. Whatever fails ends it
with an error.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parents[2]
MESSY = "\n".join(
    [
        '"PatientId","visit","age, years","income","sex","gene 1","gene 2","score"',
        *(
            f"{100 + i},2024-01-{i + 1:02},{'' if i % 7 == 3 else 30 + (i * 7) % 41},"
            f"{20000 + 997 * i % 60000},{'fm'[i % 3 == 0]},{(i * 37 % 19) / 10 - 1:.2f},"
            f"{(i * 53 % 23) / 10 - 1:.2f},{3 * ((i * 37 % 19) / 10 - 1) + (i * 7) % 41 / 20:.3f}"
            for i in range(28)
        ),
    ]
)
# Hers, before she has heard of the library: a classifier with dropout, batches and Adam.
NETWORK = """\
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(256, 8)
y = (x[:, 0] * x[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
"""
LOOP = """\
for epoch in range(60):
    for rows in torch.randperm(256).split(32):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
"""
# What she adds: a copy and a question, or three lines in the loop and a word.
DIAGNOSED = f"""{NETWORK}
import copy, flowbias as fb
before = copy.deepcopy(net)
{LOOP}
print(fb.regime.diagnose(before.eval(), net.eval(), x, y))
"""
WATCHED = f"""{NETWORK}
from flowbias.regime import Monitor
with Monitor(net, x, y) as monitor:
{indent(LOOP, "    ")}            monitor.step(loss)
print(monitor.history)
"""


def readme_lines() -> str:
    """The first block of Python that the README shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


class Newcomer:
    """Somebody with an empty environment, who counts what it takes."""

    def __init__(self, home: Path) -> None:
        self.home, self.commands, self.seconds = home, 0, 0.0
        self.bin = home / "env" / "bin"

    def _tell(self, words: str, started: float, told: str) -> None:
        taken = time.monotonic() - started
        self.commands, self.seconds = self.commands + 1, self.seconds + taken
        last = told.strip().splitlines()[-1:] or [""]
        sys.stdout.write(f"  {taken:6.1f} s  {words}\n            {last[0][:100]}\n")
        sys.stdout.flush()

    def run(
        self, *words: object, expect: str = "", codes: tuple[int, ...] = (0,), shown: str = ""
    ) -> str:
        """A command of the environment, which must end so and say that."""
        started = time.monotonic()
        command = [str(self.bin / str(words[0])), *map(str, words[1:])]
        own = {**os.environ, "FLOWBIAS_CACHE": str(self.home / "cache")}
        done = subprocess.run(command, cwd=self.home, env=own, capture_output=True, text=True)
        told = done.stdout + done.stderr
        self._tell(shown or " ".join(map(str, words)), started, told)
        if done.returncode not in codes or expect not in told:
            raise SystemExit(f"{words} ended with {done.returncode}:\n{told}")
        return told

    def install(self, extras: str = "", first: str = "") -> None:
        started = time.monotonic()
        venv.create(self.home / "env", with_pip=True)
        self._tell("python3 -m venv .venv", started, "")
        what = f"{ROOT}{extras}"
        pinned = ("-c", ROOT / "constraints.txt")
        if first:
            # 1: pip knows of no such build here, and what follows takes the other one.
            self.run("pip", "install", "-q", first, codes=(0, 1), shown=f"pip install {first}")
        self.run("pip", "install", "-q", *pinned, what, shown=f'pip install ".{extras}"')

    def explore(self) -> None:
        """Until the page is there."""
        started = time.monotonic()
        words = [str(self.bin / "flowbias"), "explore", "--no-browser", "--port", "0"]
        unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=unbuffered) as server:
            try:
                told = next(line for line in server.stderr if "http" in line)
                address = re.search(r"http://[\w.:/]+", told)[0]
                page = urllib.request.urlopen(address, timeout=60).read().decode()
            finally:
                server.terminate()
        self._tell("flowbias explore", started, address)
        if "<title>" not in page:
            raise SystemExit(f"explore: no page at {address}")


def student(newcomer: Newcomer) -> None:
    newcomer.install()
    newcomer.run("python", "-c", readme_lines(), expect="CERTIFIED", shown="the README's lines")
    changed = ("woodworth-fig1", "--preset", "smoke", "--set", "sparsity=10")
    # 1: what the caption says of its own settings need not hold of others.
    page = "page: out/woodworth-fig1_sparsity=10.html"
    newcomer.run("flowbias", "run", *changed, expect=page, codes=(0, 1))


def statistician(newcomer: Newcomer) -> None:
    newcomer.install()
    (newcomer.home / "study.csv").write_text(MESSY, encoding="utf-8-sig")
    fit = ("flowbias", "limit", "study.csv", "--cv")
    told = newcomer.run(*fit, expect="--drop PatientId --drop visit", codes=(2,))
    options = (*re.search(r"--drop PatientId --drop visit", told)[0].split(), "--impute", "mean")
    newcomer.run(*fit, *options, "--save", "model.json", expect="gene 1")
    predict = ("flowbias", "predict", "model.json", "study.csv", "--impute", "mean")
    newcomer.run(*predict, expect="root mean square error")


def teacher(newcomer: Newcomer) -> None:
    newcomer.install("[explore]")
    newcomer.explore()


def practitioner(newcomer: Newcomer) -> None:
    pinned = re.search(r"^torch==[\d.]+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]
    newcomer.install("[nets]", first=f"{pinned}+cpu")
    for name, lines in (("diagnosed.py", DIAGNOSED), ("watched.py", WATCHED)):
        (newcomer.home / name).write_text(lines, encoding="utf-8")
    newcomer.run("python", "diagnosed.py", expect="beyond the kernel of the start")
    newcomer.run("python", "watched.py", expect="History:")


PEOPLE = {steps.__name__: steps for steps in (student, statistician, teacher, practitioner)}


def main(*names: str) -> None:
    for name in names or PEOPLE:
        sys.stdout.write(f"{name}\n")
        with tempfile.TemporaryDirectory() as folder:
            newcomer = Newcomer(Path(folder))
            PEOPLE[name](newcomer)
        sys.stdout.write(f"  {newcomer.commands} commands, {newcomer.seconds / 60:.1f} minutes\n\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

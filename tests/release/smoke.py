"""What an installed flowbias must do with nothing else installed.

    python -I smoke.py VERSION RESOURCE ...

Run by the interpreter of an empty environment, away from the sources; ends with an error where
anything is amiss. Resources are paths inside the package.
"""

import json
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np

import flowbias as fb

CSV = "a,b,c,y\n1,2,0,1\n0,1,3,2\n"


def must(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"smoke test: {what}")
    sys.stdout.write(f"ok: {what}\n")


def said(*arguments: str) -> str:
    """What the installed command answers."""
    command = Path(sysconfig.get_path("scripts"), "flowbias")
    done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=120)
    must(done.returncode == 0, f"flowbias {arguments[0]} ends well {done.stderr}")
    return done.stdout


def main(version: str, *resources: str) -> None:
    package = Path(fb.__file__).parent
    installed = Path(sysconfig.get_path("purelib"))
    must(package.is_relative_to(installed), f"imported from {installed}")
    must(fb.__version__ == metadata.version("flowbias") == version, f"version {version}")
    for resource in resources:
        must((package / resource).is_file(), f"{resource} is inside")

    X, y, _ = fb.datasets.sparse_regression(n=20, d=60, sparsity=2, noise_var=0.0, rng=0)
    solution = fb.limit(fb.DiagonalNet(depth=2, scale=1e-3), X, y)
    must(solution.certificate.ok, "a limit is certified")
    must(bool(np.allclose(X @ solution.w, y)), "and fits the data")
    must("CERTIFIED" in solution._repr_html_(), "and shows itself")
    must(bool(solution.plot().axes), "and draws itself")
    must(fb.estimators.MinNormRegressor().fit(X, y).score(X, y) > 0.999, "an estimator fits")

    must(said("--version").split()[-1] == version, "the command knows its version")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.csv")
        data.write_text(CSV, encoding="utf-8")
        found = json.loads(said("limit", str(data), "--scale", "1e-3", "--json"))
        must(found["certified"] is True, "a limit of a csv file is certified")
    must("woodworth-fig1" in said("list"), "the figures are listed")


if __name__ == "__main__":
    main(*sys.argv[1:])

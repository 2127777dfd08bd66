"""Install what was built into empty environments, one each, and run the smoke test there.

python tests/release/try_in_empty_environment.py dist/*
"""

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "flowbias"
SMOKE = Path(__file__).with_name("smoke.py")


def resources() -> list[str]:
    """All files of the package that are no Python: those that a build forgets first."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file())
    kept = (path for path in files if path.suffix not in {".py", ".pyc"})
    return sorted(str(path.relative_to(PACKAGE)) for path in kept)


def version() -> str:
    names: dict[str, str] = {}
    exec((PACKAGE / "_version.py").read_text(encoding="utf-8"), names)
    return names["__version__"]


def try_out(built: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "env", with_pip=True)
        python = home / "env" / "bin" / "python"
        pinned = ["-c", str(ROOT / "constraints.txt")]
        quiet = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *quiet, *pinned, built], check=True)
        smoke = shutil.copy(SMOKE, home)
        # -I: neither the sources nor anything of the user's may help.
        told = [python, "-I", smoke, version(), *resources()]
        subprocess.run(told, cwd=home, check=True)


def main(*built: str) -> None:
    wheels, archives = ([n for n in built if n.endswith(end)] for end in (".whl", ".tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        raise SystemExit(
            f"dist must hold one wheel and one sdist, got {len(wheels)} and {len(archives)}. "
            "Run `make dist`."
        )
    for name in (*wheels, *archives):
        sys.stdout.write(f"== {name}\n")
        sys.stdout.flush()
        try_out(Path(name).resolve())


if __name__ == "__main__":
    main(*sys.argv[1:])

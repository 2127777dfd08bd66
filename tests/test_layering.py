"""Imports point one way, and heavy packages load only when used.

    ground <- potentials, designs, problems <- certificates, models <- results <- flows <- limits
        <- theory, derive, estimators <- kernels, nets <- regime <- experiments
        <- notebooks, apps (data_files <- explorer <- cli);
    datasets stands on ground alone

Read from the syntax tree, so that an import inside a function counts as well.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from flowbias.ground.sources import SOURCES

SOURCE = Path(__file__).resolve().parents[1] / "src" / "flowbias"

# Lowest first. A module may import from its own room and from those before it: no two rooms are of
# one rank, so that no two can import each other.
ROOMS = (
    *("ground", "potentials", "designs", "problems"),
    *("certificates", "models", "results"),
    *("flows", "limits"),
    *("theory", "derive", "estimators"),
    *("kernels", "nets", "regime"),
    *("experiments", "notebooks", "apps.data_files", "apps.explorer", "apps.cli"),
)
RANK = {name: rank for rank, name in enumerate(ROOMS)}
# The library proper does not depend on example data; only what runs experiments does.
MAY_USE_DATASETS = {"datasets", "experiments", "notebooks", "apps.explorer", "apps.cli"}
# Anything may import these, the example data too.
BELOW_ALL = {"ground", "_version"}
# Entry points: they gather the public names, and nothing inside may import from them.
ENTRY_POINTS = {"__init__", "__main__"}

TORCH_HOMES = {"derive", "kernels", "nets", "regime"}
# Where it is first asked for, and the error says how to get it.
ASKS_FOR_TORCH = "flowbias.ground.torch"
# Slow to load or optional: imported by the function that needs them, never by a module.
ONLY_INSIDE_FUNCTIONS = {
    *("matplotlib", "dask", "distributed", "joblib", "jinja2", "cvxpy", "clarabel", "pooch", "PIL"),
    *("bokeh", "tornado", "anywidget", "traitlets"),
}
TYPE_ONLY = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


class Import(NamedTuple):
    """One imported name, e.g. flowbias.potentials, and whether importing the module loads it."""

    target: str
    line: int
    at_module_level: bool


def module_name(path: Path) -> str:
    """flowbias.potentials.hypentropy for .../flowbias/potentials/hypentropy.py."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imports_of(source: str, package: str) -> Iterator[Import]:
    """All imports of a module; `package` is what its relative imports start from."""
    yield from _walk(ast.parse(source), package, at_module_level=True)


def _walk(node: ast.AST, package: str, at_module_level: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, at_module_level)
        elif isinstance(child, ast.ImportFrom):
            origin = _absolute(child, package)
            for alias in child.names:
                yield Import(f"{origin}.{alias.name}", child.lineno, at_module_level)
        elif isinstance(child, ast.If) and ast.unparse(child.test) in TYPE_ONLY:
            # Seen by the type checker alone: an arrow, but loads nothing.
            for part in child.body:
                yield from _walk(ast.Module([part], []), package, at_module_level=False)
            for part in child.orelse:
                yield from _walk(ast.Module([part], []), package, at_module_level)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(child, package, at_module_level and not inside)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parents = package.split(".")
    base = parents[: len(parents) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def home(module: str) -> str:
    """The room of a module: the part directly below flowbias, and within apps the app."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts[0] == "apps" else parts[0]


def arrow_faults(module: str, imports: list[Import]) -> list[str]:
    """Imports of `module` that point the wrong way."""
    importer = home(module)
    if importer in ENTRY_POINTS:
        return []
    return [
        f"line {line}: {module} imports {target}, {reason}"
        for target, line, _ in imports
        if target.split(".")[0] == "flowbias" and (reason := _arrow_fault(importer, target))
    ]


def _arrow_fault(importer: str, target: str) -> str | None:
    imported = home(target) if "." in target else "__init__"
    if imported not in {*RANK, *BELOW_ALL, "datasets"}:
        return "which is a public name: import it from the module that defines it"
    if imported in BELOW_ALL or imported == importer:
        return None
    if imported == "datasets":
        return None if importer in MAY_USE_DATASETS else "but datasets stands alone"
    if importer in {*BELOW_ALL, "datasets"}:
        return f"but {importer} stands on nothing else of flowbias"
    return None if RANK[imported] < RANK[importer] else "which lies above it"


def loading_faults(module: str, imports: list[Import]) -> list[str]:
    """Heavy packages that `module` imports where it should not."""
    faults = []
    for target, line, at_module_level in imports:
        package = target.split(".")[0]
        if package == "torch" and home(module) not in TORCH_HOMES and module != ASKS_FOR_TORCH:
            faults.append(f"line {line}: {module} imports torch outside {sorted(TORCH_HOMES)}")
        if package in ONLY_INSIDE_FUNCTIONS and at_module_level:
            faults.append(f"line {line}: {module} loads {package}; import it where it is used")
    return faults


def read(path: Path) -> tuple[str, list[Import]]:
    module = module_name(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return module, list(imports_of(path.read_text(encoding="utf-8"), package))


ALL_MODULES = [read(path) for path in sorted(SOURCE.rglob("*.py"))]


def test_imports_point_one_way():
    assert [fault for module in ALL_MODULES for fault in arrow_faults(*module)] == []


def arrows(modules: list[tuple[str, list[Import]]]) -> dict[str, set[str]]:
    """By room, those that its modules import from; entry points left out."""
    graph: dict[str, set[str]] = {}
    for module, imports in modules:
        here = home(module)
        there = {home(name) for name, _, _ in imports if name.startswith("flowbias.")}
        if here not in ENTRY_POINTS:
            graph.setdefault(here, set()).update(there - {here, *ENTRY_POINTS})
    return graph


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Rooms of which each imports from the next, the last from the first; none where none do."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_rooms_import_each_other():
    assert cycle_in(arrows(ALL_MODULES)) == []


def test_a_cycle_is_seen_through_functions_and_other_rooms():
    sources = {
        "flowbias.problems.regression": "from flowbias.ground.typing import FloatArray",
        "flowbias.flows.a": "def f():\n    from flowbias.limits.b import limit",
        "flowbias.limits.b": "from flowbias.results.c import shown",
        "flowbias.results.c": "if TYPE_CHECKING:\n    from flowbias.flows.a import flow",
    }
    modules = [
        (name, list(imports_of(text, name.rpartition(".")[0]))) for name, text in sources.items()
    ]
    cycle = cycle_in(arrows(modules))
    assert set(cycle) == {"flows", "limits", "results"}
    assert all(there in arrows(modules)[here] for here, there in pairwise(cycle))
    assert cycle_in(arrows(modules[:3])) == []


# What proves shares nothing with what solves, but for this. Of these rooms anything: they say what
# a problem is (data, potentials) and how numbers are read, written, added and shown, not how a
# limit is found.
SHARED_ROOMS = ("ground", "potentials", "designs")
# Of these, on which solvers build, no more than these names, each for its reason.
SHARED_NAMES = {
    "flowbias.ground.linear_algebra.graded_qr": "LAPACK's QR of sorted rows: a copy is that call",
    "flowbias.ground.tolerances.IN_RANGE": "a misfit has to be one thing, or a status lies",
}
LENDERS = {name.rpartition(".")[0] for name in SHARED_NAMES}


def closure_of(room: str) -> set[str]:
    """All modules that those of a room import from, directly or not."""
    own = {name for name in SOURCES.digests if name.split(".")[1:2] == [room]}
    return {behind for name in own for behind in SOURCES.behind(name)}


def is_shared(module: str) -> bool:
    """Of a room that says what a problem is, or of the proofs themselves."""
    return module.removeprefix("flowbias.").startswith((*SHARED_ROOMS, "certificates"))


def test_what_proves_shares_nothing_with_what_solves():
    both = closure_of("certificates") & closure_of("limits")
    assert {name for name in both if name in LENDERS or not is_shared(name)} == LENDERS


def test_of_what_solvers_build_on_proofs_borrow_named_functions_only():
    borrowed = {
        name
        for module, imports in ALL_MODULES
        if home(module) == "certificates"
        for name, _, _ in imports
        if name.rpartition(".")[0] in LENDERS
    }
    assert borrowed == set(SHARED_NAMES)


def test_heavy_packages_are_imported_where_they_are_used():
    assert [fault for module in ALL_MODULES for fault in loading_faults(*module)] == []


def test_every_module_has_a_place():
    homes = {home(module) for module, _ in ALL_MODULES}
    placed = {*RANK, *BELOW_ALL, "datasets", "apps", *ENTRY_POINTS}
    assert homes - placed == set(), "of no rank: add them to ROOMS where their imports allow"


def test_the_map_has_every_room_and_files_that_exist():
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, told = text.split("| room | has |")
    rows = re.findall(r"^\| (`.*?`) \|", told.split("\n\n")[0], re.MULTILINE)
    rooms = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert rooms == {name.split(".")[0] for name in RANK}
    roots = (SOURCE, SOURCE.parent, SOURCE.parents[1])
    for file in re.findall(r"`([\w/]+/\w+\.py)`", text):
        assert any((root / file).exists() for root in roots), file


def numbers_named_in(source: str) -> Iterator[str]:
    """Module-level names in capitals of numbers; what also holds words is a table, not a number."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        inside = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
        if any(type(value) in (int, float) for value in inside) and str not in map(type, inside):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (part for target in targets for part in ast.walk(target)):
                if isinstance(name, ast.Name) and name.id.lstrip("_").isupper():
                    yield name.id


def test_a_name_stands_for_one_number():
    homes: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for name in numbers_named_in(path.read_text(encoding="utf-8")):
            homes.setdefault(name, set()).add(module_name(path))
    assert len(homes) > 100
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("TOL = 1e-9", ["TOL"]),
        ("_A, B = 1, 2.0", ["_A", "B"]),
        ("SIZES: tuple[int, ...] = (1, 2)", ["SIZES"]),
        ("WORDS = {'a': 1}", []),
        ("small = 1", []),
        ("def f():\n    LOCAL = 1", []),
    ],
)
def test_which_names_stand_for_numbers(source, names):
    assert list(numbers_named_in(source)) == names


def faults_in(module: str, source: str) -> list[str]:
    """Both kinds of fault in a made-up module, for the tests of the rules themselves."""
    imports = list(imports_of(source, module.rpartition(".")[0]))
    return arrow_faults(module, imports) + loading_faults(module, imports)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("flowbias.potentials.a", "from flowbias.models import DiagonalNet"),
        ("flowbias.potentials.a", "from flowbias import models"),
        ("flowbias.potentials.a", "from ..models import DiagonalNet"),
        ("flowbias.potentials.a", "def f():\n    import flowbias.limits.solve"),
        ("flowbias.models.a", "if TYPE_CHECKING:\n    from flowbias.limits import solve"),
        ("flowbias.models.a", "if x:\n    from flowbias.limits import solve"),
        ("flowbias.flows.a", "def f():\n    from flowbias.limits import limit"),
        ("flowbias.designs.a", "from flowbias.problems.regression import Regression"),
        ("flowbias.problems.a", "from flowbias.certificates.certificate import certify"),
        ("flowbias.ground.a", "from flowbias.potentials import Provides"),
        ("flowbias.regime.a", "from flowbias.experiments import run"),
        ("flowbias.experiments.a", "from flowbias.apps.explorer import serve"),
        ("flowbias.apps.explorer.a", "from flowbias.apps.cli import main"),
        ("flowbias.apps.explorer.a", "import bokeh.plotting as bp"),
        ("flowbias.models.a", "import flowbias"),
        ("flowbias.models.a", "from flowbias import limit"),
        ("flowbias.models.a", "from flowbias.datasets import sparse_regression"),
        ("flowbias.datasets.a", "from flowbias.problems.regression import Regression"),
        ("flowbias.ground.typing", "from flowbias.problems.regression import Regression"),
        ("flowbias.limits.a", "def f():\n    import torch"),
        ("flowbias.experiments.a", "import matplotlib.pyplot as plt"),
        ("flowbias.experiments.a", "try:\n    from dask import delayed\nexcept ImportError: pass"),
        ("flowbias.experiments.a", "class A:\n    import matplotlib"),
        ("flowbias.limits.a", "if not TYPE_CHECKING:\n    import matplotlib"),
    ],
)
def test_the_rules_catch(module, source):
    assert faults_in(module, source) != []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("flowbias.models.a", "from flowbias.potentials import Hypentropy"),
        ("flowbias.models.a", "from .b import B"),
        ("flowbias.models.a", "from flowbias.ground.typing import FloatArray"),
        ("flowbias.limits.a", "from flowbias.flows import integrate"),
        ("flowbias.apps.cli", "from flowbias import datasets, experiments"),
        ("flowbias.apps.explorer.a", "from flowbias.datasets import sparse_regression"),
        ("flowbias.datasets.a", "from flowbias.ground.typing import FloatArray"),
        ("flowbias.nets.a", "import torch"),
        ("flowbias.experiments.a", "def plot():\n    import matplotlib.pyplot as plt"),
        ("flowbias.experiments.a", "if TYPE_CHECKING:\n    from matplotlib.axes import Axes"),
        ("flowbias.__init__", "from flowbias.apps.cli import main"),
    ],
)
def test_the_rules_allow(module, source):
    assert faults_in(module, source) == []


def loaded_by(program: str) -> set[str]:
    """The modules that a fresh Python has loaded at the end of a program."""
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); {program}; print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_flowbias_loads_only_what_limits_and_flows_need():
    loaded = loaded_by("import flowbias")
    assert "flowbias.limits.solve" in loaded
    assert not loaded & {*ONLY_INSIDE_FUNCTIONS, "torch", "sklearn"}
    rooms = {home(name) for name in loaded if name.startswith("flowbias.")}
    assert not rooms & set(ROOMS[RANK["limits"] + 1 :])


def test_rooms_load_when_they_are_used():
    program = "import flowbias as fb; [getattr(fb, name) for name in fb.__all__]"
    assert {"flowbias.theory.claim", "flowbias.derive.report"} <= loaded_by(program)

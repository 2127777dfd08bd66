"""Every public name is shown at work, and what the examples print is what comes out.

Examples may use `np` and `fb` without importing them, as docs/api/index.md says.
"""

from __future__ import annotations

import doctest
import inspect
import re
from types import ModuleType

import numpy as np
import pytest

import flowbias as fb

# They bring files of ten megabytes and more from other hosts.
FETCHED = {"datasets.cifar10", "datasets.fashion_mnist", "datasets.mnist"}


def public_names() -> dict[str, object]:
    """Callables of the package and of its public modules, by name."""
    named = {name: getattr(fb, name) for name in fb.__all__}
    modules = {name: value for name, value in named.items() if isinstance(value, ModuleType)}
    inside = {
        f"{module}.{name}": getattr(value, name)
        for module, value in modules.items()
        for name in value.__all__
    }
    return {name: value for name, value in {**named, **inside}.items() if callable(value)}


PUBLIC = public_names()
PARSER = doctest.DocTestParser()


def example_of(name: str) -> doctest.DocTest:
    value = PUBLIC[name]
    words = inspect.cleandoc(value.__doc__ or "")
    surroundings = {**vars(inspect.getmodule(value)), "fb": fb, "np": np}
    return PARSER.get_doctest(words, surroundings, name, inspect.getsourcefile(value), 0)


EXAMPLES = {name: example for name in PUBLIC if (example := example_of(name)).examples}


def annotations_of(value: object) -> str:
    """What a function returns, or what a class is made of, as it is annotated."""
    if not inspect.isclass(value):
        return str(inspect.signature(value).return_annotation)
    fields = [
        str(hint)
        for part in value.__mro__
        for hint in vars(part).get("__annotations__", {}).values()
    ]
    members = [
        member.fget for _, member in inspect.getmembers(value, lambda m: isinstance(m, property))
    ]
    methods = [member for _, member in inspect.getmembers(value, inspect.isfunction)]
    returned = [str(inspect.signature(member).return_annotation) for member in [*members, *methods]]
    return " ".join([*fields, *returned])


def shown_by_examples() -> set[str]:
    """Names with an example, and classes of what those return or of parts of that."""
    shown, waiting = set(), list(EXAMPLES)
    while waiting:
        name = waiting.pop()
        shown.add(name)
        module = name.rpartition(".")[0]
        words = set(re.findall(r"\w+", annotations_of(PUBLIC[name])))
        for other in PUBLIC.keys() - shown - set(waiting):
            home, _, last = other.rpartition(".")
            if last in words and home == module and inspect.isclass(PUBLIC[other]):
                waiting.append(other)
    return shown


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FLOWBIAS_CACHE", str(tmp_path))


def test_everything_public_is_shown():
    assert sorted(PUBLIC.keys() - shown_by_examples()) == []


def test_only_what_has_to_be_fetched_is_not_run():
    skipped = {
        name
        for name, test in EXAMPLES.items()
        if any(example.options.get(doctest.SKIP) for example in test.examples)
    }
    assert skipped == FETCHED


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_prints_what_it_says(name):
    report: list[str] = []
    runner = doctest.DocTestRunner()
    runner.run(EXAMPLES[name], out=report.append, clear_globs=False)
    assert report == [], "".join(report)


def parameters_said(text: str) -> set[str]:
    """Names in the section Parameters of a docstring."""
    found = re.search(
        r"^Parameters\n-+\n(.*?)(?:\n\n|\Z)", inspect.cleandoc(text or ""), re.DOTALL | re.MULTILINE
    )
    entries = [] if found is None else found[1].splitlines()
    names = (entry.split(" : ")[0] for entry in entries if not entry.startswith(" "))
    return {name for several in names for name in several.split(", ")}


CALLS = [name for name, value in PUBLIC.items() if not inspect.isclass(value)]
#: Classes that are made by hand; the others come out of calls.
MADE = [
    *(name for name in fb.__all__ if hasattr(fb.models, name) or hasattr(fb.potentials, name)),
    *("Regression", "MatrixCompletion", "MatrixRegression", "MatrixSensing"),
    *(name for name in PUBLIC if re.search(r"Regressor(CV)?$", name)),
    *("derive.Parametrization", "kernels.TangentMap"),
    *("regime.Monitor", "regime.Every", "regime.Geometric"),
]


@pytest.mark.parametrize("name", [*(c for c in CALLS if not c.startswith("theory.")), *MADE])
def test_every_parameter_is_explained(name):
    value = PUBLIC[name]
    assert parameters_said(value.__doc__) == set(inspect.signature(value).parameters) - {"_"}
    if name in CALLS:
        for section in ("Returns", "Raises"):
            assert re.search(rf"^ *{section}\n *-+\n *\S", value.__doc__, re.MULTILINE), section


@pytest.mark.parametrize("name", [call for call in CALLS if call.startswith("theory.")])
def test_every_symbol_of_a_theorem_is_explained(name):
    """Once for all theorems, in the text of their module; pages say it at each of them."""
    assert set(inspect.signature(PUBLIC[name]).parameters) <= parameters_said(fb.theory.__doc__)


def test_no_symbol_is_explained_in_vain():
    used = {
        parameter
        for name in CALLS
        if name.startswith("theory.")
        for parameter in inspect.signature(PUBLIC[name]).parameters
    }
    assert parameters_said(fb.theory.__doc__) == used

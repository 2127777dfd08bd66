"""Data as users have them at their worst, for hypothesis to draw.

Every example is finite and rectangular, so a function may refuse it only for a reason of its own:
entries between 1e-150 and 1e150, condition numbers up to 1e12, zero and repeated rows and columns,
any real dtype, either memory order, read-only, sparse, or plain lists.
"""

import ast
import doctest
import inspect
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from hypothesis import strategies as st

import flowbias as fb

SEEDS = st.integers(0, 2**32 - 1)
MOST_ROWS, MOST_COLUMNS = 6, 9


class Data(NamedTuple):
    X: Any
    y: Any


def assert_explains_itself(refusal: Exception) -> None:
    """It says of what it complains, and what is wrong with it."""
    subject, _, complaint = str(refusal).partition(": ")
    assert subject
    assert complaint


def example_of(function: Any) -> dict[str, Any]:
    """The arguments with which the docstring of a public function or class calls it."""
    name, known = function.__name__, {"fb": fb, "np": np, **vars(inspect.getmodule(function))}

    def value(node):
        return eval(compile(ast.Expression(node), name, "eval"), known)

    for example in doctest.DocTestParser().get_examples(inspect.cleandoc(function.__doc__)):
        for node in ast.walk(ast.parse(example.source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                named = {word.arg: value(word.value) for word in node.keywords}
                return inspect.signature(function).bind(*map(value, node.args), **named).arguments
        exec(example.source, known)
    raise AssertionError(f"{name} has no example of a call")


def _magnitudes(rng: np.random.Generator, spread: float, size: int) -> np.ndarray:
    """Powers of ten drawn between 10^-spread and 10^spread."""
    return 10.0 ** rng.uniform(-spread, spread, size)


def _conditioned(rng: np.random.Generator, n: int, d: int, decades: float) -> np.ndarray:
    """A Gaussian matrix whose singular values are spread over `decades`."""
    left, _, right = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    return (left * np.logspace(0.0, -decades, min(n, d))) @ right


def _spoiled(rng: np.random.Generator, X: np.ndarray, habits: frozenset[str]) -> np.ndarray:
    n, d = X.shape
    if "zero row" in habits:
        X[rng.integers(n)] = 0.0
    if "zero column" in habits:
        X[:, rng.integers(d)] = 0.0
    if "repeated row" in habits:
        X[rng.integers(n)] = X[rng.integers(n)]
    if "opposite row" in habits:
        X[rng.integers(n)] = -X[rng.integers(n)]
    if "repeated column" in habits:
        X[:, rng.integers(d)] = X[:, rng.integers(d)]
    if "uneven rows" in habits:
        X *= _magnitudes(rng, 20.0, n)[:, None]
    if "uneven columns" in habits:
        X *= _magnitudes(rng, 5.0, d)
    return X


HABITS = (
    *("zero row", "zero column", "repeated row", "opposite row", "repeated column"),
    *("uneven rows", "uneven columns"),
)

# How the same numbers may arrive. Integers lose digits, which makes other data, not wrong data.
FORMS = (
    lambda X: X,
    np.asfortranarray,
    lambda X: X[::-1, ::-1],
    lambda X: X.tolist(),
    scipy.sparse.csr_array,
    scipy.sparse.coo_matrix,
    lambda X: np.clip(np.rint(3.0 * X), -9, 9).astype(np.int8),
    lambda X: np.clip(X, -1e30, 1e30).astype(np.float32),
    lambda X: X > 0,
    lambda X: np.require(X, requirements="C").view(ReadOnly),
)


class ReadOnly(np.ndarray):
    """An array that nobody may write to."""

    def __array_finalize__(self, _source: object) -> None:
        self.flags.writeable = False


@st.composite
def regression_data(draw: st.DrawFn) -> Data:
    """X and y, in reach of each other or not."""
    rng = np.random.default_rng(draw(SEEDS))
    n, d = draw(st.integers(1, MOST_ROWS)), draw(st.integers(1, MOST_COLUMNS))
    X = _conditioned(rng, n, d, draw(st.sampled_from([0.0, 1.0, 6.0, 12.0])))
    X = _spoiled(rng, X, draw(st.frozensets(st.sampled_from(HABITS), max_size=2)))
    X *= 10.0 ** draw(st.sampled_from([0, 0, 0, -3, 8, -120, 120]))
    X = draw(st.sampled_from(FORMS))(X)
    return Data(X, _outputs(draw, rng, X, n))


def _outputs(draw: st.DrawFn, rng: np.random.Generator, X: Any, n: int) -> np.ndarray:
    kind = draw(st.sampled_from(["fits", "fits", "noise", "zero"]))
    if kind == "zero":
        return np.zeros(n)
    size = 10.0 ** draw(st.sampled_from([0, 0, -8, 8, -100, 100]))
    if kind == "noise":
        return size * rng.standard_normal(n)
    matrix = X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)
    y = matrix.astype(float) @ rng.standard_normal(matrix.shape[1])
    return np.clip(y * (size if np.abs(y).max() < 1e40 else 1.0), -1e150, 1e150)

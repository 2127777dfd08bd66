"""From a seed to a problem: data, a network at its start, and the front door to knock at.

Everything is drawn by numpy from the seed alone, so a seed is all that a replay needs. A family is
a way to make X; outputs, starts, sizes and entry points are drawn independently of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

Draw = np.random.Generator
Array = np.ndarray


@dataclass(frozen=True)
class Start:
    """A network at its start, as the arguments that the library takes.

    kind      which of the constructors: "tied", "tied_weights", "untied" or "untied_weights"
    weights   w0; or w_plus, w_minus; or u_plus, u_minus, v_plus, v_minus
    """

    kind: str
    depth: float = 2.0
    scale: float | None = None
    log_scale: float | None = None
    shape: float = 0.0
    weights: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Problem:
    seed: int
    family: str
    entry: str
    X: Array
    y: Array
    start: Start
    #: of the entry point: log_scales of a path, weights of a norm, the intercept, a wrong answer
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_small(self) -> bool:
        return max(self.X.shape) < 50


def problem(seed: int) -> Problem:
    """The problem of this seed."""
    rng = np.random.default_rng([0x11317, seed])
    family = pick(rng, FAMILIES)
    entry = pick(rng, ENTRIES)
    n, d = (_large if family == "large" else pick(rng, SIZES, named=False))(rng)
    X = FAMILIES[family][1](rng, n, d)
    if not X.any():
        X[rng.integers(n), rng.integers(d)] = 1.0
    y = _outputs(rng, X)
    start = _start_for(rng, entry, X.shape[1])
    return Problem(seed, family, entry, X, y, start, _options(rng, entry, X))


def as_text(given: Problem) -> dict[str, Any]:
    """The problem with every double written exactly."""

    def exact(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [exact(entry) for entry in value]
        if isinstance(value, (list, tuple)):
            return [exact(entry) for entry in value]
        if isinstance(value, dict):
            return {key: exact(entry) for key, entry in value.items()}
        return float(value).hex() if isinstance(value, float) else value

    return exact(asdict(given))


def pick(rng: Draw, table: dict[str, tuple[float, Any]], named: bool = True) -> Any:
    """A key of a table of (share, value), or its value, drawn by the shares."""
    shares = np.array([share for share, _ in table.values()])
    key = list(table)[rng.choice(len(table), p=shares / shares.sum())]
    return key if named else table[key][1]


# --- sizes ---------------------------------------------------------------------------------------


def _wide(rng: Draw) -> tuple[int, int]:
    n = int(rng.integers(1, 7))
    return n, int(rng.integers(n, 11))


def _nearly_square(rng: Draw) -> tuple[int, int]:
    n = int(rng.integers(1, 9))
    return n, max(1, n + int(rng.integers(-1, 2)))


def _tall(rng: Draw) -> tuple[int, int]:
    d = int(rng.integers(1, 7))
    return d + int(rng.integers(1, 6)), d


def _one_row(rng: Draw) -> tuple[int, int]:
    return 1, int(rng.integers(1, 11))


def _one_column(rng: Draw) -> tuple[int, int]:
    return int(rng.integers(1, 7)), 1


def _large(rng: Draw) -> tuple[int, int]:
    return int(rng.integers(8, 51)), int(rng.integers(12, 51))


SIZES: dict[str, tuple[float, Callable[[Draw], tuple[int, int]]]] = {
    "wide": (60, _wide),
    "square": (15, _nearly_square),
    "tall": (13, _tall),
    "one row": (6, _one_row),
    "one column": (6, _one_column),
}


# --- X -------------------------------------------------------------------------------------------


def _gaussian(rng: Draw, n: int, d: int) -> Array:
    return rng.standard_normal((n, d))


def _integers(rng: Draw, n: int, d: int) -> Array:
    most = int(rng.integers(1, 4))
    return rng.integers(-most, most + 1, (n, d)).astype(float)


def _either(rng: Draw, n: int, d: int) -> Array:
    return (_integers if rng.random() < 0.5 else _gaussian)(rng, n, d)


def _repeated_columns(rng: Draw, n: int, d: int) -> Array:
    X = _either(rng, n, d)
    return X[:, rng.integers(0, max(1, d // 2 + 1), d)]


def _flipped_columns(rng: Draw, n: int, d: int) -> Array:
    return _repeated_columns(rng, n, d) * rng.choice([-1.0, 1.0], d)


def _close_columns(rng: Draw, n: int, d: int) -> Array:
    return _flipped_columns(rng, n, d) + 10.0 ** rng.uniform(-15, -3) * _gaussian(rng, n, d)


def _zero_columns(rng: Draw, n: int, d: int) -> Array:
    return _either(rng, n, d) * (rng.random(d) < 0.6)


def _zero_rows(rng: Draw, n: int, d: int) -> Array:
    return _either(rng, n, d) * (rng.random((n, 1)) < 0.6)


def _dependent_rows(rng: Draw, n: int, d: int) -> Array:
    rank = int(rng.integers(1, n + 1))
    return rng.integers(-2, 3, (n, rank)).astype(float) @ _integers(rng, rank, d)


def _nearly_dependent_rows(rng: Draw, n: int, d: int) -> Array:
    rank = int(rng.integers(1, n + 1))
    mixed = rng.standard_normal((n, rank)) @ _gaussian(rng, rank, d)
    return mixed + 10.0 ** rng.uniform(-15, -5) * _gaussian(rng, n, d)


def _repeated_rows(rng: Draw, n: int, d: int) -> Array:
    X = _either(rng, n, d)
    return X[rng.integers(0, max(1, n // 2 + 1), n)] * rng.choice([-1.0, 1.0, 1.0], n)[:, None]


def _rows_repeated_in_units(rng: Draw, n: int, d: int) -> Array:
    return _repeated_rows(rng, n, d) * 10.0 ** rng.uniform(-18, 18, (n, 1))


def _vandermonde(rng: Draw, n: int, d: int) -> Array:
    return np.vander(rng.uniform(-1.5, 1.5, n), d, increasing=True)


def _hilbert(rng: Draw, n: int, d: int) -> Array:
    first = int(rng.integers(1, 4))
    return 1.0 / (first + np.arange(n)[:, None] + np.arange(d))


def _one_hot(rng: Draw, n: int, d: int) -> Array:
    return np.eye(d)[rng.integers(0, d, n)]


def _cauchy(rng: Draw, n: int, d: int) -> Array:
    return rng.standard_cauchy((n, d))


def _column_units(rng: Draw, n: int, d: int) -> Array:
    return _either(rng, n, d) * 10.0 ** rng.uniform(-12, 12, d)


def _row_units(rng: Draw, n: int, d: int) -> Array:
    return _either(rng, n, d) * 10.0 ** rng.uniform(-12, 12, (n, 1))


def _all_units(rng: Draw, n: int, d: int) -> Array:
    reach = rng.uniform(1, 12)
    return _column_units(rng, n, d) * 10.0 ** rng.uniform(-reach, reach, (n, 1))


def _one_unit(rng: Draw, n: int, d: int) -> Array:
    return _either(rng, n, d) * 10.0 ** rng.uniform(-100, 100)


def _any_large(rng: Draw, n: int, d: int) -> Array:
    makers = (_gaussian, _integers, _flipped_columns, _zero_columns, _dependent_rows, _cauchy)
    return makers[rng.integers(len(makers))](rng, n, d)


FAMILIES: dict[str, tuple[float, Callable[[Draw, int, int], Array]]] = {
    "gaussian": (10, _gaussian),
    "integers": (10, _integers),
    "repeated columns": (5, _repeated_columns),
    "flipped columns": (5, _flipped_columns),
    "close columns": (5, _close_columns),
    "zero columns": (5, _zero_columns),
    "zero rows": (5, _zero_rows),
    "dependent rows": (6, _dependent_rows),
    "nearly dependent rows": (8, _nearly_dependent_rows),
    "repeated rows": (5, _repeated_rows),
    "rows repeated in units": (5, _rows_repeated_in_units),
    "vandermonde": (5, _vandermonde),
    "hilbert": (4, _hilbert),
    "one-hot": (4, _one_hot),
    "cauchy": (5, _cauchy),
    "column units": (5, _column_units),
    "row units": (5, _row_units),
    "all units": (4, _all_units),
    "one unit": (3, _one_unit),
    "large": (3, _any_large),
}


# --- y -------------------------------------------------------------------------------------------


def _outputs(rng: Draw, X: Array) -> Array:
    n, d = X.shape
    kind = rng.choice(["sparse", "dense", "whole", "noise", "zero"], p=[0.3, 0.2, 0.2, 0.26, 0.04])
    if kind == "zero":
        return np.zeros(n)
    if kind == "noise":
        # In the units of its row, else the small rows would not be seen.
        y = rng.standard_normal(n) * _row_sizes(X)
    else:
        w = rng.integers(-3, 4, d).astype(float) if kind == "whole" else rng.standard_normal(d)
        y = X @ (w * (rng.random(d) < 0.4) if kind == "sparse" else w)
    return y * 10.0 ** _size(rng)


def _row_sizes(X: Array) -> Array:
    sizes = np.abs(X).max(axis=1)
    return np.where(sizes > 0, sizes, 1.0)


def _size(rng: Draw) -> float:
    kind = rng.choice(["ordinary", "tiny", "huge"], p=[0.8, 0.1, 0.1])
    if kind == "ordinary":
        return 0.0
    return -rng.uniform(6, 150) if kind == "tiny" else rng.uniform(6, 100)


# --- starts --------------------------------------------------------------------------------------


def _depth(rng: Draw) -> float:
    kind = rng.choice(["two", "whole", "broken", "just above"], p=[0.4, 0.4, 0.1, 0.1])
    if kind == "two":
        return 2.0
    if kind == "whole":
        return float(rng.choice([3, 4, 5, 10, 30, 100], p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1]))
    return rng.uniform(2.1, 8.0) if kind == "broken" else 2.0 + 10.0 ** rng.uniform(-12, -1)


def _scale(rng: Draw) -> dict[str, float]:
    kind = rng.choice(["ordinary", "small", "any", "log"], p=[0.5, 0.25, 0.15, 0.1])
    if kind == "log":
        return {"log_scale": float(rng.choice([-10000.0, -rng.uniform(1, 10000), 5.0]))}
    lowest, highest = {"ordinary": (-3, 2), "small": (-20, 3), "any": (-300, 300)}[str(kind)]
    return {"scale": 10.0 ** rng.uniform(lowest, highest)}


def _uneven(rng: Draw, d: int, depth: float) -> Array:
    decades = rng.uniform(0, 1) if rng.random() < 0.6 else rng.uniform(1, 8)
    # a^D and a^(2-D) spread D times as far: what a double holds of them is all there is to ask.
    return 10.0 ** (rng.uniform(-1, 1, d) * decades * min(1.0, 6.0 / depth))


def _tied(rng: Draw, d: int) -> Start:
    depth = _depth(rng)
    weights = () if rng.random() < 0.6 else (_uneven(rng, d, depth),)
    return Start("tied", depth, **_scale(rng), weights=weights)


def _tied_weights(rng: Draw, d: int) -> Start:
    """Biased, one-sided or frozen: weights of ordinary size, some of them zero."""
    depth = _depth(rng)
    size = 10.0 ** (rng.uniform(-6, 1) / max(1.0, depth / 4))
    absent = rng.choice([0.0, 0.0, 0.2, 0.5])
    plus, minus = (size * _uneven(rng, d, depth) * (rng.random(d) >= absent) for _ in range(2))
    if rng.random() < 0.3:
        minus = plus * (1.0 + 10.0 ** rng.uniform(-12, 0) * rng.standard_normal(d))
        minus = np.abs(minus)
    if depth.is_integer() and depth % 2 == 0 and rng.random() < 0.3:
        plus = plus * rng.choice([-1.0, 1.0], d)
    return Start("tied_weights", depth, weights=_able_to_move(plus, minus))


def _untied(rng: Draw, d: int) -> Start:
    shape = rng.choice([0.0, rng.uniform(-1, 1), 1.0 - 10.0 ** rng.uniform(-10, -1)])
    return Start("untied", 2.0, **_scale(rng), shape=float(shape))


def _untied_weights(rng: Draw, d: int) -> Start:
    size = 10.0 ** rng.uniform(-6, 1)
    absent = rng.choice([0.0, 0.0, 0.3])
    parts = tuple(
        size * _uneven(rng, d, 2.0) * rng.choice([-1.0, 1.0], d) * (rng.random(d) >= absent)
        for _ in range(4)
    )
    if rng.random() < 0.3:  # |u| = |v|: one-sided
        u_plus, u_minus, _, _ = parts
        parts = (u_plus, 0.0 * u_minus, u_plus * rng.choice([-1.0, 1.0], d), 0.0 * u_minus)
    return Start("untied_weights", 2.0, weights=_able_to_move(*parts))


def _able_to_move(*parts: Array) -> tuple[Array, ...]:
    """Weights of which not all are zero: that is refused, which needs no judge."""
    if not any(part.any() for part in parts):
        parts[0][0] = 1.0
    return parts


STARTS: dict[str, tuple[float, Callable[[Draw, int], Start]]] = {
    "tied": (65, _tied),
    "tied weights": (17, _tied_weights),
    "untied": (9, _untied),
    "untied weights": (9, _untied_weights),
}


def _plain_tied(rng: Draw, d: int) -> Start:
    return Start("tied", _depth(rng), **_scale(rng))


# --- entry points --------------------------------------------------------------------------------

# Share, and which starts it takes, () for any: an estimator has no weights of its own.
ENTRIES: dict[str, tuple[float, tuple[Callable[[Draw, int], Start], ...]]] = {
    "limit": (50, ()),
    "sparse limit": (7, ()),
    "limit_path": (7, ()),
    "rich_limit": (9, ()),
    "basis_pursuit": (6, (_plain_tied,)),
    "min_norm": (4, (_plain_tied,)),
    "ImplicitBiasRegressor": (5, (_plain_tied, _untied)),
    "RichRegressor": (3, (_plain_tied,)),
    "MinNormRegressor": (2, (_plain_tied,)),
    "certify": (7, ()),
}


def _start_for(rng: Draw, entry: str, d: int) -> Start:
    choice = ENTRIES[entry][1]
    maker = choice[rng.integers(len(choice))] if choice else pick(rng, STARTS, named=False)
    return maker(rng, d)


def _options(rng: Draw, entry: str, X: Array) -> dict[str, Any]:
    d = X.shape[1]
    if entry == "limit_path":
        return {"log_scales": [float(v) for v in np.sort(rng.uniform(-30, 3, 3))[::-1]]}
    if entry in ("basis_pursuit", "min_norm"):
        uneven = rng.random() < 0.4
        return {"weights": 10.0 ** rng.uniform(-2, 2, d) if uneven else np.ones(d)}
    if entry.endswith("Regressor"):
        return {"fit_intercept": bool(rng.random() < 0.5)}
    if entry == "certify":
        return {"away": 10.0 ** rng.uniform(-5, 0), "direction": rng.standard_normal(d)}
    return {}

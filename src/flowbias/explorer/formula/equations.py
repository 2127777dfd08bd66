"""Equations typed in a line, `1, 2 = 1; 0, 1 = 0.5`, as X and y: read by hand, never run."""

from __future__ import annotations

import re

import numpy as np

from flowbias.problem import InputError, Regression

#: Predictors that a picture can show, and equations that fit into a line.
FEWEST, MOST, MOST_EQUATIONS = 2, 3, 5
LONGEST = 200

# ASCII only, and no underscores, nan or inf: float() would take them.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# Beyond this, squares leave the range in which flows can be followed.
_LARGEST = 1e6
_FIX = "Write for instance 1, 2 = 1; 0.5, -1 = 0"


def read_equations(text: str) -> Regression:
    """One row of X and one entry of y per equation; InputError says which is none."""
    if len(text) > LONGEST:
        raise InputError(f"equations: at most {LONGEST} characters, got {len(text)}. {_FIX}.")
    rows = [_equation(k + 1, part) for k, part in enumerate(text.split(";")) if part.strip()]
    if not 1 <= len(rows) <= MOST_EQUATIONS:
        raise InputError(f"equations: must be 1 to {MOST_EQUATIONS}, got {len(rows)}. {_FIX}.")
    width = len(rows[0][0])
    if not FEWEST <= width <= MOST:
        raise InputError(
            f"equations: must have {FEWEST} or {MOST} coefficients, got {width}. {_FIX}."
        )
    for k, (coefficients, _) in enumerate(rows):
        if len(coefficients) != width:
            raise InputError(
                f"equation {k + 1}: must have {width} coefficients like the first, got "
                f"{len(coefficients)}. {_FIX}."
            )
    return Regression(np.array([row for row, _ in rows]), np.array([y for _, y in rows]))


def _equation(number: int, text: str) -> tuple[list[float], float]:
    left, equals, right = text.partition("=")
    if not equals:
        raise InputError(f"equation {number}: has no `=`. {_FIX}.")
    coefficients = [_number(number, word) for word in re.split(r"[, \t]+", left.strip(" \t,"))]
    return coefficients, _number(number, right.strip(" \t"))


def _number(equation: int, word: str) -> float:
    value = float(word) if _NUMBER.fullmatch(word) else np.nan
    if not abs(value) <= _LARGEST:
        raise InputError(
            f"equation {equation}: must hold numbers up to {_LARGEST:g}, got {ascii(word)[:24]}. "
            f"{_FIX}."
        )
    return value

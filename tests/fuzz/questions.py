"""What a front door was asked, and the exact answer to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from flint import fmpq, fmpq_mat

from tests.fuzz import exact_data, norms, reference
from tests.fuzz.answers import Answer
from tests.fuzz.problems import Problem, Start
from tests.fuzz.reference import Reference

Data = tuple[fmpq_mat, list[fmpq]]

#: front doors to the limit of vanishing scales
RICH = ("rich_limit", "RichRegressor")


def data_of(problem: Problem, X: np.ndarray, y: np.ndarray) -> Data:
    """(X, y) as rational numbers, less their means where an intercept is fitted."""
    data = exact_data.rational_matrix(X), exact_data.rational_vector(y)
    return _centred(*data) if problem.options.get("fit_intercept") else data


def _centred(X: fmpq_mat, y: list[fmpq]) -> Data:
    n, d = X.nrows(), X.ncols()
    means = [sum((X[i, j] for i in range(n)), fmpq(0)) / n for j in range(d)]
    middle = sum(y, fmpq(0)) / n
    moved = fmpq_mat(n, d, [X[i, j] - means[j] for i in range(n) for j in range(d)])
    return moved, [value - middle for value in y]


def start_of(problem: Problem, answer: Answer) -> Start:
    """Where the network starts; on a path, at the answer's own scale."""
    if answer.log_scale is None:
        return problem.start
    return replace(problem.start, scale=None, log_scale=answer.log_scale)


def exact_answer(problem: Problem, answer: Answer, data: Data) -> Reference:
    """To the question that the front door stands for, on these data."""
    X, y = data
    if problem.entry == "min_norm":
        return norms.min_norm(X, y, problem.options["weights"])
    if problem.entry == "MinNormRegressor":
        return norms.min_norm(X, y, np.ones(X.ncols()))
    if problem.entry == "basis_pursuit":
        return norms.basis_pursuit(X, y, problem.options["weights"])
    if problem.entry in RICH:
        return reference.rich_limit(X, y, problem.start)
    return reference.limit(X, y, start_of(problem, answer))

"""Examples in the docstrings of matrix limits say what comes out; scales are read as numbers."""

import doctest

import numpy as np
import pytest

import flowbias as fb
from flowbias.limits import spectral
from flowbias.limits.lifted import diagonal_measurements

PROBLEM = fb.MatrixSensing([[[1.0, 0.0], [0.0, 0.5]]], [1.0])


@pytest.mark.parametrize("module", [spectral, diagonal_measurements])
def test_examples(module):
    names = ("MatrixCompletion", "MatrixSensing", "MatrixFactorization")
    known = {"fb": fb, "np": np, **{name: getattr(fb, name) for name in names}}
    ran = doctest.testmod(module, extraglobs=known)
    assert ran.attempted > 1
    assert ran.failed == 0


@pytest.mark.parametrize("scale", [2, np.int64(2), np.float32(2.0)])
def test_any_kind_of_number_is_a_scale(scale):
    expected = spectral.schatten_limit(PROBLEM, 2.0).M
    np.testing.assert_array_equal(spectral.schatten_limit(PROBLEM, scale).M, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spectral.schatten_limit(PROBLEM, True), "scale: must be one number, got True"),
        (lambda: spectral.schatten_limit(PROBLEM, 10**400), "scale: .* an integer of 1329 bits"),
        (lambda: spectral.schatten_limit(np.eye(2), 1.0), "matrix problem such as MatrixComplet"),
        (lambda: spectral.frobenius_norm(np.eye(2)), "matrix problem such as MatrixCompletion"),
        (lambda: spectral.frobenius_norm(PROBLEM, tol=-1.0), "tol: must be a positive number"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(fb.InputError, match=message):
        call()

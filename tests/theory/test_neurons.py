"""Claims on linear neurons: outside their hypotheses they refuse, and they are not idle inside."""

import re

import numpy as np
import pytest

from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.theory.neuron_extremes import (
    large_scale_is_kernel,
    shape_to_one,
    taylor_remainder,
    third_derivative_bound,
)
from flowbias.theory.neuron_geometry import (
    hessian_map_defect,
    neuron_metric,
    warp_at_zero,
    warp_is_positive_and_increasing,
)
from flowbias.theory.neurons import balanced_neurons_bias, neuron_bias, vanishing_start
from tests.theory.verdicts import why_nothing

X, Y = np.array([[1.0, 0.5, 0.0]]), np.array([1.0])
W = np.array([0.4, -0.3, 1.0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: neuron_bias(Neuron(0.1, W), X, Y), "model: must have delta >= 0.*sign_changes_o"),
        (
            lambda: balanced_neurons_bias(NeuronSum([1.0, 2.0], [W, W[::-1]]), X, Y),
            "model: must be strictly balanced",
        ),
        (lambda: taylor_remainder(Neuron(0.1, W), W), "model: must have delta >= 0"),
        (lambda: large_scale_is_kernel(Neuron(0.1, W), X, Y), "model: must have delta >= 0"),
        (lambda: shape_to_one(Neuron(0.1, X[0]), X, Y), r"model: must have \|a\| > \|\|P w\|\|"),
        (lambda: hessian_map_defect(neuron_metric(1.0), [1.0]), "v: must be a nonzero vector of"),
        (lambda: warp_at_zero(0.0, 1.0), "delta: must be > 0"),
        (lambda: warp_is_positive_and_increasing(1.0, 2.0, 1.0), "x: must satisfy 0 < x <= y"),
    ],
)
def test_hypotheses_are_checked(build, message):
    assert re.search(message, why_nothing(build))


def test_hessian_map_test_tells_hessians_from_others():
    """On the Hessian of a convex function that is not radial, and on its product with a weight."""

    def hessian(v):
        return np.diag(np.exp(v)) + np.ones((3, 3))

    v = np.array([0.3, -0.2, 0.7])
    assert hessian_map_defect(hessian, v) < 1e-8
    assert hessian_map_defect(lambda at: (1.0 + at[0] ** 2) * hessian(at), v) > 0.1


def test_third_derivatives_reach_a_good_part_of_their_bound():
    """At delta = 0 along v it is 3/8 x^(-3/2), a 21st of the bound: of the right order."""
    potential = Neuron.from_scale_shape(1.0, 0.0, W).potential
    h = 1e-4
    slope = (potential.curvatures(1.0 + h)[0] - potential.curvatures(1.0 - h)[0]) / (2 * h)
    assert abs(slope + 0.375) < 1e-6
    assert third_derivative_bound(potential, 1.0, 0.0) / abs(slope) < 25.0
    assert third_derivative_bound(potential, 1.0, 1.0) == np.inf
    assert third_derivative_bound(Neuron(0.1, W).potential, 1.0, 0.1) == np.inf


def test_vanishing_bound_is_attained():
    """One neuron with w outside the row space: D = a^2, and the bound is the distance itself."""
    across = np.array([0.0, 0.0, 1e-2])
    claim = vanishing_start(NeuronSum([0.3], [across]), X, Y)
    assert claim.holds
    assert claim.measured > (1 - 1e-9) * claim.predicted

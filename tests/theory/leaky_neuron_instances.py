"""Random leaky ReLU neurons, for the walk over all claims."""

import numpy as np

from flowbias import Neuron
from flowbias.theory import (
    leaky_neuron_conserved,
    leaky_neuron_converges,
    leaky_neuron_kkt,
    leaky_neuron_limit,
    leaky_neuron_signs,
)
from tests.theory.starts import Instances


def leaky(rng, *, delta=None, slope=None):
    """(model, X, y) with n < d; delta >= 0 unless it is given, slope from 0.1 to 2."""
    n = int(rng.integers(1, 6))
    d = n + int(rng.integers(1, 6))
    X, y = rng.standard_normal((n, d)), 2.0 * rng.standard_normal(n)
    w = rng.standard_normal(d) * np.exp(rng.uniform(-2.0, 0.7))
    delta = rng.choice([0.0, 0.1, 1.0, 4.0]) if delta is None else delta(w @ w)
    a = rng.choice([-1.0, 1.0]) * np.sqrt(delta + w @ w)
    return Neuron(a, w, rng.uniform(0.1, 2.0) if slope is None else slope), X, y


LEAKY_NEURON_CLAIMS = {
    "leaky_neuron_conserved": Instances(lambda rng: leaky_neuron_conserved(*leaky(rng)), 3),
    "leaky_neuron_converges": Instances(lambda rng: leaky_neuron_converges(*leaky(rng)), 3),
    "leaky_neuron_kkt": Instances(lambda rng: leaky_neuron_kkt(*leaky(rng)), 4),
    "leaky_neuron_limit": Instances(lambda rng: (leaky_neuron_limit(*leaky(rng)),), 4),
    "leaky_neuron_signs": Instances(lambda rng: (leaky_neuron_signs(*leaky(rng)),), 3),
}

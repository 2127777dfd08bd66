"""Three ways to multiply gradients of a parameter at several positions are one product."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.kernels import products, tangent_kernel
from tests.kernels.architectures import explicit_kernel, torch

ALL_PAIRS = products.read_reduction(None)


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 7),
    same=st.booleans(),
    step=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_three_ways_are_one(sizes, same, step, seed):
    samples, others, positions, more, inputs, units, outputs = sizes
    torch.manual_seed(seed)
    draw = {"dtype": torch.float64}
    v, g = (
        torch.randn(samples, positions, inputs, **draw),
        torch.randn(samples, positions, outputs, units, **draw),
    )
    v2, g2 = (
        (v, g)
        if same
        else (
            torch.randn(others, more, inputs, **draw),
            torch.randn(others, more, outputs, units, **draw),
        )
    )
    found = []
    for add in (
        lambda kernel: products._add_by_position(kernel, (v, v2), (g, g2), ALL_PAIRS, step, same),
        lambda kernel: products._add_by_sample(
            kernel, (v, v2), (g, g2), ALL_PAIRS, 8 * step, same, products._Rooms(2**20)
        ),
        lambda kernel: products._add_by_pair(
            kernel, (v, v2), (g, g2), step, same, products._Rooms(2**20)
        ),
    ):
        kernel = torch.zeros(len(v), len(v2), outputs, outputs, **draw)
        add(kernel)
        if same:
            products.mirror(kernel, ALL_PAIRS)
        found.append(kernel)
    # Sums of up to 125 terms in another order.
    gradients = torch.einsum("npi,npau->naiu", v, g).flatten(2)
    others_of = torch.einsum("npi,npau->naiu", v2, g2).flatten(2)
    expected = torch.einsum("naf,mbf->nmab", gradients, others_of)
    for kernel in found:
        assert_allclose(kernel, expected, atol=1e-13 * (1.0 + float(expected.abs().max())))


class Positions(torch.nn.Module):
    """Many inputs, few positions, several outputs: where pairs of samples are the cheapest way."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(90, 6), torch.nn.Linear(6, 8)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)).mean(1))


@pytest.mark.parametrize("max_memory", ["1GiB", "200kB"])
def test_pairs_of_samples_where_they_are_cheapest(max_memory, monkeypatch):
    torch.manual_seed(0)
    module = Positions().double()
    x, other = torch.randn(7, 4, 90).double(), torch.randn(3, 4, 90).double()
    chosen, by_pair = [], products._add_by_pair

    def counted(kernel, v, g, step, same, rooms):
        chosen.append(step)
        by_pair(kernel, v, g, step, same, rooms)

    monkeypatch.setattr(products, "_add_by_pair", counted)
    for second in (None, other):
        found = tangent_kernel(module, x, second, max_memory=max_memory)
        assert_allclose(found, explicit_kernel(module, x, second), rtol=1e-11, atol=1e-13)
    assert chosen

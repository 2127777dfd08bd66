"""Modules whose samples depend on one another in larger batches only: refused, never wrong."""

import contextlib

import pytest
from numpy.testing import assert_allclose

from flowbias.ground.arguments import InputError
from flowbias.kernels import TangentMap, tangent_kernel
from tests.kernels.architectures import explicit_kernel, torch

OTHER_COMPANY = r"module: .*another output alone than among others"


class Experts(torch.nn.Module):
    """Each sample goes to one of three experts, which have room for so many, and serve `by`."""

    def __init__(self, by):
        super().__init__()
        self.by = by
        self.router = torch.nn.Linear(6, 3)
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6))
            for _ in range(3)
        )
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x):
        weight, chosen = torch.softmax(self.router(x), 1).max(1)
        sent = torch.nn.functional.one_hot(chosen, 3)
        room = max(1, -int(-1.25 * len(x) // 3))
        queue = {"order": torch.arange(len(x)), "score": (-weight).argsort()}[self.by]
        places = torch.empty_like(sent).index_copy(0, queue, sent[queue].cumsum(0))
        served = sent * (places <= room) * weight[:, None]
        return self.head(x + sum(e(x) * served[:, i : i + 1] for i, e in enumerate(self.experts)))


class Above(torch.nn.Module):
    """A network in batches up to `most`, and in larger ones something else with the samples."""

    def __init__(self, most, mix):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.most, self.mix = most, mix

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return self.second(self.mix(hidden) if len(x) > self.most else hidden)


def without_second(h):
    return torch.cat([h[:1], 0.0 * h[1:2], h[2:]])


MIXING = {
    "drops its second row": without_second,
    "swaps its first two": lambda h: torch.cat([h[1:2], h[:1], h[2:]]),
    "turns its rows round": lambda h: h.flip(0),
    "scales its first half": lambda h: torch.cat([2.0 * h[: len(h) // 2], h[len(h) // 2 :]]),
    "centres": lambda h: h - h.mean(0),
}


@pytest.mark.parametrize("by", ["order", "score"])
def test_experts_with_room_for_so_many(by):
    """Refused or right, whichever samples are turned away."""
    turned_away = 0
    for seed in range(40):
        torch.manual_seed(seed)
        module, x = Experts(by).double(), torch.randn(12, 6, dtype=torch.float64)
        alone = torch.cat([module(sample[None]) for sample in x])
        turned_away += bool((module(x) - alone).abs().max() > 1e-12)
        expected = explicit_kernel(module, x)
        with contextlib.suppress(InputError):
            assert_allclose(tangent_kernel(module, x), expected, rtol=1e-10, atol=1e-12)
        found = tangent_kernel(module, x, one_by_one=True)
        assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert turned_away > 20


@pytest.mark.parametrize("most", [2, 4])
@pytest.mark.parametrize("name", MIXING)
def test_rows_that_are_mixed_in_larger_batches(name, most):
    """By every question, asked first."""
    torch.manual_seed(0)
    module, x = Above(most, MIXING[name]).double(), torch.randn(9, 4, dtype=torch.float64)
    direction = {key: torch.ones_like(value) for key, value in module.named_parameters()}
    for ask in (
        lambda tangent: tangent.kernel(),
        lambda tangent: tangent.kernel(reduce="trace"),
        lambda tangent: tangent.values(),
        lambda tangent: tangent.vjp(torch.ones(9, 2, dtype=torch.float64)),
        lambda tangent: tangent.jvp(direction),
    ):
        with pytest.raises(InputError, match=OTHER_COMPANY):
            ask(TangentMap(module, x))


def test_samples_are_held_to_it_wherever_the_parameters_are():
    """An expert that had room for all at the start may be crowded later."""
    torch.manual_seed(0)
    module, x = Experts("order").double(), torch.randn(12, 6, dtype=torch.float64)
    with torch.no_grad():
        # The coordinate that decides is one class each.
        x[:, 0], module.router.weight[:] = torch.arange(12) % 3 - 1.0, 0.0
        module.router.weight[:, 0] = torch.tensor([-9.0, 0.0, 9.0])
        module.router.bias[:] = torch.tensor([0.0, 4.0, 0.0])
    tangent = TangentMap(module, x)
    assert_allclose(tangent.kernel(), explicit_kernel(module, x), rtol=1e-10, atol=1e-12)
    module.router.bias.data[1] += 20.0
    with pytest.raises(InputError, match=OTHER_COMPANY):
        tangent.kernel()


def test_outputs_that_cancel_are_no_misfit():
    """Rounding of what cancels is large beside the outputs, and small beside what they are of."""

    class Unbiased(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.now, self.start = (torch.nn.Linear(300, 2) for _ in range(2))
            self.start.load_state_dict(self.now.state_dict())

        def forward(self, x):
            # Summed in two orders, so that rounding is all that is left.
            start = self.start.weight
            return self.now(x) - (x.flip(1) @ start.flip(1).T + self.start.bias)

    torch.manual_seed(0)
    module, x = Unbiased(), torch.randn(33, 300)
    assert_allclose(tangent_kernel(module, x), explicit_kernel(module, x), rtol=1e-4, atol=1e-2)

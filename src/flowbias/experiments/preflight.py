"""What figures need beyond the package: whether it is at hand, and the command that gets it.

Told once, before a run begins, rather than forty times by tasks that fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from flowbias.datasets.image_fetch import shelf_of
from flowbias.datasets.image_sets import CIFAR10, MNIST, ImageSet


@dataclass(frozen=True)
class Package:
    """A package that an extra of this one brings."""

    name: str
    extra: str

    def there(self) -> bool:
        return find_spec(self.name) is not None


@dataclass(frozen=True)
class Pictures:
    """A data set of pictures in the data folder."""

    images: ImageSet

    def there(self) -> bool:
        shelf = shelf_of(self.images)
        return all(shelf.find(file) is not None for file in self.images.files)


NEEDS: dict[str, Package | Pictures] = {
    "torch": Package("torch", "nets"),
    "cvxpy": Package("cvxpy", "sdp"),
    "MNIST": Pictures(MNIST),
    "CIFAR-10": Pictures(CIFAR10),
}


def missing(needs: Iterable[str]) -> tuple[str, ...]:
    """What of these is not at hand, each once."""
    return tuple(need for need in dict.fromkeys(needs) if not NEEDS[need].there())


def command_for(needs: Iterable[str]) -> str:
    """One line for a shell that gets all of them."""
    chosen = [NEEDS[need] for need in dict.fromkeys(needs)]
    extras = dict.fromkeys(need.extra for need in chosen if isinstance(need, Package))
    pictures = [need.images.name for need in chosen if isinstance(need, Pictures)]
    parts = [f"pip install 'flowbias[{','.join(extras)}]'"] if extras else []
    parts += [f"flowbias data fetch {' '.join(pictures)}"] if pictures else []
    return " && ".join(parts)

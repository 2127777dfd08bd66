"""Problems to try things on. Stands alone: nothing here knows about models or solvers."""

from flowbias.datasets.images import Images, cifar10, fashion_mnist, mnist
from flowbias.datasets.planted import (
    CircleTeacher,
    LowRankCompletion,
    SparseRegression,
    circle_teacher,
    low_rank_completion,
    sparse_regression,
)

__all__ = [
    "CircleTeacher",
    "Images",
    "LowRankCompletion",
    "SparseRegression",
    "cifar10",
    "circle_teacher",
    "fashion_mnist",
    "low_rank_completion",
    "mnist",
    "sparse_regression",
]

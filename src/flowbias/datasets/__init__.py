"""Problems to try things on. Stands alone: nothing here knows about models or solvers."""

from flowbias.datasets.circle_teacher import CircleTeacher, circle_teacher
from flowbias.datasets.images import Images, cifar10, fashion_mnist, mnist
from flowbias.datasets.low_rank import LowRankCompletion, low_rank_completion
from flowbias.datasets.sparse_regression import SparseRegression, sparse_regression

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

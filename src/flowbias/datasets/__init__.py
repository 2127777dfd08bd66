"""Problems to try things on. Stands alone: nothing here knows about models or solvers."""

from flowbias.datasets.sparse_regression import SparseRegression, sparse_regression

__all__ = ["SparseRegression", "sparse_regression"]

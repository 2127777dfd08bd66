"""One BLAS thread for small products.

A flow or a solve takes many products of a few microseconds each. Threads that wait for each other
at every one of them cost more than they save, and on a busy machine ten times as much.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from flowbias._typing import FloatArray

# Multiplications in one Jacobian X diag(.) X^T from which a second thread pays.
_WORTH_THREADS = 5e8


def threads_for(rows: FloatArray) -> AbstractContextManager[Any]:
    """A context with as many BLAS threads as products with these rows are worth."""
    n, d = rows.shape
    if float(n) * n * d >= _WORTH_THREADS:
        return nullcontext()
    return one_thread()


def one_thread() -> AbstractContextManager[Any]:
    """A context with one BLAS thread."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> ThreadpoolController:
    # Looking for the loaded libraries takes milliseconds, so it is done once.
    return ThreadpoolController()

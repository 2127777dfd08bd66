"""Whoever holds the threads, and in whatever order: in the end the process has those it had."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import flowbias as fb
from flowbias.ground.threads import one_thread, one_thread_in_every_pool
from flowbias.limits.dual_newton import DualNewton

# Seconds after which a test that waits for its other thread has failed; none is waited for long.
PATIENCE = 60.0


def blas_pools():
    return [pool for pool in threadpool_info() if pool["user_api"] == "blas"]


def with_two_threads():
    """Where those pools live that have them: one that was loaded with one thread keeps it."""
    return {pool["filepath"] for pool in blas_pools() if pool["num_threads"] == 2}


ABLE = set()


def blas_threads():
    return {pool["num_threads"] for pool in blas_pools() if pool["filepath"] in ABLE}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        ABLE.update(with_two_threads())
        if not ABLE:
            pytest.skip("every BLAS of this process was loaded with one thread")
        assert blas_threads() == {2}
        yield


@pytest.mark.parametrize("hold", [one_thread, one_thread_in_every_pool])
def test_the_last_one_out_restores_what_the_first_one_found(hold):
    first, second = hold(), hold()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == {2}


def test_an_error_inside_lets_go():
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert blas_threads() == {2}


def test_two_limits_that_end_in_the_order_they_began(monkeypatch):
    """The first begins, the second begins, the first ends, the second ends."""
    inside = {name: threading.Event() for name in ("first", "second")}
    first_is_done, seen = threading.Event(), []
    run = DualNewton.solve

    def run_in_turn(self, **settings):
        name = threading.current_thread().name
        if not inside[name].is_set():  # a solve may run it more than once
            inside[name].set()
            other = inside["second"] if name == "first" else first_is_done
            assert other.wait(PATIENCE)
            seen.append(blas_threads())
        return run(self, **settings)

    monkeypatch.setattr(DualNewton, "solve", run_in_turn)
    X, y, _ = fb.datasets.sparse_regression(n=20, d=200, rng=0)

    def solve():
        return fb.limit(fb.DiagonalNet(depth=2, scale=1.0), X, y)

    with (
        ThreadPoolExecutor(1, initializer=_named("first")) as one,
        ThreadPoolExecutor(1, initializer=_named("second")) as two,
    ):
        first = one.submit(solve)
        assert inside["first"].wait(PATIENCE)
        second = two.submit(solve)
        assert first.result(PATIENCE).status.ok
        first_is_done.set()
        assert second.result(PATIENCE).status.ok
    assert seen == [{1}, {1}]
    assert blas_threads() == {2}


def _named(name):
    def rename():
        threading.current_thread().name = name

    return rename


def test_torch_has_its_threads_again_after_tasks_that_overlap():
    torch = pytest.importorskip("torch")
    from flowbias.experiments._base import torch_device

    before = torch.get_num_threads()
    begun, ended = threading.Event(), threading.Event()

    def second_task():
        with torch_device():
            begun.set()
            assert ended.wait(PATIENCE)
        return torch.get_num_threads()

    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(1) as pool:
            with torch_device():
                left = pool.submit(second_task)
                assert begun.wait(PATIENCE)
                assert torch.get_num_threads() == 1
            ended.set()
            assert left.result(PATIENCE) == 2
            assert torch.get_num_threads() == 2
            # What a thread finds that is new to torch.
            with ThreadPoolExecutor(1) as fresh:
                assert fresh.submit(torch.get_num_threads).result(PATIENCE) == 2
    finally:
        torch.set_num_threads(before)

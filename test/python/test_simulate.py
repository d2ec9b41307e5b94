"""The simulated ranks, the ground of the other tests."""

import sys

import pytest
import torch
import torch.distributed as dist
from autosp.simulate import RanksFailed, run_ranks


def add_up(rank, x):
    total = torch.tensor([x + rank])
    dist.all_reduce(total)
    return rank, dist.get_world_size(), int(total)


def test_results_come_in_rank_order_and_nothing_stays():
    hook = sys.excepthook
    assert run_ranks(3, add_up, 10) == [(0, 3, 33), (1, 3, 33), (2, 3, 33)]
    assert not dist.is_initialized()
    assert sys.excepthook is hook
    assert torch.autograd.is_multithreading_enabled()


def test_failures_stop_the_ranks_that_wait_for_them():
    def fail(rank):
        if rank > 0:
            raise ValueError(f"no good {rank}")
        dist.barrier()

    with pytest.raises(RanksFailed, match=r"rank 1 raised:(?s:.*)ValueError: no good 1") as failed:
        run_ranks(3, fail)
    assert {rank: str(e) for rank, e in failed.value.errors.items() if rank} == {
        1: "no good 1",
        2: "no good 2",
    }
    assert 0 not in failed.value.errors
    assert run_ranks(2, add_up, 0) == [(0, 2, 1), (1, 2, 1)]


def test_ranks_that_hang_are_reported_with_where_they_are():
    def wait_forever(rank):
        if rank == 0:
            dist.barrier()

    with pytest.raises(RanksFailed, match=r"not done after 0\.5 s(?s:.*)in wait_forever") as failed:
        run_ranks(2, wait_forever, timeout_seconds=0.5)
    assert list(failed.value.errors) == [0]


def test_simulations_do_not_nest():
    with pytest.raises(RanksFailed, match="can't simulate ranks"):
        run_ranks(2, lambda rank: run_ranks(2, add_up, 0))

"""The pool of gloo processes, the ground of the other gloo tests."""

import os
import time

import gloo_pool
import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.gloo


def process_and_sum(rank, x):
    total = torch.full((2,), x + rank)
    dist.all_reduce(total)
    return os.getpid(), total


def fail_on_one(rank, how):
    if rank == 1:
        if how == "raise":
            raise ValueError("no good")
        os._exit(3)
    dist.barrier()


def sleep(rank):
    time.sleep(60 if rank == 1 else 0)


def test_processes_are_kept_and_replaced_after_a_failure():
    def pids():
        results = gloo_pool.run(2, process_and_sum, 5)
        assert all(torch.equal(total, torch.tensor([11, 11])) for _, total in results)
        return {pid for pid, _ in results}

    first = pids()
    assert len(first) == 2
    assert pids() == first
    for how, text in [("raise", "ValueError: no good"), ("exit", "exit code 3")]:
        with pytest.raises(gloo_pool.CaseFailed) as failed:
            gloo_pool.run(2, fail_on_one, how)
        assert text in failed.value.texts[1]
    with pytest.raises(gloo_pool.CaseFailed, match="did not end in time") as failed:
        gloo_pool.run(2, sleep, timeout_seconds=10)
    assert list(failed.value.texts) == [1]
    assert not pids() & first

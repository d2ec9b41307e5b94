"""Ranks agree or stop. Threads share a HashStore, the processes of the pool a TCPStore."""

import statistics
import time

import gloo_pool
import pytest
import torch.distributed as dist
from autosp.agreement import Agreement
from autosp.errors import RanksDisagree
from autosp.simulate import run_ranks
from torch.testing._internal.distributed.fake_pg import FakeStore


def outcome(call, *args):
    """The error's text, or None."""
    try:
        call(*args)
    except RanksDisagree as error:
        return str(error)
    return None


both = pytest.mark.parametrize(
    "run",
    [run_ranks, pytest.param(gloo_pool.run, marks=pytest.mark.gloo)],
    ids=["threads", "gloo"],
)


def new_agreement(timeout_seconds=60):
    return Agreement(dist.group.WORLD, timeout_seconds)


# ---- In step: agreement, and disagreement that the ranks recover from ----


def differing_lengths(rank):
    agreement = new_agreement()
    first = outcome(agreement.agree, "run", {"mode": "train", "shape": f"[1, {8 + rank // 2}]"})
    return first, outcome(agreement.agree, "run", {"mode": "train", "shape": "[1, 8]"})


@both
def test_disagreement_names_the_first_difference_and_leaves_the_ranks_in_step(run):
    for first, second in run(4, differing_lengths):
        assert first == (
            "The ranks disagree in call 1: the shape differs.\n"
            "  ranks 0, 1: [1, 8]\n"
            "  ranks 2, 3: [1, 9]"
        )
        assert second is None


def several_disagreements(rank):
    agreement = new_agreement()
    long = "same " * 1000
    return [
        outcome(agreement.agree, "compile" if rank else "run", {"a": str(rank)}),
        outcome(agreement.agree, "run", {"a": "1"} if rank else {"a": "1", "b": "2"}),
        outcome(agreement.agree, "run", {"a": long + str(rank) + long, "b": str(rank)}),
        outcome(agreement.agree, "run", {"a": "1", "b": "2"} if rank else {"b": "2", "a": "1"}),
    ]


def test_what_disagreements_look_like():
    kind, absent, long, order = run_ranks(2, several_disagreements)[1]
    assert "the kind of call differs.\n  rank 0: run\n  rank 1: compile" in kind
    assert "the b differs.\n  rank 0: 2\n  rank 1: (absent)" in absent
    assert "the a differs" in long
    assert "same 0same" in long
    assert "same 1same" in long
    assert len(long) < 1200
    assert order is None


def failing_rank(rank):
    agreement = new_agreement()
    if rank == 1:
        failed = agreement.post_failure("no rule for operator frobnicate")
    else:
        failed = outcome(agreement.agree, "compile", {"plan": "x"})
    return failed, outcome(agreement.agree, "compile", {"plan": "x"})


@both
def test_failure_of_one_rank_reaches_the_others(run):
    results = run(4, failing_rank)
    assert [failed for failed, _ in results] == [
        None
        if rank == 1
        else "The ranks disagree in call 1: rank 1 failed: no rule for operator frobnicate"
        for rank in range(4)
    ]
    assert all(after is None for _, after in results)


def failures_ahead(rank):
    """Rank 1 fails again and again before rank 0 looks."""
    agreement = new_agreement()
    if rank == 1:
        for i in range(4):
            agreement.post_failure(f"failure {i}")
        return outcome(agreement.agree, "run", {})
    time.sleep(0.5)
    return [outcome(agreement.agree, "run", {}) for _ in range(5)]


def test_posts_stay_until_the_others_have_read_them():
    seen, last = run_ranks(2, failures_ahead)
    assert [text.split("failed: ")[1] for text in seen[:4]] == [f"failure {i}" for i in range(4)]
    assert seen[4] is None
    assert last is None


# ---- Out of step: a rank that does not come ----


def absent_rank(rank):
    agreement = new_agreement(timeout_seconds=1)
    if rank == 3:
        return None
    first = outcome(agreement.agree, "run", {})
    start = time.monotonic()
    again = outcome(agreement.agree, "run", {})
    assert time.monotonic() - start < 0.5
    agreement.post_failure("ignored")
    return first, again


@both
def test_absent_rank_is_named_after_the_timeout(run):
    *results, _ = run(4, absent_rank)
    for first, again in results:
        assert first.startswith("Rank 3 made no call number 1 within 1 s, where rank ")
        assert "is in 'run'" in first
        assert again == first
    assert results[0] == results[1]


def late_rank(rank):
    agreement = new_agreement(timeout_seconds=1)
    time.sleep(3 if rank == 0 else 0)
    return [outcome(agreement.agree, "run", {}) for _ in range(2)]


@both
def test_late_rank_raises_what_the_others_raised(run):
    results = run(4, late_rank)
    assert results[0][0].startswith("Rank 0 made no call number 1")
    assert results == [[results[0][0]] * 2] * 4


def settled_just_before_the_timeout(rank):
    """Rank 1 has seen all posts when rank 0, whose wait has failed, settles the call."""
    agreement = new_agreement()
    if rank == 0:
        agreement._store = WaitFails(agreement._store)
    return outcome(agreement.agree, "run", {})


class WaitFails:
    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def wait(self, keys, timeout):
        self._store.wait([*keys, "1/verdict"], timeout)
        raise RuntimeError("timed out at the last moment")


def test_a_call_that_was_complete_for_one_rank_is_complete_for_all():
    assert run_ranks(2, settled_just_before_the_timeout) == [None, None]


# ---- Several agreements, stores, groups ----


def two_models(rank):
    world = dist.group.WORLD
    half = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    first, second, third = (Agreement(group, 60) for group in (world, world, half))
    texts = []
    for call in range(20):
        texts.append(outcome(first.agree, "run", {"call": f"first {call}"}))
        texts.append(outcome(third.agree, "run", {"call": f"third {call} {rank // 2}"}))
        if call % 2:
            texts.append(outcome(second.agree, "run", {"call": f"second {call}"}))
    return texts, outcome(third.agree, "run", {"call": str(rank)})


@both
def test_agreements_of_models_and_groups_do_not_meet(run):
    for rank, (texts, last) in enumerate(run(4, two_models)):
        assert set(texts) == {None}
        first = rank // 2 * 2
        assert last.splitlines()[1:] == [f"  rank 0: {first}", f"  rank 1: {first + 1}"]


class Posts:
    """The keys in a store, as far as one rank writes them."""

    def __init__(self, store):
        self._store, self.kept = store, set()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def set(self, key, value):
        self.kept.add(key)
        self._store.set(key, value)

    def delete_key(self, key):
        assert self._store.delete_key(key)
        self.kept.discard(key)


def many_calls(rank):
    agreement = new_agreement()
    agreement._store = store = Posts(agreement._store)
    for call in range(10):
        agreement.agree("run", {"call": str(call)})
    # Rank 0 removes verdicts, perhaps after the others have gone on.
    return store.kept, rank == 0 and store.check(["8/verdict"])


def test_old_posts_are_removed():
    results = run_ranks(3, many_calls)
    assert [kept for kept, _ in results] == [{f"9/{r}", f"10/{r}"} for r in range(3)]
    assert not any(verdict for _, verdict in results)


class Gone:
    def set(self, key, value):
        raise dist.DistNetworkError("connection reset")


def store_gone(rank):
    agreement = new_agreement()
    agreement._store = Gone()
    return [outcome(agreement.agree, "run", {}) for _ in range(2)]


def test_a_store_that_is_gone_is_an_error_of_its_own():
    for first, again in run_ranks(2, store_gone):
        assert "The store of the process group doesn't answer" in first
        assert "connection reset" in first
        assert again == first


def test_nothing_is_exchanged_where_there_is_nobody():
    assert run_ranks(1, lambda rank: new_agreement(0).agree("run", {}, "a")) == [["a"]]
    assert run_ranks(1, lambda rank: outcome(new_agreement(0).agree, "run", {"a": "1"})) == [None]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    try:
        agreement = new_agreement(timeout_seconds=0)
        agreement.agree("run", {"a": "1"})
        agreement.post_failure("nobody hears it")
    finally:
        dist.destroy_process_group()


def seconds_per_call(rank, calls):
    agreement = new_agreement()
    details = {"inputs": "int64[1, 4096] " * 4, "mode": "train", "plan": "0123456789abcdef" * 2}
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        agreement.agree("run", details)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@pytest.mark.gloo
def test_a_call_is_cheap():
    """About 0.2 ms on an idle machine; the bound only catches waits that poll or time out."""
    assert max(gloo_pool.run(2, seconds_per_call, 300)) < 0.05


def over_a_file(rank, path):
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
    agreement = new_agreement(timeout_seconds=2)
    results = [outcome(agreement.agree, "run", {"rank": str(r)}) for r in (0, 0, rank)]
    return results if rank else [*results, outcome(agreement.agree, "run", {})]


@pytest.mark.gloo
def test_file_store(tmp_path):
    results = gloo_pool.run(2, over_a_file, str(tmp_path / "store"))
    gloo_pool.close()  # their world is no longer the pool's
    for result in results:
        assert result[:2] == [None, None]
        assert "the rank differs" in result[2]
    assert "Rank 1 made no call number 4" in results[0][3]

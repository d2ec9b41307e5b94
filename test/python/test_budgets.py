"""Plans for the memory at hand, for a number of bytes and for a share of the time."""

import re
import sys
import threading

import autosp
import gloo_pool
import programs
import pytest
import torch
from autosp import _engine, checkpointing, machine
from autosp.simulate import RanksFailed, run_ranks
from causal import Model, on_ranks, tokens
from parity import check, check_simulated, take_step
from programs import PROGRAMS
from test_agreement import new_agreement, outcome
from watch_splits import watch_splits

pytestmark = pytest.mark.slow


@pytest.fixture
def splits():
    with watch_splits() as seen:
        yield seen


def make():
    return programs.lm(layers=3).make()


def check_lengths(checkpointing, lengths=(16,), ranks=2, **options):
    """One step of every length on every rank is one device's."""
    options = {"backend": "aot_eager", "device": "h100"} | options

    def case(rank, model):
        compiled = autosp.compile(model, checkpointing=checkpointing, **options)
        return [take_step(model, compiled, programs.lm(n).inputs()) for n in lengths]

    torch._dynamo.reset()
    model = make()
    results = on_ranks(ranks, case, model)
    for i, length in enumerate(lengths):
        want = take_step(model, model, programs.lm(length).inputs())
        check([steps[i] for steps in results], want)


@pytest.mark.parametrize("overhead", [0, 0.05, 0.3, 10])
@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_overheads(ranks, overhead):
    program = PROGRAMS["modern"]
    options = {"checkpointing": {"overhead": overhead}, "device": "h100", "backend": "aot_eager"}
    check_simulated(program.make, program.inputs(), ranks, program.tolerance, **options)


def test_more_time_is_less_memory(splits):
    for overhead in (0, 10):
        check_lengths({"overhead": overhead}, ranks=1)
    assert len(splits[1].kept) < len(splits[0].kept)
    check_lengths("full", ranks=1)
    assert splits[1].actions == splits[2].actions


# ---- Bytes ----


def least_bytes():
    """What any plan needs, by the error for a budget of nothing."""
    with pytest.raises(RanksFailed) as failed:
        check_lengths({"memory_bytes": 0})
    assert all(isinstance(error, autosp.Unsupported) for error in failed.value.errors.values())
    [text] = {str(error) for error in failed.value.errors.values()}
    return int(
        re.search(r"the least that any plan needs, (\d+) bytes in the .*programs.py", text)[1]
    )


def test_a_budget_from_the_least_on(splits):
    least = least_bytes()
    splits.clear()
    for budget in (least, 1 << 30):
        check_lengths({"memory_bytes": budget})
    tight, loose = splits[0], splits[2]
    assert len(tight.kept) < len(loose.kept)
    with pytest.raises(RanksFailed, match=f"memory_bytes={least - 1} is below the least"):
        check_lengths({"memory_bytes": least - 1})


def rank_here():
    """Of the simulated rank whose thread this is."""
    return int(threading.current_thread().name.removeprefix("rank "))


@pytest.fixture
def memories(monkeypatch):
    """What the ranks have at hand, by rank; no tensor of theirs counts."""
    found = {}

    def free_bytes(device):
        return found[rank_here()]

    monkeypatch.setattr(machine, "_free_bytes", free_bytes)
    monkeypatch.setattr(machine, "_OPTIMIZER_BYTES", 0)
    return found


def gradient_bytes():
    return sum(p.nbytes for p in make().parameters())


def test_ranks_with_different_memory_make_the_same_plan(splits, memories):
    least = least_bytes()
    splits.clear()
    memories.update({0: 1 << 30, 1: gradient_bytes() + least + least // 7})
    check_lengths("auto")
    check_lengths({"memory_bytes": least})
    memories.update({0: 1 << 30, 1: 1 << 30})
    check_lengths("auto")
    first, second, as_bytes, _, loose, _ = splits
    assert first.actions == second.actions == as_bytes.actions
    assert loose.actions != first.actions


def test_little_memory_is_used_as_well_as_can_be(splits, memories):
    memories[0] = 1
    check_lengths("auto", ranks=1)
    memories[0] = None  # unknown
    check_lengths("auto", ranks=1)
    check_lengths("sac", ranks=1)
    assert len(splits[0].kept) < len(splits[1].kept)
    assert splits[1].actions == splits[2].actions


def test_gradients_and_optimizer_states_to_come_are_not_at_hand(monkeypatch):
    monkeypatch.setattr(machine, "_free_bytes", lambda device: 10000)
    trained = torch.nn.Parameter(torch.ones(100))
    frozen = torch.nn.Parameter(torch.ones(100), requires_grad=False)
    tensors = [trained, frozen, torch.ones(5)]
    assert machine.memory_at_hand(torch.device("cpu"), tensors) == 10000 - 100 * (4 + 8)
    trained.grad = torch.ones(100)
    assert machine.memory_at_hand(torch.device("cpu"), tensors) == 10000 - 100 * 8
    monkeypatch.setattr(machine, "_free_bytes", lambda device: 500)
    assert machine.memory_at_hand(torch.device("cpu"), tensors) == 1


def test_memory_of_this_machine(monkeypatch):
    free = machine.memory_at_hand(torch.device("cpu"), [])
    assert 1 << 20 < free < 1 << 50
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert machine.memory_at_hand(torch.device("cpu"), []) == pytest.approx(free / 4, rel=0.3)
    assert machine.memory_at_hand(torch.device("meta"), []) == 0


@pytest.mark.parametrize(
    ("nbytes", "rounded"), [(0, 0), (7, 7), (15, 15), (17, 16), (1000, 960), (1 << 40, 1 << 40)]
)
def test_memory_is_rounded_down(nbytes, rounded):
    assert machine.rounded_down(nbytes) == rounded


# ---- Ranges of lengths ----


def test_tight_memory_replans_sooner(splits):
    lengths = [8, 20, 22, 12, 24, 30]
    check_lengths({"memory_bytes": 1 << 30}, lengths, ranks=1)
    assert len(splits) == 2  # the first length is static; the rest is at most twice the second
    splits.clear()
    check_lengths({"memory_bytes": 400000}, lengths, ranks=1)
    assert len(splits) == 4  # 20 for up to 20, 22 and 24 for up to 24, 30 for up to 32


def test_lengths_may_grow_and_grow(splits, memories):
    memories[0] = 1
    model = Model()
    lengths = [8 * 4**n // 3**n for n in range(12)]

    def case(rank, model):
        compiled = autosp.compile(model, backend="aot_eager")
        return [compiled(ids := tokens(n), ids)[0].item() for n in lengths]

    want = [model(ids := tokens(n), ids)[0].item() for n in lengths]
    assert on_ranks(1, case, model) == [pytest.approx(want)]
    assert len(splits) == len(lengths) > torch._dynamo.config.recompile_limit


@pytest.mark.parametrize(
    ("length", "rounded"), [(1, 1), (7, 7), (9, 10), (10, 10), (11, 12), (65537, 81920)]
)
def test_lengths_are_rounded_up(length, rounded):
    assert checkpointing.rounded_up(length) == rounded


def test_a_range_that_the_user_states_is_not_narrowed(splits):
    model = Model()
    compiled = torch.compile(
        model,
        backend=checkpointing.Recomputation("aot_eager", checkpointing.choose("sac", "", "cpu")),
    )
    for length in (8, 100):
        ids = tokens(length)
        torch._dynamo.mark_dynamic(ids, 1, min=4, max=1000)
        compiled(ids)
    assert len(splits) == 1


def test_cpus_have_nowhere_to_move_values_to(splits):
    with pytest.raises(RanksFailed) as failed:
        check_lengths("sac", offload="all")
    assert sorted(failed.value.errors) == [0, 1]
    for error in failed.value.errors.values():
        assert isinstance(error, autosp.AutoSPError) and "are on the CPU" in str(error)
    check_lengths({"overhead": 0.1}, ranks=1, offload="auto")
    assert 3 not in splits[-1].actions.values()


def test_unknown_devices_are_measured(monkeypatch, splits):
    """By all ranks, when the first one's is unknown."""
    devices = []

    def calibrate(group, device):
        devices.append(device)
        return _engine.find_device("a100")

    monkeypatch.setattr(sys.modules["autosp.calibrate"], "calibrate", calibrate)
    monkeypatch.setattr(machine, "cost_device", lambda _: "cpu" if rank_here() else "")
    check_lengths({"overhead": 0.1}, device=None)
    assert devices == [torch.device("cpu")] * 2
    check_lengths({"overhead": 0.1}, device="a100")
    assert len(devices) == 2
    assert splits[0].actions == splits[1].actions == splits[2].actions
    monkeypatch.undo()
    assert machine.cost_device(torch.device("cpu")) == "cpu"
    assert machine.cost_device(torch.device("meta")) == ""


# ---- What the ranks tell each other ----


def sharing(rank):
    agreement = new_agreement()
    shared = agreement.agree("memory", {}, f"{rank}0 bytes")
    mixed = outcome(
        *((agreement.agree, "run", {}) if rank else (agreement.agree, "memory", {}, "1"))
    )
    if rank:
        agreement.post_failure("no memory")
        failed = None
    else:
        failed = outcome(agreement.agree, "memory", {}, "1")
    return shared, mixed, failed, agreement.agree("memory", {}, "same")


@pytest.mark.parametrize("run", [run_ranks, pytest.param(gloo_pool.run, marks=pytest.mark.gloo)])
def test_sharing_texts_that_may_differ(run):
    for rank, (shared, mixed, failed, again) in enumerate(run(2, sharing)):
        assert shared == ["00 bytes", "10 bytes"]
        assert "call 2: the kind of call differs.\n  rank 0: memory\n  rank 1: run" in mixed
        assert rank or failed == "The ranks disagree in call 3: rank 1 failed: no memory"
        assert again == ["same", "same"]


@pytest.mark.parametrize("mine", [["sac", "full"], [{"overhead": 0.1}, {"overhead": 0.2}]])
def test_ranks_with_different_options_disagree(mine):
    def case(rank, model):
        compiled = autosp.compile(model, backend="aot_eager", checkpointing=mine[rank])
        return outcome(compiled, tokens())

    for text in on_ranks(2, case, Model()):
        assert "the checkpointing differs.\n  rank 0: " in text

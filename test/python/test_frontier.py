"""What memory costs in time, and how long a sequence fits."""

import sys

import autosp
import pytest
import torch
from autosp._engine import longest_length
from autosp.capture import capture, capture_lengths
from causal import Model, tokens
from measure_memory import as_inductor_splits, fake_llama, fake_ranks, kept_bytes
from torch._functorch.partitioners import min_cut_rematerialization_partition

pytestmark = pytest.mark.slow

LENGTH, RANKS = 512, 4


def inputs(length=LENGTH):
    return (tokens(length), tokens(length))


@pytest.fixture(scope="module")
def found():
    return autosp.frontier(Model(), inputs(), sp=RANKS, memory_bytes=10**6)


def test_the_curve_is_a_trade(found):
    peaks, times = ([getattr(p, n) for p in found.points] for n in ("peak_bytes", "step_ns"))
    assert len(found.points) > 1
    assert peaks == sorted(set(peaks))
    assert times == sorted(set(times), reverse=True)


def test_named_points(found):
    named = found.named
    assert list(named) == ["stock", "full", "sac", "sac+exchanges"]
    assert named["full"].kept_bytes < named["sac"].kept_bytes < named["sac+exchanges"].kept_bytes
    assert named["full"].recompute_ns > named["sac"].recompute_ns > 0
    heads = LENGTH // RANKS * 2 * 16 * 4  # of an attention's result, all of them on one rank
    statistic = LENGTH // RANKS * 2 * 8 * 4
    assert named["sac"].kept_bytes - named["full"].kept_bytes == heads + statistic


def test_the_chosen_point_is_the_fastest_within_the_budget(found):
    assert found.chosen.peak_bytes <= 10**6
    within = [point for point in found.points if point.peak_bytes <= 10**6]
    assert found.chosen.step_ns <= min(point.step_ns for point in within)


def test_text_and_local_length(found, capsys):
    assert found.local_length == LENGTH // RANKS
    lines = str(found).splitlines()
    assert f"{RANKS} ranks (h100, {LENGTH // RANKS} positions on each)" in lines[0]
    for name in ("stock", "full", "sac", "sac+exchanges", "within 976.6 KiB"):
        assert sum(line.startswith(f"  {name}  ") for line in lines) == 1
    autosp.frontier(Model(), inputs(), sp=RANKS)
    assert "stock" in capsys.readouterr().out


@pytest.mark.parametrize("suffix, begin", [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_pictures(found, suffix, begin, tmp_path):
    path = tmp_path / f"curve.{suffix}"
    (axes,) = found.plot(path).axes
    assert path.read_bytes().startswith(begin)
    assert {text.get_text() for text in axes.texts} == {*found.named, found.chosen.name}
    line = axes.lines[0].get_xydata()
    assert line[0].tolist() == [found.points[0].peak_bytes / 2**30, found.points[0].step_ns / 1e6]


def test_a_picture_without_matplotlib(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(autosp.AutoSPError, match=r"pip install autosp\[plot\]"):
        found.plot("curve.png")


@pytest.mark.parametrize(
    "options, pattern",
    [
        ({"device": "abacus"}, "abacus.*h100"),
        ({"memory_bytes": 10}, "10"),
        ({"sp": 0}, "positive integer"),
    ],
)
def test_refusals(options, pattern):
    with pytest.raises(autosp.AutoSPError, match=pattern):
        autosp.frontier(Model(), inputs(), **{"sp": RANKS} | options)


def test_programs_without_attention():
    mlp = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    inputs, options = {"x": torch.randn(2, 64, 8)}, {"sp": RANKS, "seq_dims": {"x": 1}}
    found = autosp.frontier(lambda x: mlp(x).sum(), inputs, **options)
    assert found.local_length == 64 // RANKS
    torch._dynamo.reset()
    assert autosp.explain(lambda x: mlp(x).sum(), inputs, **options).local_length == 64 // RANKS
    torch._dynamo.reset()
    found = autosp.longest(lambda x: mlp(x).sum(), inputs, memory_bytes=10**6, **options)
    assert found.tokens > 64


def test_no_backward_no_frontier():
    with torch.no_grad(), pytest.raises(autosp.Unsupported, match="no backward"):
        autosp.frontier(Model(), inputs(), sp=RANKS)


def test_one_rank_runs_what_cannot_be_cut():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))

    def step(x):
        return model(x * torch.randint_like(x, 9)).cumsum(0).sum()

    found = autosp.frontier(step, torch.randn(64, 8), sp=1)
    assert found.local_length == 0
    assert found.named["stock"].kept_bytes > 0
    explained = autosp.explain(step, torch.randn(64, 8), 1, device="cpu")
    assert str(explained) == str(explained.memory)


# ---- How long a sequence fits ----


def test_a_graph_at_another_length_is_the_graph_captured_there():
    program = capture_lengths(Model(), inputs(64), RANKS)
    assert program.length == 64
    for length in (32, 64, 4096):
        torch._dynamo.reset()
        there = capture(Model(), inputs(length), RANKS, joint=True).joint
        here = program.at(length)
        for policy in ("sac", "full"):
            a, b = here.plan(policy), there.plan(policy)
            assert (a.kept_bytes, a.peak_bytes) == (b.kept_bytes, b.peak_bytes)


@pytest.mark.parametrize("checkpointing, ranks", [("auto", 2), ("sac", 4), ("off", 4), ("full", 1)])
def test_longest(checkpointing, ranks):
    budget = 10**7
    options = {"sp": ranks, "checkpointing": checkpointing}
    found = autosp.longest(Model(), inputs(64), memory_bytes=budget, **options)
    assert found.tokens % ranks == 0
    assert found.memory.total_bytes <= budget
    assert f"{found.tokens:,} tokens" in str(found)
    torch._dynamo.reset()
    longer = (found.tokens * 1002 // 1000 // ranks + 1) * ranks
    state = autosp.explain(Model(), inputs(longer), **options, device="h100").memory
    if checkpointing != "auto":
        assert state.total_bytes > budget


def test_longest_refusals():
    model = Model()
    with pytest.raises(autosp.Unsupported, match="fixes the length"):
        autosp.longest(lambda ids: model(*2 * [ids.reshape(2, 64)]), tokens(64), sp=4)
    torch._dynamo.reset()
    with pytest.raises(autosp.Unsupported, match="not even 4 tokens fit"):
        autosp.longest(Model(), inputs(64), sp=4, memory_bytes=1000)
    with pytest.raises(autosp.Unsupported, match="no-such"):
        autosp.longest(Model(), inputs(64), sp=4, checkpointing="no-such")


@pytest.mark.parametrize("available", [999, 5000, 123456])
@pytest.mark.parametrize("start", [4, 64, 10**6])
def test_the_largest_is_found_to_a_thousandth(available, start):
    def needed(x):
        asked.append(x)
        return 100 + 3 * x + x // 1000 * 7

    asked = []
    x = longest_length(needed, available, start, step=4)
    assert x % 4 == 0
    assert needed(x) <= available < needed(x + max(4, x // 1000 // 4 * 4))
    assert len(asked) < 25


# ---- Full width ----


@pytest.mark.slow
def test_stock_is_what_torch_keeps():
    """Of two layers with an 8B model's widths, without any memory."""
    ranks, length = 8, 8192
    ids = torch.zeros(1, ranks * length, dtype=torch.int64)
    with fake_llama(2) as model:
        found = autosp.frontier(model, {"input_ids": ids, "labels": ids}, sp=ranks)
    torch._dynamo.reset()
    with fake_ranks(ranks), fake_llama(2) as model:
        splitting = as_inductor_splits(min_cut_rematerialization_partition)
        compiled = autosp.compile(model, backend=splitting)
        kept = kept_bytes(model, lambda: compiled(input_ids=ids, labels=ids).loss)
    assert found.named["stock"].kept_bytes == pytest.approx(kept, rel=0.01)
    beaten = [p for p in found.points if p.peak_bytes <= found.named["stock"].peak_bytes]
    assert min(p.step_ns for p in beaten) <= found.named["stock"].step_ns

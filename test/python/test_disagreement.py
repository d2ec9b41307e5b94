"""Ranks agree or stop, in real processes: whatever one rank does differently, every rank raises
soon and names the first difference, and the processes go on working.
"""

import re
import time
from datetime import timedelta

import autosp
import gloo_pool
import programs
import pytest
import torch
import torch.distributed as dist
from parity import run_as_is
from torch import nn

pytestmark = pytest.mark.gloo

TIMEOUT_SECONDS = 4  # of the groups that wait for a rank which does not come
OPTIONS = {"backend": run_as_is}


class Ending(nn.Module):
    """A language model and `end(model, logits)`, its loss."""

    def __init__(self, end, **model):
        super().__init__()
        self.lm = programs.lm(**{"layers": 1, **model}).make()
        self.end = end

    def forward(self, ids):
        return self.end(self, self.lm(ids))


def mean(model, logits):
    return logits.square().mean()


def ids(length=16, batch=2):
    return programs.lm(length, batch).inputs()["ids"]


def outcome(call, *args):
    """(type, text, seconds) of what a call raises, or its value."""
    start = time.monotonic()
    try:
        return float(call(*args))
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - start


def check_raised(outcomes, kinds, patterns, seconds=60.0):
    for (kind, text, took), expected, pattern in zip(outcomes, kinds, patterns, strict=True):
        assert kind == expected, text
        assert re.search(pattern, text, re.DOTALL), text
        assert took < seconds


def check_all_raised(outcomes, pattern):
    check_raised(outcomes, ["RanksDisagree"] * len(outcomes), [pattern] * len(outcomes))


def goes_on(rank, model):
    """Whether the ranks of a new model still come to one device's result."""
    want, got = model(ids()), autosp.compile(model, **OPTIONS)(ids())
    return bool(torch.isclose(want, got))


# ---- Ranks that run different programs ----


def rank_in_the_model(rank):
    def end(model, logits):
        if dist.get_rank() == 0:
            logits = logits.relu()
        return logits.square().mean()

    compiled = autosp.compile(Ending(end), **OPTIONS)
    return [outcome(compiled, ids()), outcome(compiled, ids()), goes_on(rank, Ending(mean))]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_program_that_depends_on_the_rank(ranks):
    first, second, fine = zip(*gloo_pool.run(ranks, rank_in_the_model), strict=True)
    others = "rank 1" if ranks == 2 else "ranks 1, 2, 3"
    for raised in (first, second):
        check_all_raised(raised, rf"the program differs\.\n  rank 0: .*relu.*\n  {others}: ")
    assert all(fine)


def another_input(rank, change, warm_up, through):
    """On a model that has run with `warm_up`, rank 1 calls with another input."""
    model = Ending(mean)
    if through == "compile":
        compiled = autosp.compile(model, **OPTIONS)
    else:
        compiled = torch.compile(model, backend="autosp", fullgraph=True, options=OPTIONS)
    ran = [float(compiled(ids(length))) for length in warm_up]
    changed = {"length": ids(24), "dtype": ids().int(), "batch": ids(batch=4)}[change]
    raised = outcome(compiled, changed if rank == 1 else ids())
    return raised, len(ran), goes_on(rank, Ending(mean))


INPUTS = r"the inputs differs\.\n  rank 0: .*int64 \[2, 16\].*rank 1: .*"


@pytest.mark.parametrize("through", ["compile", "backend"])
@pytest.mark.parametrize(
    "change, warm_up, other",
    [
        ("length", [], "int64 [2, 24]"),
        ("length", [16, 8, 32], "int64 [2, 24]"),
        ("batch", [16], "int64 [4, 16]"),
        ("dtype", [16], "int32 [2, 16]"),
    ],
)
def test_another_input_on_one_rank(change, warm_up, other, through):
    args = (change, warm_up, through)
    raised, ran, fine = zip(*gloo_pool.run(2, another_input, *args), strict=True)
    check_all_raised(raised, INPUTS + re.escape(other))
    assert ran == (len(warm_up),) * 2
    assert all(fine)


# ---- Ranks that fail, and ranks that don't come ----


def break_on_one_rank(rank, when):
    """Rank 1 can't capture the first call, or the recompilation for another batch."""

    def end(model, logits):
        if dist.get_rank() == 1 and (when == "first" or logits.shape[0] == 3):
            torch._dynamo.graph_break()
        return logits.square().mean()

    compiled = autosp.compile(Ending(end), **OPTIONS)
    before = [] if when == "first" else [outcome(compiled, ids())]
    raised = outcome(compiled, ids(batch=3))
    return raised, all(isinstance(x, float) for x in before), goes_on(rank, Ending(mean))


@pytest.mark.parametrize("when", ["first", "later"])
def test_a_graph_break_on_one_rank(when):
    raised, before, fine = zip(*gloo_pool.run(2, break_on_one_rank, when), strict=True)
    text = r"captured as one graph.*test_disagreement\.py:\d+ in end: .*User-inserted graph break"
    check_raised(raised, ["RanksDisagree", "Unsupported"], ["rank 1 failed.*" + text, text], 30)
    assert all(before) and all(fine)


def refused_on_one_rank(rank):
    def end(model, logits):
        return (logits.median(1).values if dist.get_rank() == 1 else logits).mean()

    return outcome(autosp.compile(Ending(end), **OPTIONS), ids()), goes_on(rank, Ending(mean))


def test_an_operator_that_one_rank_refuses():
    raised, fine = zip(*gloo_pool.run(2, refused_on_one_rank), strict=True)
    text = r"median at test_disagreement\.py:\d+ in end: "
    check_raised(raised, ["RanksDisagree", "Unsupported"], ["rank 1 failed.*" + text, text], 30)
    assert all(fine)


def absent_rank(rank, calls, through):
    """Rank 1 makes `calls` calls, the others one more; rank 1 comes when they have given up."""
    group = dist.new_group(timeout=timedelta(seconds=TIMEOUT_SECONDS))
    model = Ending(mean)
    options = {**OPTIONS, "group": group}
    if through == "compile":
        compiled = autosp.compile(model, **options)
    else:
        compiled = torch.compile(model, backend="autosp", fullgraph=True, options=options)
    for _ in range(calls):
        compiled(ids())
    if rank == 1:
        time.sleep(2 * TIMEOUT_SECONDS)
    late = outcome(compiled, ids())
    return late, outcome(compiled, ids()), goes_on(rank, Ending(mean))


@pytest.mark.parametrize(
    "ranks, calls, through", [(2, 0, "compile"), (4, 2, "compile"), (2, 1, "backend")]
)
def test_a_rank_that_does_not_call(ranks, calls, through):
    late, again, fine = zip(*gloo_pool.run(ranks, absent_rank, calls, through), strict=True)
    check_all_raised(late, rf"Rank 1 made no call number \d+ within {TIMEOUT_SECONDS} s")
    check_all_raised(again, rf"Rank 1 made no call number \d+ within {TIMEOUT_SECONDS} s")
    assert max(took for _, _, took in late) < TIMEOUT_SECONDS + 20
    assert max(took for _, _, took in again) < 5
    assert all(fine)


# ---- Bad input, the same on every rank ----


def graph_break(model, logits):
    torch._dynamo.graph_break()
    return logits.mean()


class NoAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(programs.VOCABULARY, 4)

    def forward(self, ids):
        return self.token(ids).mean()


IN_THE_MODEL = r" at test_disagreement\.py:\d+ in "
ONE_GRAPH = r"can't be captured as one graph.*at test_disagreement\.py:\d+ in "
# What the model is, its input, and what every rank says.
BAD = {
    "a single token": (lambda: Ending(mean), ids(1), "a single token can't be divided"),
    "unknown operator": (
        lambda: Ending(lambda model, x: torch.special.bessel_j0(x).mean()),
        ids(),
        rf"bessel_j0{IN_THE_MODEL}<lambda>: .*AutoSP has no rule for this operator",
    ),
    "needs all tokens": (
        lambda: Ending(lambda model, x: x.median(1).values.square().mean()),
        ids(),
        rf"median{IN_THE_MODEL}<lambda>: .*this operator must see all of it at once",
    ),
    "no sequence axis": (NoAttention, ids(), "no sequence axis found: .*seq_dims"),
    "shape from data": (
        lambda: Ending(lambda model, x: x[x > 0].mean()),
        ids(),
        "in <lambda>: .*(depends on data|Dynamic shape operator)",
    ),
    "number from data": (
        lambda: Ending(lambda model, x: x[:, : int(x.argmax())].mean()),
        ids(),
        "in <lambda>: .*(depends on data|item)",
    ),
    "draws": (
        lambda: Ending(lambda model, x: (x * torch.randint_like(x, 9)).mean()),
        ids(),
        rf"randint_like{IN_THE_MODEL}<lambda>: .*draws the same numbers on any number of ranks",
    ),
    "graph break": (
        lambda: Ending(graph_break),
        ids(),
        rf"{ONE_GRAPH}graph_break: .*Dynamo's reason: .*User-inserted graph break",
    ),
}


def bad_input(rank, names, through):
    results = {}
    for name in names:
        torch._dynamo.reset()
        make, value, _ = BAD[name]
        model = make()
        if through == "compile":
            call = autosp.compile(model, **OPTIONS)
        elif through == "torch.compile":
            call = torch.compile(model, backend="autosp", options=OPTIONS)
        else:
            model.compile(backend="autosp", options=OPTIONS)
            call = model
        results[name] = outcome(call, value)
    return results, goes_on(rank, Ending(mean))


@pytest.mark.parametrize("through", ["compile", "torch.compile", "model.compile"])
def test_bad_input(through):
    results = gloo_pool.run(2, bad_input, list(BAD), through, timeout_seconds=300)
    for name, (_, _, pattern) in BAD.items():
        check_raised(
            [raised[name] for raised, _ in results], ["Unsupported"] * 2, [pattern] * 2, 60
        )
    assert all(fine for _, fine in results)

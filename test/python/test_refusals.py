"""Bad input: each its own clear error, on every rank, before any collective."""

import copy
import re

import autosp
import pytest
import torch
import torch.distributed as dist
from autosp import simulate
from torch import nn


class Model(nn.Module):
    """Attention over tokens, then `last(model, x)` on the activations [batch, tokens, 8]."""

    def __init__(self, last=lambda model, x: x.square().mean()):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.last = last

    def forward(self, x, rank=None):
        q, k, v = (t.unflatten(-1, (4, 2)).transpose(1, 2) for t in self.q(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(1, 2).flatten(-2))
        if rank == 0:
            y = y.relu()
        return self.last(self, y)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


def errors(ranks, model, calls, timeout_seconds=60, **options):
    """What `calls(rank, compiled)` raises on each rank."""
    copies = [copy.deepcopy(model) for _ in range(ranks)]

    def case(rank):
        compiled = autosp.compile(copies[rank], backend="aot_eager", **options)
        session = compiled._autosp_call._session
        if session._agreement._ranks > 1:
            session._agreement._timeout_seconds = timeout_seconds
        try:
            calls(rank, compiled)
        except autosp.AutoSPError as error:
            return error
        return None

    return simulate.run_ranks(ranks, case)


def on_every_rank(kind, pattern, raised):
    for rank, error in enumerate(raised):
        assert type(error) is kind, f"rank {rank} raised {error!r}"
        assert re.search(pattern, str(error)), f"rank {rank}: {error}"
        assert "\n\nSet TORCH" not in str(error)


def x(length=8, dtype=torch.float32):
    return torch.ones(2, length, 8, dtype=dtype)


def test_no_process_group():
    with pytest.raises(autosp.AutoSPError, match=r"torchrun.*init_process_group"):
        autosp.compile(Model())


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"checkpointing": "everything"}, r"checkpointing='everything'.*\"auto\""),
        ({"attention": "ring"}, r"attention=\"ring\".*\"auto\""),
        ({"outputs": "some"}, r"outputs=\"some\".*\"auto\", \"full\", \"local\""),
        ({"backend": "xla"}, r"backend='xla'.*\"inductor\", \"aot_eager\""),
        ({"seq_dims": 1}, r"seq_dims maps names.*seq_dims=1"),
    ],
)
def test_options(options, pattern):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(autosp.Unsupported, match=pattern):
            autosp.compile(Model(), **options)
    finally:
        dist.destroy_process_group()


def test_unknown_option_of_the_backend():
    with pytest.raises(autosp.Unsupported, match=r"unknown option color; the options are group"):
        torch.compile(Model(), backend="autosp", options={"color": 1})(x())


def test_an_operator_that_must_see_all_tokens():
    model = Model(lambda model, x: x.median(1).values.square().mean())
    raised = errors(2, model, lambda rank, model: model(x()))
    on_every_rank(
        autosp.Unsupported, r"median at test_refusals\.py:\d+ in <lambda>: model = ", raised
    )


def test_an_operator_without_a_rule_on_a_sharded_value():
    model = Model(lambda model, x: torch.special.bessel_j0(x).mean())
    raised = errors(2, model, lambda rank, model: model(x()))
    on_every_rank(autosp.Unsupported, r"bessel_j0 at test_refusals\.py:\d+", raised)


def test_an_operator_without_a_rule_on_a_small_replicated_value_runs():
    table = torch.arange(8.0)
    model = Model(lambda model, x: (x * torch.special.bessel_j0(table)).mean())
    got = errors(2, model, lambda rank, compiled: compiled(x()).backward())
    assert got == [None, None]


def test_a_number_out_of_data_is_no_size():
    lengths = torch.tensor([3, 8])

    def fits(model, x):
        torch._check(lengths.max().item() <= x.shape[1])
        return x.square().mean()

    def cut(model, x):
        return x[:, : lengths.max().item()].square().mean()

    got = errors(2, Model(fits), lambda rank, compiled: compiled(x()).backward())
    assert got == [None, None]
    raised = errors(2, Model(cut), lambda rank, compiled: compiled(x()))
    on_every_rank(autosp.Unsupported, r"size u\d+ depends on data", raised)


def test_no_sequence_axis():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    raised = errors(2, model, lambda rank, model: model(x()))
    on_every_rank(autosp.Unsupported, r"no sequence axis.*seq_dims", raised)


def test_draws_that_depend_on_the_number_of_ranks():
    model = Model(lambda model, x: (x * torch.randint_like(x, 9)).mean())
    raised = errors(2, model, lambda rank, model: model(x()))
    on_every_rank(autosp.Unsupported, r"randint_like at test_refusals\.py", raised)


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(lambda model, x: x[x[..., 0] > 0].mean(), id="mask"),
        pytest.param(lambda model, x: x[:, : int(x.argmax())].mean(), id="item"),
    ],
)
def test_shapes_that_depend_on_data(last):
    raised = errors(2, Model(last), lambda rank, model: model(x()))
    on_every_rank(autosp.Unsupported, r"test_refusals\.py:\d+ in <lambda>.*depends on data", raised)


def test_a_graph_break():
    def last(model, x):
        torch._dynamo.graph_break()
        return x.mean()

    raised = errors(2, Model(last), lambda rank, model: model(x()))
    on_every_rank(
        autosp.Unsupported, r"one graph.*test_refusals\.py:\d+ in last: .*graph_break", raised
    )
    on_every_rank(autosp.Unsupported, r"User-inserted graph break", raised)


# ---- Ranks that differ ----


def test_a_program_that_depends_on_the_rank():
    raised = errors(2, Model(), lambda rank, model: model(x(), rank))
    on_every_rank(autosp.RanksDisagree, r"(?s)program differs.*rank 0: .*relu", raised)


def test_ranks_with_different_lengths():
    raised = errors(2, Model(), lambda rank, model: model(x(8 + 4 * rank)))
    on_every_rank(autosp.RanksDisagree, r"(?s)inputs differs.*\[2, 8, 8\].*\[2, 12, 8\]", raised)


def test_ranks_with_different_lengths_in_a_compiled_graph():
    def calls(rank, model):
        for length in (8, 12, 16, 20):
            model(x(length))
        model(x(16 + 8 * rank))

    raised = errors(2, Model(), calls)
    on_every_rank(autosp.RanksDisagree, r"(?s)inputs differs.*\[2, 16, 8\].*\[2, 24, 8\]", raised)


def test_ranks_with_different_dtypes():
    model = Model().double()
    model.last = lambda model, x: x.float().mean()

    def calls(rank, model):
        model(x(dtype=torch.float64))
        (model.float() if rank else model)(x(dtype=[torch.float64, torch.float32][rank]))

    raised = errors(2, model, calls)
    on_every_rank(autosp.RanksDisagree, r"(?s)inputs differs.*float64.*float32", raised)


def test_ranks_with_different_gradient_modes():
    def calls(rank, model):
        with torch.set_grad_enabled(rank == 0):
            model(x())

    on_every_rank(autosp.RanksDisagree, r"gradient mode differs", errors(2, Model(), calls))


def test_a_rank_that_fails_before_it_compiles():
    def case(rank, copies):
        compiled = autosp.compile(copies[rank], backend="aot_eager")
        try:
            compiled(x()[..., : 8 - rank])
        except Exception as error:
            return error

    copies = [Model(), Model()]
    waiting, failing = simulate.run_ranks(2, case, copies)
    assert type(waiting) is autosp.RanksDisagree and "rank 1 failed: " in str(waiting)
    assert not isinstance(failing, autosp.AutoSPError)
    assert str(failing).splitlines()[0] in str(waiting), "the text is the failing rank's own"


def test_a_rank_that_does_not_call():
    def calls(rank, model):
        model(x())
        if rank == 0:
            model(x())

    first, second = errors(2, Model(), calls, timeout_seconds=2)
    assert type(first) is autosp.RanksDisagree and "Rank 1 made no call" in str(first)
    assert second is None


def test_after_a_disagreement_the_model_still_works():
    model = Model()
    expected = model(x()).item()

    def calls(rank, compiled):
        with pytest.raises(autosp.RanksDisagree), torch.set_grad_enabled(rank == 0):
            compiled(x())
        for _ in range(2):
            assert compiled(x()).item() == pytest.approx(expected, rel=1e-5)

    assert errors(2, model, calls) == [None, None]

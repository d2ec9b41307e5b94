"""What explain says of a step's memory, against sizes counted by hand."""

import autosp
import pytest
import torch
from autosp import _engine
from autosp._engine import held_state
from autosp.capture import capture
from autosp.checkpointing import prepare
from causal import Model, tokens
from torch.utils.checkpoint import checkpoint

LENGTH, RANKS = 256, 4


def memory(model=None, length=LENGTH, **options):
    inputs = {"ids": tokens(length), "labels": tokens(length)}
    return autosp.explain(model or Model(), inputs, sp=RANKS, **options).memory


def bytes_of(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


def test_memory_is_said_where_it_is_asked_for(capsys):
    assert memory() is None
    assert "activations" not in capsys.readouterr().out
    asked = memory(device="h200")
    assert (asked.policy, asked.device) == ("auto", "h200")
    assert str(asked) in capsys.readouterr().out


def test_state_that_every_rank_holds():
    state = memory(checkpointing="sac", sharded=False).state
    whole = bytes_of(Model())
    assert (state.parameters, state.gradients, state.optimizer) == (whole, whole, 2 * whole)
    assert (state.whole, state.inputs) == (0, 2 * 2 * LENGTH * 8)
    assert state.total == 4 * whole + state.inputs


def test_state_that_is_cut():
    state = memory(checkpointing="sac").state
    whole = bytes_of(Model())
    shares = (state.parameters, state.gradients, state.optimizer)
    assert shares == tuple(-(-n // RANKS) for n in (whole, whole, 2 * whole))
    assert 0 < state.whole <= 2 * whole


@pytest.mark.parametrize(
    "dtype, each", [(torch.float64, 32), (torch.float32, 16), (torch.bfloat16, 16)]
)
def test_bytes_of_a_parameter(dtype, each):
    model = Model().to(dtype)
    model.q.bias.requires_grad_(False)
    program = capture(model, (tokens(LENGTH), tokens(LENGTH)), RANKS, joint=True)
    state = held_state(program.parameters, program.joint, 1, sharded=False)
    numbers = {name: p.numel() for name, p in model.named_parameters()}
    frozen = numbers.pop("q.bias") * dtype.itemsize
    assert state.total - state.inputs == sum(numbers.values()) * each + frozen


def test_parts_and_segments_add_up():
    for policy in ("off", "sac", "sac+exchanges", "full"):
        torch._dynamo.reset()
        found = memory(checkpointing=policy)
        assert sum(found.parts.values()) == found.activation_bytes
        assert found.total_bytes == found.state.total + found.activation_bytes
        assert sum(s.kept_bytes for s in found.segments) == found.kept_bytes
        assert sum(row.kept_bytes for row in found.operators) == found.kept_bytes
        assert sum(s.recompute_ns for s in found.segments) == found.recompute_ns
        assert (found.recompute_ns == 0) == (policy == "off" and found.kept_bytes > 10**5)


def test_rows_by_operator():
    found = memory(checkpointing="sac")
    (attention,) = [row for row in found.operators if "scaled_dot_product" in row.what]
    result, statistic = LENGTH // RANKS * 2 * 16 * 4, LENGTH // RANKS * 2 * 8 * 4
    assert (attention.kept_bytes, attention.recomputed_bytes) == (result + statistic, 0)
    assert "scaled_dot_product_attention" in attention.source
    products = [row for row in found.operators if "mm" in row.what and "self.q(" in row.source]
    assert sum(row.recomputed_bytes for row in products) == LENGTH // RANKS * 2 * 48 * 4
    text = str(found)
    assert "segment 0" in text and "checkpointing 'sac'" in text


def test_budgets():
    free = memory(checkpointing="auto")
    budget = {"memory_bytes": free.activation_bytes}
    assert memory(checkpointing=budget).step_ns == free.step_ns
    tight = memory(checkpointing={"overhead": 0.5})
    assert tight.recompute_ns <= 0.5 * free.step_ns


@pytest.mark.parametrize(
    "options, pattern",
    [
        ({"checkpointing": "some"}, "some.*sac"),
        ({"device": "abacus"}, "abacus.*h100"),
        ({"checkpointing": "sac", "offload": "maybe"}, "maybe"),
    ],
)
def test_options_that_do_not_exist(options, pattern):
    with pytest.raises(autosp.Unsupported, match=pattern):
        memory(**options)


def test_what_is_captured_is_what_inductor_splits(monkeypatch):
    """The joint graph of a group of one, whose backend is Inductor's own."""
    from torch._inductor import compile_fx

    seen = []

    def split(gm, *args, **kwargs):
        prepare(gm)  # as the partitioner begins
        seen.extend(str(node.target) for node in gm.graph.nodes if node.op == "call_function")
        raise RuntimeError("seen")

    monkeypatch.setattr(compile_fx, "min_cut_rematerialization_partition", split)
    model, inputs = Model(), (tokens(LENGTH), tokens(LENGTH))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="seen"):
        torch.compile(model)(*inputs)
    torch._dynamo.reset()
    text = capture(model, inputs, 1, joint=True).joint.text
    operators = [name for name in seen if name.startswith(("aten.", "prims."))]
    assert len(operators) > 50
    for name in set(operators):
        assert text.count(f" = {name}(") == operators.count(name), name


def test_a_users_regions_are_left_as_they_are():
    model = Model()

    def step(x):
        return checkpoint(lambda y: model.out(model.q(y)[..., :16]), x, use_reentrant=False).sum()

    x = torch.randn(2, LENGTH, 16, requires_grad=True)
    program = capture(step, x, 1, joint=True)
    assert " tagged" in program.joint.text
    assert isinstance(program.joint, _engine.JointGraph)

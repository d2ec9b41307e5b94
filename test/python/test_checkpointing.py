"""Recomputation changes no gradient: they are those of the program that keeps what torch likes to
keep.
"""

import copy
import dataclasses

import autosp
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from autosp import checkpointing
from autosp.simulate import run_ranks
from parity import check, check_simulated, run_as_is, take_step
from programs import PROGRAMS
from test_models import hugging_face, token_inputs
from torch import nn
from torch._inductor.utils import fresh_cache
from torch.utils.checkpoint import checkpoint
from watch_splits import watch_splits

POLICIES = ["sac", "sac+exchanges", "full"]
BUDGETS = [{"overhead": 0.0}, {"overhead": 0.1}, {"overhead": 10.0}]


@pytest.fixture
def splits():
    with watch_splits() as seen:
        yield seen


# ---- Gradients ----


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["rotary", "modern", "encoder", "eager attention", "shared"])
def test_programs(name, ranks, policy):
    program = PROGRAMS[name]
    options = {"backend": "aot_eager", "checkpointing": policy}
    check_simulated(program.make, program.inputs(), ranks, program.tolerance, **options)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["grouped heads", "encoder decoder", "flat", "encoder masked"])
def test_programs_on_four_ranks(name, policy):
    program = PROGRAMS[name]
    options = {"backend": "aot_eager", "checkpointing": policy}
    check_simulated(program.make, program.inputs(), 4, program.tolerance, **options)


def steps_of(name, ranks, checkpointing):
    """One step of a Hugging Face model on simulated ranks."""
    models = [hugging_face(name, "sdpa") for _ in range(ranks)]
    options = {"backend": "aot_eager", "checkpointing": checkpointing, "device": "h100"}

    def on_rank(rank):
        compiled = autosp.compile(models[rank], **options)
        return take_step(models[rank], compiled, token_inputs())

    torch._dynamo.reset()
    return run_ranks(ranks, on_rank)


EVERY = (*POLICIES, *BUDGETS, "auto")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "policies"),
    [
        ("llama", 1, EVERY),
        ("gpt2", 2, ("sac", "auto")),
        ("qwen3", 2, ("full", BUDGETS[0])),
        ("llama", 4, ("sac+exchanges",)),
    ],
)
def test_hugging_face(name, ranks, policies):
    want = steps_of(name, ranks, "off")[0]
    for policy in policies:
        check(steps_of(name, ranks, policy), want)


@pytest.mark.slow
def test_two_models_and_two_groups_in_one_process():
    """One model over all four ranks and over each half, another one over each half, and the first
    one compiled once more: each with a plan of its own, in turn.
    """
    first, second = PROGRAMS["modern"], PROGRAMS["encoder"]
    models = [program.make() for program in (first, second)]
    calls = [(0, None, "sac"), (0, "sp", {"overhead": 0.1}), (1, "sp", "full"), (0, None, "off")]
    inputs = [first.inputs(), second.inputs()]
    wants = [take_step(models[i], models[i], inputs[i]) for i, _, _ in calls]
    copies = [copy.deepcopy(models) for _ in range(4)]

    def on_rank(rank):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "sp"))
        mine, options = copies[rank], {"backend": "aot_eager", "device": "h100"}
        compiled = [
            autosp.compile(mine[i], group=dim and mesh[dim], checkpointing=policy, **options)
            for i, dim, policy in calls
        ]
        return [
            [take_step(mine[i], c, inputs[i]) for c, (i, _, _) in zip(compiled, calls, strict=True)]
            for _ in range(2)
        ]

    for rounds in run_ranks(4, on_rank):
        for steps in rounds:
            for step, want in zip(steps, wants, strict=True):
                check([step], want)


# ---- Programs that recomputation could break ----


class Block(nn.Module):
    def __init__(self, width=16, heads=4, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(x))))


def inputs(width=16, length=8):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(2, length, width, generator=generator, dtype=torch.float64)


def blocks(count=3, **options):
    torch.manual_seed(0)
    return nn.Sequential(*(Block(**options) for _ in range(count))).double()


def recomputing(policy, backend="aot_eager"):
    """A backend with a policy and nothing else of ours."""
    return checkpointing.Recomputation(backend, checkpointing.choose(policy, backend, "cpu"))


def alone(module, policy):
    """The module under a policy and nothing else of ours."""
    torch._dynamo.reset()
    return torch.compile(module, backend=recomputing(policy))


def gradients(module, call, *args):
    """Of the parameters, after a step from seed 1."""
    torch.manual_seed(1)
    call(*args).pow(2).mean().backward()
    grads = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    return grads


def check_against_off(module, policy, *args):
    want = gradients(module, alone(module, "off"), *args)
    torch.testing.assert_close(
        gradients(module, alone(module, policy), *args), want, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_dropout_draws_once(policy):
    check_against_off(blocks(dropout=0.5), policy, inputs())


@pytest.mark.parametrize("policy", POLICIES)
def test_regions_of_the_user(policy, splits):
    """A region that the user checkpoints is recomputed whole, whatever the policy."""
    first, second, third = module = blocks()

    def call(x):
        return third(checkpoint(second, first(x), use_reentrant=False))

    want = gradients(module, alone(call, "off"), inputs())
    got = gradients(module, alone(call, policy), inputs())
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
    assert len(splits[-1].tagged) > 20
    assert len(splits[-1].tagged & splits[-1].kept) == 1  # what the third block begins with


class Counting(nn.Module):
    """A buffer is read, written and read again."""

    def __init__(self):
        super().__init__()
        self.blocks = blocks()
        self.register_buffer("steps", torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        x = self.blocks[0](x * self.steps)
        self.steps.add_(1)
        return self.blocks[2](self.blocks[1](x) * self.steps)


@pytest.mark.parametrize("policy", POLICIES)
def test_buffer_changes_once(policy):
    want, got = Counting(), Counting()
    got.load_state_dict(want.state_dict())
    for _ in range(2):
        pair = gradients(want, want, inputs()), gradients(got, alone(got, policy), inputs())
        torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-12)
        assert got.steps == want.steps


def test_models_don_t_share_plans(splits):
    modules = [blocks(), blocks(count=2, width=24)]
    torch._dynamo.reset()
    calls = [
        torch.compile(m, backend=recomputing(policy))
        for m, policy in zip(modules, ["sac", "full"], strict=True)
    ]
    for _ in range(2):
        for module, call, width in zip(modules, calls, [16, 24], strict=True):
            pair = gradients(module, call, inputs(width)), gradients(module, module, inputs(width))
            torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-12)
    assert len(splits) == 2


def test_one_plan_for_a_range_of_lengths(splits):
    module = blocks()
    torch._dynamo.reset()
    backend = recomputing("sac")
    call = torch.compile(module, backend=backend, dynamic=True)
    for length, plans in [(8, 1), (12, 1), (16, 1), (5, 1), (32, 2), (16, 2), (60, 2)]:
        pair = [gradients(module, f, inputs(length=length)) for f in (call, module)]
        torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-12)
        assert len(splits) == plans


@pytest.mark.inductor
def test_inductor_and_its_caches(splits):
    module = blocks(count=2)
    want = gradients(module, module, inputs())
    with fresh_cache():
        choices = [
            ("sac", 1),
            ("sac", 1),
            ("full", 2),
            ("full", 2),
            (BUDGETS[1], 3),
            (BUDGETS[1], 3),
        ]
        for policy, plans in choices:
            torch._dynamo.reset()
            call = torch.compile(module, backend=recomputing(policy, "inductor"))
            got = gradients(module, call, inputs())
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
            assert len(splits) == plans  # on a hit nothing is split
    assert torch._inductor.config.custom_partitioner_fn is None


def test_every_choice_of_a_plan_is_in_the_key():
    choice = checkpointing.Choice("sac", 2, "h100")
    others = {"policy": "full", "ranks": 4, "device": "a100", "memory_bytes": 1, "overhead": 0.5}
    others["offload"] = "all"
    choices = [choice, *(dataclasses.replace(choice, **{k: v}) for k, v in others.items())]
    assert others.keys() == {field.name for field in dataclasses.fields(choice)}
    keys = {checkpointing.Partitioner(c).uuid() for c in choices}
    keys.add(checkpointing.Partitioner(choice, (("s0", 64),)).uuid())
    assert len(keys) == 1 + len(choices)
    assert checkpointing.Partitioner(dataclasses.replace(choice)).uuid() in keys


# ---- Refusals ----


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"checkpointing": "most"}, r"checkpointing='most'.*\"full\", \"auto\", {\"memory_bytes\""),
        ({"checkpointing": None}, r"checkpointing=None is not supported"),
        ({"checkpointing": {}}, r"checkpointing={} is not supported"),
        ({"checkpointing": {"memory": 1}}, r"checkpointing={'memory': 1} is not supported"),
        ({"checkpointing": {"memory_bytes": 1, "overhead": 1}}, r"checkpointing=.*not supported"),
        ({"checkpointing": {"memory_bytes": -1}}, r"memory_bytes is a number of at least 0"),
        (
            {"checkpointing": {"memory_bytes": float("inf")}},
            r"memory_bytes is a number of at least 0",
        ),
        ({"checkpointing": {"overhead": -0.1}}, r"overhead is a number of at least 0"),
        ({"checkpointing": {"overhead": "7%"}}, r"overhead is a number of at least 0"),
        ({"checkpointing": {"overhead": float("nan")}}, r"overhead is a number of at least 0"),
        ({"checkpointing": "sac", "backend": run_as_is}, r"'sac'.*backend of your own"),
        ({"checkpointing": {"overhead": 1}, "backend": run_as_is}, r"backend of your own"),
        ({"offload": "some"}, r"offload='some'.*\"all\""),
        ({"offload": "all", "checkpointing": "off"}, r"offload=\"all\".*checkpointing=\"off\""),
        ({"offload": "all", "backend": run_as_is}, r"offload='all'.*backend of your own"),
        ({"device": "abacus"}, r"abacus.*h100.*calibrate"),
        ({"device": 100}, r"device=100 .*h100"),
    ],
)
def test_refusals(options, pattern):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(autosp.Unsupported, match=pattern):
            autosp.compile(blocks(), **options)
    finally:
        dist.destroy_process_group()

"""Programs that recomputation could break, in a group of one, under every policy and at every
budget of memory: one step is the module's own.
"""

import copy

import autosp
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from autosp import checkpointing, machine
from lazy_transfers import lazy_transfers
from parity import check, run_as_is, take_step
from test_checkpointing import Block, blocks, gradients, inputs
from torch import nn
from torch.utils.checkpoint import checkpoint
from watch_splits import watch_splits

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


SLOW = ["sac+exchanges", {"overhead": 0.0}, {"overhead": 10.0}]
CHOICES = ["off", "sac", "full", {"overhead": 0.1}]
CHOICES += [pytest.param(choice, marks=pytest.mark.slow) for choice in SLOW]


class Regions(nn.Module):
    """Regions in regions, and a function with a backward of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def inner(self, x):
        return Halved.apply(self.blocks[2](x))

    def outer(self, x):
        return F.gelu(checkpoint(self.inner, self.blocks[1](x), use_reentrant=False))

    def forward(self, x):
        x = checkpoint(self.outer, self.blocks[0](x), use_reentrant=False)
        return self.blocks[3](x).square().mean(), x


class Halved(torch.autograd.Function):
    """A sine with half of its gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 0.5 * grad * x.cos()


class Writing(nn.Module):
    """A buffer is read, written and read again, also in a region of the user's that writes to its
    activations.
    """

    def __init__(self, regions):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.register_buffer("steps", torch.ones(1))
        self.regions = regions

    def region(self, x):
        x = self.blocks[1](x) * self.steps
        x[:, 1:3] *= 2
        x.add_(1)
        return torch.tanh(x)

    def forward(self, x):
        x = self.blocks[0](x * self.steps)
        self.steps.add_(1)
        x = checkpoint(self.region, x, use_reentrant=False) if self.regions else self.region(x)
        return (self.blocks[2](x) * self.steps).square().mean(), x


class Drawing(nn.Module):
    """Half of the activations are dropped, in blocks and in a region of the user's."""

    def __init__(self, regions):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout=0.5) for _ in range(3))
        self.regions = regions

    def forward(self, x):
        x = self.blocks[0](x)
        x = checkpoint(self.blocks[1], x, use_reentrant=False) if self.regions else x
        return self.blocks[2](x).square().mean(), x


MODULES = {
    "regions": Regions,
    "writing": lambda: Writing(False),
    "writing in regions": lambda: Writing(True),
    "drawing": lambda: Drawing(False),
    "drawing in regions": lambda: Drawing(True),
}


def two_steps(model, call):
    """From the same seed, and the buffers that they leave."""
    steps = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        steps.append(take_step(model, call, {"x": inputs()}))
    return steps, dict(model.named_buffers())


def check_two_steps(made, **options):
    torch._dynamo.reset()
    model = copy.deepcopy(made)
    # What the compiler draws, eager code doesn't.
    draws = isinstance(made, Drawing)
    call = autosp.compile(model, backend=run_as_is) if draws else model
    want, buffers = two_steps(model, call)
    got, after = two_steps(
        model := copy.deepcopy(made), autosp.compile(model, backend="aot_eager", **options)
    )
    for a, b in zip(got, want, strict=True):
        check([a], b)
    torch.testing.assert_close(after, buffers)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_policies(name, choice):
    check_two_steps(MODULES[name]().double(), checkpointing=choice, device="h100")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drawing", "drawing in regions"])
def test_every_budget(name, monkeypatch):
    """Free memory from next to nothing to plenty, about a fifth more every time."""
    made, plans = MODULES[name]().double(), {}
    with watch_splits() as splits:
        for quarter in range(4 * 10, 4 * 20):
            choice = checkpointing.Choice("auto", 1, "h100", int(2 ** (quarter / 4)))
            torch._dynamo.reset()
            call = torch.compile(made, backend=checkpointing.Recomputation("aot_eager", choice))
            call(inputs())
            plans[tuple(splits[-1].actions.items())] = choice
    assert len(plans) >= 4
    for choice in plans.values():
        monkeypatch.setattr(machine, "memory_at_hand", lambda *_, n=choice.memory_bytes: n)
        check_two_steps(made, device="h100")


@pytest.mark.parametrize("policy", ["sac", {"overhead": 0.0}, {"memory_bytes": 1 << 26}], ids=str)
def test_values_move_as_planned(policy):
    module, x = blocks(4, width=256), inputs(256, length=256)
    want = gradients(module, module, x)
    choice = checkpointing.choose(policy, "aot_eager", "h100", "all")
    call = torch.compile(module, backend=checkpointing.Recomputation("aot_eager", choice))
    with watch_splits() as splits, lazy_transfers() as transfers:
        torch.testing.assert_close(gradients(module, call, x), want, rtol=1e-9, atol=1e-12)
    (split,) = splits
    moved = [name for name, action in split.actions.items() if action == 3]
    assert len(transfers.sources) == 2 * len(moved) >= 4
    assert split.kept == split.planned >= set(moved)

"""Regions of torch.utils.checkpoint: on several ranks they give one device's step, keep what they
ask to keep, and change buffers once.
"""

import re

import autosp
import pytest
import torch
import torch.nn.functional as F
from autosp.checkpointing import Choice, Partitioner
from autosp.errors import Unsupported
from autosp.simulate import RanksFailed, run_ranks
from parity import check, run_as_is, take_step
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

pytestmark = pytest.mark.slow

WIDTH, HEADS, VOCABULARY = 24, 12, 13
SLOW = pytest.mark.slow


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("calls", torch.ones(1))
        self.register_buffer("mean", torch.zeros(2, WIDTH))
        self.register_buffer("seen", torch.zeros(VOCABULARY, dtype=torch.int64))

    def forward(self, x, scale, region, *, ids):
        self.calls.add_(1)
        self.seen += F.one_hot(ids, VOCABULARY).sum((0, 1))
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        with torch.no_grad():
            self.mean[1].mul_(0.9).add_(y.mean((0, 1)), alpha=0.1)
        y = region(lambda y: self.inner(y * self.calls).tanh().tanh(), self.out(y) * scale)
        return x + y, x.shape[1]


class Model(nn.Module):
    """Blocks that are regions with regions inside of them, or no regions at all."""

    def __init__(self, regions):
        super().__init__()
        torch.manual_seed(0)
        self.token, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.regions = regions

    def region(self, function, *args, **kwargs):
        if self.regions:
            return checkpoint(function, *args, use_reentrant=False, **kwargs)
        return function(*args, **kwargs)

    def forward(self, ids):
        x, scale = self.token(ids), torch.outer(torch.arange(ids.shape[1]) + 1.0, self.scale)
        for block in self.blocks:
            x, length = self.region(block, x, scale, self.region, ids=ids)
            x = x / length
        loss = F.cross_entropy(self.head(x[:, :-1]).mT, ids[:, 1:])
        return loss, x, *(buffer.clone() for buffer in self.buffers())


def inputs():
    return {
        "ids": torch.randint(0, VOCABULARY, (2, 13), generator=torch.Generator().manual_seed(1))
    }


def steps(model, call):
    taken = [take_step(model, call, inputs()) for _ in range(2)]
    return taken, [buffer.clone() for buffer in model.buffers()]


def steps_on_ranks(ranks, regions=True, **options):
    models = [Model(regions).double() for _ in range(ranks)]
    torch._dynamo.reset()
    return run_ranks(ranks, lambda r: steps(models[r], autosp.compile(models[r], **options)))


AOT = {"backend": "aot_eager", "device": "cpu"}


AS_IS = {"backend": run_as_is}


@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (1, AOT | {"checkpointing": "off"}),
        (2, AOT | {"checkpointing": "full"}),
        (3, AS_IS),
        (4, AS_IS | {"attention": "gather_kv"}),
        pytest.param(2, AOT | {"checkpointing": "off"}, marks=SLOW),
        pytest.param(3, AOT | {"checkpointing": "auto"}, marks=SLOW),
        pytest.param(4, AOT | {"checkpointing": "sac"}, marks=SLOW),
        pytest.param(4, AOT | {"checkpointing": {"overhead": 0.5}}, marks=SLOW),
    ],
)
def test_step_and_buffers(ranks, options):
    """Two steps of the program without regions on one device: eager ones would count twice."""
    model = Model(regions=False).double()
    want, buffers = steps(model, model)
    assert all(float(block.calls) == 3 for block in model.blocks)
    results = steps_on_ranks(ranks, **options)
    for step in range(2):
        check([taken[step] for taken, _ in results], want[step])
    for _, got in results:
        torch.testing.assert_close(got, buffers)


def test_regions_keep_their_inputs_alone():
    """The activations of a rank's tokens between forward and backward."""

    def kept(regions):
        models = [Model(regions).double() for _ in range(2)]
        sizes = {}

        def pack(x):
            sizes[x.untyped_storage()._cdata] = x.numel()
            return x

        def on_rank(rank):
            call = autosp.compile(models[rank], checkpointing="off", **AOT)
            if rank:
                return call(**inputs())[0]
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                return call(**inputs())[0]

        torch._dynamo.reset()
        run_ranks(2, on_rank)
        return sum(size == 2 * 7 * WIDTH for size in sizes.values())

    assert kept(regions=False) > 10
    assert kept(regions=True) <= 3


def selective():
    return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])


class Selective(Model):
    def region(self, function, *args, **kwargs):
        return checkpoint(function, *args, use_reentrant=False, context_fn=selective, **kwargs)


class Graded(Model):
    def forward(self, ids):
        self.blocks[0].mean.add_(self.token(ids).mean((0, 1)))
        return super().forward(ids)


class Shared(Model):
    def __init__(self, regions):
        super().__init__(regions)
        self.register_buffer("row", self.blocks[0].mean[1])

    def forward(self, ids):
        loss, *rest = super().forward(ids)
        return loss + self.row.sum(), *rest


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Selective, r"test_regions.py:\d+ in region.*Leave out context_fn"),
        (
            Graded,
            r"add_ at test_regions.*gives the buffer model.blocks.0.mean a value that has a grad",
        ),
        (Shared, r"model.blocks.0.mean in place \(test_r.*shares memory with the input model.row;"),
    ],
)
def test_refused(kind, text):
    models = [kind(True) for _ in range(2)]
    with pytest.raises(RanksFailed) as failed:
        run_ranks(2, lambda r: autosp.compile(models[r], backend=run_as_is)(**inputs()))
    for error in failed.value.errors.values():
        assert isinstance(error, Unsupported) and re.search(text, str(error)), error


def test_regions_are_in_the_compilers_keys():
    """Graphs whose code is the same may have other regions."""
    with_regions = Partitioner(Choice("off"))
    with_regions.regions = "0123456789abcdef"
    assert with_regions.uuid() != Partitioner(Choice("off")).uuid()

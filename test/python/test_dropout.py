"""Dropout and other draws: any number of ranks draws bit for bit what a group of one does, from one
number a step; and that has the statistics of torch's own.
"""

import copy
import math

import autosp
import gloo_pool
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from autosp.capture import capture
from parity import run_as_is, take_step
from small import WIDTH, program
from test_checkpointing import Block
from torch import nn

uniform = torch.ops.autosp.uniform


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def drawn(*shape, seed=1, stream=0):
    rows = max(len(shape) - 1, 0)
    return uniform(torch.empty(shape), torch.tensor(seed), stream, rows, len(shape)).double()


# ---- The numbers ----


def test_numbers_are_uniform_and_independent():
    """Every figure is a sum of many terms: within 5 standard deviations of what chance gives."""

    def off(products, deviation):
        return float(products.mean()) / deviation * math.sqrt(products.numel())

    def together(a, b):
        return off((a - 0.5) * (b - 0.5), 1 / 12)

    figures = {}
    for seed in (0, 1, 2**62 + 12345):
        x, n = drawn(4, 256, 512, seed=seed), 4 * 256 * 512
        assert 0 <= x.min() < 1e-4 and 1 - 1e-4 < x.max() < 1
        figures["mean", seed] = off(x - 0.5, math.sqrt(1 / 12))
        figures["variance", seed] = off((x - 0.5) ** 2 - 1 / 12, math.sqrt(1 / 180))
        figures["step", seed] = together(x, drawn(4, 256, 512, seed=seed + 1))
        for stream in range(1, 8):
            figures[stream, seed] = together(x, drawn(4, 256, 512, seed=seed, stream=stream))
        for by in (1, 2, 16):
            figures["column", by, seed] = together(x[..., by:], x[..., :-by])
            figures["row", by, seed] = together(x[:, by:], x[:, :-by])
        figures["batch", seed] = together(x[1:], x[:-1])
        for bits in (0, 8, 16):
            counts = torch.bincount((x * 2**24).long().flatten() >> bits & 255, minlength=256)
            chi_squared = float(((counts - n / 256) ** 2 / (n / 256)).sum())
            figures["bits", bits, seed] = (chi_squared - 255) / math.sqrt(2 * 255)
        pairs = ((x * 16).long()[..., 1:] * 16 + (x * 16).long()[..., :-1]).flatten()
        share = len(pairs) / 256
        chi_squared = float(((torch.bincount(pairs, minlength=256) - share) ** 2 / share).sum())
        figures["pairs", seed] = (chi_squared - 255) / math.sqrt(2 * 255)
    assert not {name: value for name, value in figures.items() if abs(value) > 5}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("shape", [(13,), (2, 13, 6), (13, 2, 3, 2), (1, 26, 1)])
def test_parts_are_those_of_the_whole(shape, ranks):
    """Along every dimension; places past the end have the last one's numbers."""
    seed = torch.tensor(7)
    for channels in {len(shape), min(2, len(shape))}:
        rows = channels - 1
        whole = uniform(torch.empty(shape), seed, 3, rows, channels)
        for dim, size in enumerate(shape):
            length = -(-size // ranks)
            places = torch.arange(ranks * length).clamp(max=size - 1)
            for rank in range(ranks):
                own = whole.index_select(dim, places[rank * length :][:length])
                start = rank * length
                part = uniform(torch.empty_like(own), seed, 3, rows, channels, dim, size, start)
                assert part.equal(own)


def test_more_than_32_bits_of_places():
    """Rows 2**40 apart, and columns at the end of what an int32 holds."""
    far = [
        uniform(torch.empty(4, 8), torch.tensor(1), 0, 1, 2, 0, 2**41, n * 2**40) for n in (0, 1)
    ]
    assert not far[0].equal(far[1])
    wide = uniform(torch.empty(2, 8), torch.tensor(1), 0, 1, 2, 1, 2**31, 2**31 - 8)
    assert len(wide.unique()) == 16


# ---- On several ranks ----


def everywhere(model, x, ids):
    return [F.dropout(x, 0.3), F.dropout(model.qkv(x), 0.5)[..., :WIDTH] * F.dropout(x, 0.9)]


def attention_probabilities(model, x, ids):
    q, k, v = (t.unflatten(-1, (12, -1)).transpose(1, 2) for t in model.qkv(x).chunk(3, -1))
    p = F.dropout((q @ k.mT).softmax(-1), 0.4)
    return [(p @ v).transpose(1, 2).flatten(2)]


def tokens_in_other_places(model, x, ids):
    """First, merged with the batch, last, with one more, and in a part of a sequence."""
    a = F.dropout(x.transpose(0, 1).reshape(-1, WIDTH), 0.5).view(*x.shape[1::-1], WIDTH)
    b = F.dropout(x.flatten(0, 1), 0.5).view_as(x)
    c = F.dropout(F.pad(x, (0, 0, 0, 1)), 0.5)[:, 1:]
    return [a.transpose(0, 1) + b + c + F.dropout(x.mT, 0.5).mT, F.dropout(x[:, 1:], 0.5)]


def channels(model, x, ids):
    a = F.dropout1d(x, 0.5) + F.dropout1d(x.mT, 0.5).mT + F.feature_alpha_dropout(x, 0.2, True)
    return [a, F.dropout2d(x.unflatten(-1, (4, 6)).permute(0, 2, 1, 3), 0.5), F.dropout(x, 1.0)]


def whole_values(model, x, ids):
    return [x * F.dropout(model.vector, 0.5), F.dropout(x.mean(1), 0.5)]


def other_draws(model, x, ids):
    noise = torch.empty_like(x).uniform_(0.9, 1.1)
    path = torch.rand(x.shape[0], 1, 1, dtype=x.dtype).lt(0.5) * 2.0
    y = x * noise * path + torch.randn_like(x) + torch.empty_like(x).normal_(1.0, 0.1)
    y = y + torch.bernoulli(x.sigmoid()) - torch.empty_like(x).exponential_(2.0).log()
    return [F.rrelu(F.alpha_dropout(y, 0.1), training=True), torch.rand_like(x)]


FORMS = [everywhere, attention_probabilities, tokens_in_other_places, channels, whole_values]


@pytest.mark.parametrize("length", [12, 13])
@pytest.mark.parametrize("form", [*FORMS, other_draws])
def test_ranks_draw_what_one_does(form, length):
    made = program(form, length)
    for ranks in (2, 3, 4):
        autosp.check(made.make(), made.inputs(), sp=ranks)


def test_masks_are_equal_bit_for_bit():
    made = program(lambda model, x, ids: [x, F.dropout(torch.ones_like(x) + 0 * x, 0.5)], 13)
    for ranks in (2, 3, 4):
        for row in autosp.check(made.make(), made.inputs(), sp=ranks).rows:
            assert row.name != "output [2]" or row.verdict == "equal"


def trained(rank, seeds, policy):
    """Two steps, the generator set for the first alone and differently on every rank."""
    made = program(everywhere, 13)
    model, steps = made.make(), []
    call = autosp.compile(model, backend="aot_eager", outputs="full", checkpointing=policy)
    torch.manual_seed(seeds[rank])
    for _ in range(2):
        step = take_step(model, call, made.inputs(), cotangents=True)
        steps.append([*step.outputs, *step.grads.values()])
    return steps


@pytest.mark.gloo
def test_real_ranks_take_the_first_ones_seed(alone):
    want = trained(0, [5], "off")
    assert not want[0][0].equal(want[1][0])
    for got in gloo_pool.run(2, trained, [5, 6], "full"):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


# ---- In a group of one ----


class Masks(nn.Module):
    def __init__(self, p, **options):
        super().__init__()
        self.drop, self.again = nn.Dropout(p, **options), nn.Dropout(p)

    def forward(self, x):
        return self.drop(x + 0), self.again(x + 0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_statistics_are_those_of_torch(p, alone):
    call = autosp.compile(Masks(p, inplace=True), backend=run_as_is)
    x = torch.randn(512, 512, dtype=torch.float64)
    torch.manual_seed(1)
    first, second = call(x)
    with torch.compiler.set_stance("fail_on_recompile"):
        third, _ = call(x)
    torch.manual_seed(1)
    assert call(x)[0].equal(first)  # the user's seed decides
    like = F.dropout(x, p)
    n, keep = x.numel(), 1 - p
    for y in (first, second, third, like):
        assert abs(float((y != 0).double().mean()) - keep) < 5 * math.sqrt(p * keep / n)
        assert y[y != 0].equal(x[y != 0] / keep) or torch.allclose(y[y != 0], x[y != 0] / keep)
        assert abs(float(y.mean() - x.mean())) < 5 * math.sqrt(p / keep / n)
        assert abs(float(y.var() * keep - 1)) < 0.03
    for other in (second, third, like):  # draws of one step, of two steps, and torch's
        both = float(((first != 0) & (other != 0)).double().mean())
        assert abs(both - keep**2) < 5 * math.sqrt(keep**2 * (1 - keep**2) / n)


def test_distributions_are_those_of_torch(alone):
    def forward(x):
        return (
            F.alpha_dropout(F.selu(x), 0.3, True),
            torch.randn_like(x),
            torch.empty_like(x).exponential_(2.0),
            torch.bernoulli(torch.full_like(x, 0.3)),
            F.dropout1d(x.view(1, 4096, 64), 0.5),
        )

    x = torch.randn(4096, 64)
    torch.manual_seed(1)
    alpha, normal, exponential, coins, channels = autosp.compile(forward, backend=run_as_is)(x)
    torch.testing.assert_close(alpha.var(), F.selu(x).var(), rtol=0.02, atol=0)
    torch.testing.assert_close(alpha.mean(), F.selu(x).mean(), rtol=0, atol=0.02)
    for value, moments in ((normal, (0, 1, 0, 3)), (exponential, (1 / 2, 1 / 2, 3 / 4, 3 / 2))):
        for power, moment in enumerate(moments, 1):
            spread = float((value**power).std()) / math.sqrt(value.numel())
            assert abs(float((value**power).mean()) - moment) < 5 * spread
    assert (exponential > 0).all()
    assert abs(float(coins.mean()) - 0.3) < 0.005
    assert (channels.flatten(0, 1) == 0).double().mean(1).unique().tolist() == [0.0, 1.0]


def test_evaluation_draws_nothing(alone):
    model = Masks(0.5)
    call = autosp.compile(model, backend=run_as_is)
    x = torch.randn(4, 8)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    model.eval()
    assert call(x)[0].equal(x) and torch.get_rng_state().equal(before)
    model.train()
    assert not call(x)[0].equal(x) and not torch.get_rng_state().equal(before)


@pytest.mark.inductor
def test_compilers_draw_the_same(alone):
    model, x = Masks(0.5), torch.randn(64, 96)
    results = []
    for backend in (run_as_is, "inductor"):
        torch._dynamo.reset()
        torch.manual_seed(1)
        results.append(autosp.compile(copy.deepcopy(model), backend=backend)(x))
    torch.testing.assert_close(*results, rtol=0, atol=0)


# ---- Memory ----


def test_masks_are_not_kept():
    kept = []
    for p in (0.0, 0.5):
        torch._dynamo.reset()
        blocks = nn.Sequential(*(Block(64, dropout=p) for _ in range(3)))
        joint = capture(blocks, torch.randn(1, 1024, 64), 2, joint=True).joint
        for policy in ("sac", "full"):
            kept.append(joint.plan(policy, device="h100", ranks=2).kept_bytes)
    mask = 512 * 64  # the smallest of them, in bytes
    assert kept[2] - kept[0] < mask and kept[3] - kept[1] < mask


# ---- Refused ----


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return F.dropout(x, 0.5, True)

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_draws_that_ranks_can_not_share():
    def refused(form, reason):
        made = program(form, 12)
        with pytest.raises(autosp.Unsupported, match=reason):
            autosp.check(made.make(), made.inputs(), sp=2)

    generator = torch.Generator()
    refused(lambda m, x, ids: [x * torch.randint_like(x, 9)], "same numbers on any number of ranks")
    refused(
        lambda m, x, ids: [torch.rand_like(x, generator=generator)], "test_dropout.py|generator"
    )
    q = "scaled_dot_product_attention at test_dropout.py:.*dropout_p is 0.1"
    refused(lambda m, x, ids: [F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)], q)
    refused(lambda m, x, ids: [Noisy.apply(x)], "dropout at test_dropout.py:.*draw them outside")

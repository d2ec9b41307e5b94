"""Every conversion against what the definitions of the placements say, computed from all ranks'
values at once.
"""

import math

import autosp.collectives  # noqa: F401  registers torch.ops.autosp
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from autosp.errors import InternalError
from simulate import RanksFailed, run_ranks

ops = torch.ops.autosp


def group_name():
    return dist.group.WORLD.group_name


class Parts:
    """A dimension of n rows in P parts of ceil(n / P), on lists with one tensor per rank."""

    def __init__(self, ranks, dim, size):
        self.ranks, self.dim, self.size = ranks, dim, size
        self.length = math.ceil(size / ranks)
        self.exact = self.length * ranks == size

    def pad(self, x, fill=0.0):
        shape = list(x.shape)
        shape[self.dim] = self.ranks * self.length - self.size
        return torch.cat([x, torch.full(shape, fill, dtype=x.dtype)], self.dim)

    def own(self, xs, fill=0.0):
        return [self.pad(x, fill).chunk(self.ranks, self.dim)[r] for r, x in enumerate(xs)]

    def join(self, xs):
        whole = torch.cat(xs, self.dim).narrow(self.dim, 0, self.size)
        return [whole] * self.ranks

    def place(self, xs):
        zero = [torch.zeros_like(x) for x in xs]
        return [
            self.join([xs[r] if r == rank else zero[r] for r in range(self.ranks)])[0]
            for rank in range(self.ranks)
        ]


def total(xs):
    return [torch.stack(xs).sum(0)] * len(xs)


def first(xs):
    return [x if r == 0 else torch.zeros_like(x) for r, x in enumerate(xs)]


def same(xs):
    return xs


def times_ranks(xs):
    return [x * len(xs) for x in xs]


# name: (apply on one rank, is its input a part, forward of all ranks, adjoint of all ranks)
CONVERSIONS = {
    "r_to_v": (
        lambda x, p, r: ops.r_to_v(x, p.ranks, group_name()),
        False,
        lambda p, xs: xs,
        lambda p, gs: total(gs),
    ),
    "r_to_v unreduced": (
        lambda x, p, r: ops.r_to_v(x, p.ranks, group_name(), False),
        False,
        lambda p, xs: xs,
        lambda p, gs: times_ranks(gs),
    ),
    "r_to_s": (
        lambda x, p, r: ops.r_to_s(x, p.dim, p.length, p.exact, 7.0, r, p.ranks, group_name()),
        False,
        lambda p, xs: p.own(xs, 7.0),
        lambda p, gs: p.join(gs),
    ),
    "v_to_s": (
        lambda x, p, r: ops.v_to_s(x, p.dim, p.length, p.exact, 7.0, r, p.ranks, group_name()),
        False,
        lambda p, xs: p.own(xs, 7.0),
        lambda p, gs: p.place(gs),
    ),
    "s_to_r": (
        lambda x, p, r: ops.s_to_r(x, p.dim, p.size, p.exact, r, p.ranks, group_name()),
        True,
        lambda p, xs: p.join(xs),
        lambda p, gs: p.own(gs),
    ),
    "s_to_v": (
        lambda x, p, r: ops.s_to_v(x, p.dim, p.size, p.exact, r, p.ranks, group_name()),
        True,
        lambda p, xs: p.join(xs),
        lambda p, gs: p.own(total(gs)),
    ),
    "p_to_r": (
        lambda x, p, r: ops.p_to_r(x, group_name()),
        False,
        lambda p, xs: total(xs),
        lambda p, gs: gs,
    ),
    "p_to_v": (
        lambda x, p, r: ops.p_to_v(x, group_name()),
        False,
        lambda p, xs: total(xs),
        lambda p, gs: total(gs),
    ),
    "p_to_s": (
        lambda x, p, r: ops.p_to_s(x, p.dim, p.length, p.exact, r, p.ranks, group_name()),
        False,
        lambda p, xs: p.own(total(xs)),
        lambda p, gs: p.join(gs),
    ),
    "r_to_p": (
        lambda x, p, r: ops.r_to_p(x, r),
        False,
        lambda p, xs: first(xs),
        lambda p, gs: gs,
    ),
    "v_to_r": (
        lambda x, p, r: ops.v_to_r(x, r),
        False,
        lambda p, xs: xs,
        lambda p, gs: first(gs),
    ),
}

PARTS = [(2, 0, 4), (2, 1, 3), (3, 2, 6), (3, 1, 7), (4, 1, 8), (4, 0, 5), (4, 2, 2)]


def strided(shape, seed, dtype=torch.float64):
    """Numbers in a layout that is nowhere contiguous."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-50, 50, [2 * n for n in reversed(shape)], generator=generator).to(dtype)
    return x[::2, ::2, ::2].permute(2, 1, 0)


@pytest.mark.parametrize("ranks, dim, size", PARTS)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_forward_and_adjoint(name, ranks, dim, size):
    apply, from_part, forward, adjoint = CONVERSIONS[name]
    parts = Parts(ranks, dim, size)
    shape = [2, 3, 4]
    shape[dim] = parts.length if from_part else size
    xs = [strided(shape, r) for r in range(ranks)]
    expected = forward(parts, xs)
    gs = [strided(expected[0].shape, 10 + r) for r in range(ranks)]

    def on_rank(rank):
        x = xs[rank].detach().requires_grad_()
        y = apply(x, parts, rank)
        (grad,) = torch.autograd.grad(y, x, gs[rank])
        with torch.no_grad():
            assert torch.equal(apply(x, parts, rank), y)
        return y.detach(), grad

    results = run_ranks(ranks, on_rank)
    for (y, grad), y_expected, grad_expected in zip(
        results, expected, adjoint(parts, gs), strict=True
    ):
        assert torch.equal(y, y_expected)
        assert torch.equal(grad, grad_expected)


@pytest.mark.parametrize("name", ["r_to_s", "s_to_v", "p_to_s", "v_to_s", "s_to_r", "r_to_p"])
def test_adjoint_of_the_adjoint_is_the_conversion(name):
    apply, from_part, forward, _ = CONVERSIONS[name]
    parts = Parts(3, 1, 6)
    xs = [strided([2, 2 if from_part else 6, 2], r) for r in range(3)]
    expected = forward(parts, xs)

    def on_rank(rank):
        x = torch.zeros_like(xs[rank]).requires_grad_()
        y = apply(x, parts, rank)
        g = torch.zeros_like(y).requires_grad_()
        (grad,) = torch.autograd.grad(y, x, g, create_graph=True)
        return torch.autograd.grad(grad, g, xs[rank])[0]

    for result, y in zip(run_ranks(3, on_rank), expected, strict=True):
        assert torch.equal(result, y)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("name", ["r_to_s", "s_to_r", "p_to_r", "p_to_s", "r_to_v", "r_to_p"])
def test_dtypes(name, dtype):
    if dtype == torch.bool and name.startswith("p_to"):
        pytest.skip("no sums of truth values")
    apply, from_part, forward, _ = CONVERSIONS[name]
    parts = Parts(3, 1, 5)
    xs = [strided([1, 2 if from_part else 5, 2], r, dtype) for r in range(3)]
    results = run_ranks(3, lambda rank: apply(xs[rank], parts, rank))
    for y, y_expected in zip(results, forward(parts, xs), strict=True):
        assert y.dtype == dtype
        assert torch.equal(y, y_expected.to(dtype))


# ---- all_to_all ----


def heads_to_tokens(xs, tokens, heads):
    """From [1, all tokens, part of heads, d] on each rank to [1, part of tokens, all heads, d]."""
    return tokens.own(heads.join(xs))


@pytest.mark.parametrize("ranks, size", [(2, 4), (3, 5), (4, 8)])
def test_all_to_all(ranks, size):
    tokens, widths = Parts(ranks, 1, size), (2, 3)
    heads = [Parts(ranks, 2, ranks * width) for width in widths]

    def values(of_rank, seed):
        shape = [2, size, 1] if of_rank else [2, tokens.length, ranks]
        return [
            [
                strided([n * w if i == 2 else n for i, n in enumerate(shape)], seed + r)
                for w in widths
            ]
            for r in range(ranks)
        ]

    xs, gs = values(True, 0), values(False, 100)
    per_list = [[x[i] for x in xs] for i in range(2)]
    forward = [tokens.own(heads[i].join(per_list[i])) for i in range(2)]
    grads = [heads[i].own(tokens.join([g[i] for g in gs])) for i in range(2)]

    def on_rank(rank):
        leaves = [x.detach().requires_grad_() for x in xs[rank]]
        lengths, wholes = [tokens.length] * 2, [h.size for h in heads]
        ys = ops.all_to_all(
            leaves, [1, 1], lengths, [2, 2], wholes, tokens.exact, ranks, group_name()
        )
        return ys, torch.autograd.grad(ys, leaves, gs[rank])

    for rank, (ys, got) in enumerate(run_ranks(ranks, on_rank)):
        for i in range(2):
            assert torch.equal(ys[i], forward[i][rank])
            assert torch.equal(got[i], grads[i][rank])


def test_all_to_all_exchanges_only_needed_cotangents_once():
    def on_rank(rank):
        calls = CountCollectives()
        frozen, trained = torch.ones(4, 2), torch.ones(4, 3, requires_grad=True)
        with calls:
            ys = ops.all_to_all(
                [frozen, trained], [0, 0], [2, 2], [1, 1], [4, 6], True, 2, group_name()
            )
            sum(y.sum() for y in ys).backward()
        return calls.elements, trained.grad

    for elements, grad in run_ranks(2, on_rank):
        assert elements == [4 * 2 + 4 * 3, 4 * 3]
        assert torch.equal(grad, torch.ones(4, 3))


class CountCollectives(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.elements = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if (
            func.namespace == "_c10d_functional"
            and func is not torch.ops._c10d_functional.wait_tensor.default
        ):
            self.elements.append(args[0].numel())
        return func(*args, **(kwargs or {}))


def test_all_to_all_of_truth_values():
    xs = [strided([4, 1, 1], r, torch.bool) for r in range(2)]
    results = run_ranks(
        2, lambda rank: ops.all_to_all([xs[rank]], [0], [2], [1], [2], True, 2, group_name())
    )
    whole = torch.cat(xs, 1)
    assert torch.equal(torch.cat([r[0] for r in results]), whole)


def test_all_to_all_refuses_mixed_dtypes():
    xs = [torch.ones(2, 1), torch.ones(2, 1, dtype=torch.bfloat16)]

    def on_rank(rank):
        ops.all_to_all(xs, [0, 0], [1, 1], [1, 1], [2, 2], True, 2, group_name())

    with pytest.raises(RanksFailed) as failed:
        run_ranks(2, on_rank)
    for error in failed.value.errors.values():
        assert isinstance(error, InternalError)
        assert "differ in dtype" in str(error)


# ---- mask_tail ----


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_mask_tail(dtype):
    for rank, kept in enumerate([3, 2, 0]):
        x = strided([2, 3, 2], rank, dtype)
        y = ops.mask_tail(x, 1, 5, -1.0, rank)
        assert torch.equal(y[:, :kept], x[:, :kept])
        assert torch.equal(y[:, kept:], torch.full_like(x[:, kept:], -1))
    x = torch.ones(2, 3, requires_grad=True)
    ops.mask_tail(x, 1, 5, float("-inf"), 1).exp().sum().backward()
    assert torch.equal(x.grad, torch.tensor([[math.e, math.e, 0.0]] * 2))


# ---- Meaning: a small sharded program against one device ----


def test_sharded_mean_loss_has_the_gradients_of_one_device():
    """Tokens sharded, weights replicated, a length that P doesn't divide, a head exchange."""
    n, width, ranks = 10, 6, 3
    x, w, target = (strided([1, a, b], a * b) / 10 for a, b in [(n, 4), (4, width), (n, width)])

    def one_device(w):
        h = torch.tanh(x @ w)
        return F.mse_loss(h.cumsum(1), target)

    w_single = w.detach().requires_grad_()
    one_device(w_single).backward()

    def on_rank(rank):
        group, u = group_name(), 4
        weight = w.detach().requires_grad_()
        local = ops.r_to_s(x, 1, u, False, 0.0, rank, ranks, group)
        h = torch.tanh(local @ ops.r_to_v(weight, ranks, group))
        (h,) = ops.all_to_all([h], [2], [width // ranks], [1], [n], False, ranks, group)
        (h,) = ops.all_to_all([h.cumsum(1)], [1], [u], [2], [width], False, ranks, group)
        error = (h - ops.r_to_s(target, 1, u, False, 0.0, rank, ranks, group)).square()
        error = ops.mask_tail(error, 1, n, 0.0, rank)
        loss = ops.p_to_r(error.sum(), group) / (n * width)
        loss.backward()
        return loss.detach(), weight.grad

    for loss, grad in run_ranks(ranks, on_rank):
        torch.testing.assert_close(loss, one_device(w), rtol=1e-14, atol=0)
        torch.testing.assert_close(grad, w_single.grad, rtol=1e-13, atol=1e-14)

"""Every conversion against what the definitions of the placements say."""

import math

import gloo_pool
import pytest
import torch
import torch.nn.functional as F
from autosp.errors import InternalError
from autosp.simulate import RanksFailed, run_ranks
from placements import CONVERSIONS, Parts, group, ops, strided


@pytest.mark.parametrize(
    "ranks, dim, size",
    [(2, 0, 4), (2, 1, 3), (3, 2, 6), (3, 1, 7), (4, 1, 8), (4, 0, 5), (4, 2, 2)],
)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_forward_and_adjoint(name, ranks, dim, size):
    conversion, parts = CONVERSIONS[name], Parts(ranks, dim, size)
    xs = conversion.arguments(parts, [2, 3, 4])
    expected = conversion.forward(parts, xs)
    gs = [strided(expected[0].shape, 10 + rank) for rank in range(ranks)]

    def on_rank(rank):
        x = xs[rank].detach().requires_grad_()
        y = conversion.run(x, parts, rank, group())
        (grad,) = torch.autograd.grad(y, x, gs[rank])
        with torch.no_grad():
            assert torch.equal(conversion.run(x, parts, rank, group()), y)
        return y.detach(), grad

    grads = conversion.adjoint(parts, gs)
    for rank, (y, grad) in enumerate(run_ranks(ranks, on_rank)):
        assert torch.equal(y, expected[rank])
        assert torch.equal(grad, grads[rank])


@pytest.mark.parametrize("name", ["r_to_s", "s_to_v", "p_to_s", "v_to_s", "s_to_r", "r_to_p"])
def test_adjoint_of_the_adjoint_is_the_conversion(name):
    conversion, parts = CONVERSIONS[name], Parts(3, 1, 6)
    xs = conversion.arguments(parts, [2, 6, 2])

    def on_rank(rank):
        x = torch.zeros_like(xs[rank]).requires_grad_()
        y = conversion.run(x, parts, rank, group())
        g = torch.zeros_like(y).requires_grad_()
        (grad,) = torch.autograd.grad(y, x, g, create_graph=True)
        return torch.autograd.grad(grad, g, xs[rank])[0]

    for result, y in zip(run_ranks(3, on_rank), conversion.forward(parts, xs), strict=True):
        assert torch.equal(result, y)


DTYPES = [torch.bool, torch.int32, torch.int64, torch.bfloat16, torch.float32]


def every_conversion(rank, ranks, dtype):
    """name -> result, of those that make sense for the type."""
    parts = Parts(ranks, 1, 5)
    return {
        name: conversion.run(
            conversion.arguments(parts, [2, 5, 3], dtype)[rank], parts, rank, group()
        )
        for name, conversion in CONVERSIONS.items()
        if dtype != torch.bool or not name.startswith("p_to")
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "run, ranks",
    [
        (run_ranks, 3),
        pytest.param(gloo_pool.run, 2, marks=pytest.mark.gloo),
        pytest.param(gloo_pool.run, 4, marks=pytest.mark.gloo),
    ],
    ids=["threads", "gloo-2", "gloo-4"],
)
def test_dtypes(run, ranks, dtype):
    parts = Parts(ranks, 1, 5)
    for rank, results in enumerate(run(ranks, every_conversion, ranks, dtype)):
        for name, y in results.items():
            conversion = CONVERSIONS[name]
            xs = conversion.arguments(parts, [2, 5, 3], dtype)
            assert y.dtype == dtype
            assert torch.equal(y, conversion.forward(parts, xs)[rank])


# ---- all_to_all ----


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
    forward = [tokens.own(heads[i].join(per_list[i]), edge=True) for i in range(2)]
    grads = [heads[i].own(tokens.join([g[i] for g in gs])) for i in range(2)]

    def on_rank(rank):
        leaves = [x.detach().requires_grad_() for x in xs[rank]]
        lengths, wholes = [tokens.length] * 2, [h.size for h in heads]
        ys = ops.all_to_all(leaves, [1, 1], lengths, [2, 2], wholes, tokens.exact, ranks, group())
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
            ys = ops.all_to_all([frozen, trained], [0, 0], [2, 2], [1, 1], [4, 6], True, 2, group())
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


def test_all_to_all_refuses_mixed_dtypes():
    xs = [torch.ones(2, 1), torch.ones(2, 1, dtype=torch.bfloat16)]

    def on_rank(rank):
        ops.all_to_all(xs, [0, 0], [1, 1], [1, 1], [2, 2], True, 2, group())

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
        name, u = group(), 4
        weight = w.detach().requires_grad_()
        local = ops.r_to_s(x, 1, u, False, rank, ranks, name)
        h = torch.tanh(local @ ops.r_to_v(weight, ranks, name))
        (h,) = ops.all_to_all([h], [2], [width // ranks], [1], [n], False, ranks, name)
        (h,) = ops.all_to_all([h.cumsum(1)], [1], [u], [2], [width], False, ranks, name)
        error = (h - ops.r_to_s(target, 1, u, False, rank, ranks, name)).square()
        error = ops.mask_tail(error, 1, n, 0.0, rank)
        loss = ops.p_to_r(error.sum(), name) / (n * width)
        loss.backward()
        return loss.detach(), weight.grad

    for loss, grad in run_ranks(ranks, on_rank):
        torch.testing.assert_close(loss, one_device(w), rtol=1e-14, atol=0)
        torch.testing.assert_close(grad, w_single.grad, rtol=1e-13, atol=1e-14)

"""The operators on rows of other ranks against torch on the whole dimension: values, gradients, and
that compilers see through them at any length.
"""

import math

import autosp.collectives  # noqa: F401  registers torch.ops.autosp
import pytest
import torch
import torch.nn.functional as F
from autosp.errors import InternalError
from autosp.simulate import RanksFailed, run_ranks
from placements import group, ops
from torch._dynamo.testing import CompileCounterWithBackend


class Parts:
    """Dimension 1 of n rows on `ranks` ranks, as an operator's last arguments."""

    def __init__(self, n, ranks, rank):
        self.n, self.ranks, self.rank = n, ranks, rank
        self.length = math.ceil(n / ranks)
        self.exact = self.length * ranks == n
        self.end = (rank, ranks, group())
        self.extent = (n, self.exact, *self.end)

    def own(self, x):
        rows = torch.arange(self.ranks * self.length).clamp(max=self.n - 1)
        return x[:, rows].narrow(1, self.rank * self.length, self.length)

    def halo(self, x, before, after, wrap=False, far=False, fill=0.0):
        return ops.halo(x, 1, before, after, self.n, self.exact, wrap, far, fill, *self.end)


def shifted(before, after, fill=0.0):
    """A halo of as many rows as the part has, and what it is on one device."""
    n_after = -before if after is None else after
    return (
        lambda x, p: p.halo(x, before, n_after, far=max(before, n_after) > p.length, fill=fill),
        lambda x: F.pad(x, (0, 0, before, n_after), value=fill),
    )


def rolled(by):
    return (
        lambda x, p: p.halo(x, by, -by, True, not p.exact or abs(by) > p.length),
        lambda x: x.roll(by, 1),
    )


def reduced(kind, dims, keepdim, p, reference):
    return (
        lambda x, q: ops.reduce_rows(x, kind, dims, 1, keepdim, p, *q.extent),
        lambda x: reference(x, dims, keepdim),
    )


def order(p):
    return lambda x, dims, keepdim: torch.linalg.vector_norm(x, p, dims, keepdim)


# name -> (on a part, on one device); what gives rows, and what gives one value on every rank.
ROWS = {
    "cumsum": (lambda x, p: ops.scan_rows(x, "cumsum", 1, *p.end), lambda x: x.cumsum(1)),
    "cumprod": (lambda x, p: ops.scan_rows(x, "cumprod", 1, *p.end), lambda x: x.cumprod(1)),
    "logcumsumexp": (
        lambda x, p: ops.scan_rows(x, "logcumsumexp", 1, *p.end),
        lambda x: x.logcumsumexp(1),
    ),
    "cummax": (
        lambda x, p: ops.scan_extremes(x, True, 1, *p.end)[0],
        lambda x: x.cummax(1).values,
    ),
    "cummin, where": (
        lambda x, p: ops.scan_extremes(x, False, 1, *p.end)[1],
        lambda x: x.cummin(1).indices,
    ),
    "softmax": (lambda x, p: ops.softmax_rows(x, False, 1, *p.extent), lambda x: x.softmax(1)),
    "log_softmax": (
        lambda x, p: ops.softmax_rows(x, True, 1, *p.extent),
        lambda x: x.log_softmax(1),
    ),
    "flip": (lambda x, p: ops.flip_rows(x, 1, *p.extent), lambda x: x.flip(1)),
    "one back": shifted(1, None),
    "two on": shifted(-2, None, 2.5),
    "five back": shifted(5, None, 1.0),
    "around": rolled(1),
    "far around": rolled(-5),
}
VALUES = {
    "variance": (
        lambda x, p: ops.variance_rows(x, [1], 1, False, False, 1.0, p.n, *p.extent)[0],
        lambda x: x.var(1),
    ),
    "deviation": (
        lambda x, p: ops.variance_rows(x, [0, 1], 1, True, True, 0.0, 2 * p.n, *p.extent)[0],
        lambda x: x.std((0, 1), unbiased=False, keepdim=True),
    ),
    "maximum": (
        lambda x, p: ops.extreme_rows(x, True, 1, False, *p.extent)[0],
        lambda x: x.max(1).values,
    ),
    "minimum, where": (
        lambda x, p: ops.extreme_rows(x, False, 1, True, *p.extent)[1],
        lambda x: x.min(1, keepdim=True).indices,
    ),
    "amax": reduced("amax", [1], False, 0.0, torch.amax),
    "amin": reduced("amin", [0, 1], True, 0.0, torch.amin),
    "product": reduced("prod", [1], False, 0.0, lambda x, dims, keepdim: x.prod(1)),
    "logsumexp": reduced("logsumexp", [1, 2], False, 0.0, torch.logsumexp),
    "norm": reduced("norm", [1], True, 2.0, order(2)),
    "norm 3": reduced("norm", [0, 1], False, 3.0, order(3)),
    "norm inf": reduced("norm", [1], False, math.inf, order(math.inf)),
}


def numbers(shape, seed, ties):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    return (x * 2).round() / 2 if ties else x


@pytest.mark.parametrize(("ranks", "n"), [(2, 7), (3, 5), (4, 5), (4, 2)])
def test_rows_past_the_end_repeat_the_last(ranks, n):
    x = numbers([2, n, 3], n, False)

    def on_rank(rank):
        parts = Parts(n, ranks, rank)
        want = parts.own(x)
        there = torch.arange(parts.length) + rank * parts.length < n
        part = want.where(there[:, None], torch.nan).requires_grad_()
        y = ops.edge_rows(part, 1, *parts.extent)
        assert torch.equal(y, want)
        y.sum().backward()
        assert torch.equal(part.grad, there[:, None].expand_as(part).double())

    run_ranks(ranks, on_rank)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("ranks", "n"), [(2, 12), (2, 7), (3, 9), (3, 5), (4, 13), (4, 5)])
def test_values_and_gradients(ranks, n, ties):
    x = numbers([2, n, 3], n, ties)

    def on_rank(rank):
        parts, found = Parts(n, ranks, rank), {}
        for name, (run, _) in (ROWS | VALUES).items():
            part = parts.own(x).clone().requires_grad_()
            y = run(part, parts)
            found[name] = [y.detach(), None]
            if not y.is_floating_point():
                continue
            g = numbers(y.shape, rank if name in ROWS else 0, False)
            if name in ROWS:  # nothing counts the rows past the end
                g[:, max(0, n - rank * parts.length) :] = 0
            found[name][1] = torch.autograd.grad(y, part, g)[0]
        return found

    results = run_ranks(ranks, on_rank)
    length = math.ceil(n / ranks)
    for name, (_, reference) in (ROWS | VALUES).items():
        whole = x.clone().requires_grad_()
        want = reference(whole)
        got = [result[name][0] for result in results]
        if name in ROWS:
            got = [torch.cat(got, 1)[:, :n]]
        for y in got:
            torch.testing.assert_close(
                y, want.detach(), msg=lambda text, name=name: f"{name}: {text}"
            )
        if not want.is_floating_point():
            continue
        gs = [numbers([*want.shape], rank if name in ROWS else 0, False) for rank in range(ranks)]
        g = gs[0]
        if name in ROWS:
            parts = [numbers([2, length, 3], rank, False) for rank in range(ranks)]
            g = torch.cat(parts, 1)[:, :n]
        grad = torch.autograd.grad(want, whole, g)[0]
        own = torch.cat([result[name][1] for result in results], 1)
        assert not own.isnan().any(), name
        torch.testing.assert_close(
            own[:, :n], grad, msg=lambda text, name=name: f"gradient of {name}: {text}"
        )


def test_a_halo_wider_than_a_part_must_be_told_so():
    def on_rank(rank):
        Parts(4, 2, rank).halo(torch.ones(1, 2, 1), 3, 0)

    with pytest.raises(RanksFailed) as raised:
        run_ranks(2, on_rank)
    assert all(isinstance(error, InternalError) for error in raised.value.errors.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_round_once(dtype):
    x = numbers([2, 64, 3], 0, False).to(dtype)
    runs = {name: pair for name, pair in (ROWS | VALUES).items() if name != "product"}

    def on_rank(rank):
        parts = Parts(64, 4, rank)
        return {name: run(parts.own(x), parts) for name, (run, _) in runs.items()}

    results = run_ranks(4, on_rank)
    for name, (_, reference) in runs.items():
        want = reference(x)
        got = [result[name] for result in results]
        got = torch.cat(got, 1) if name in ROWS else got[0]
        assert got.dtype == want.dtype, name
        exact = reference(x.double())
        assert (got - exact).abs().max() <= 1.5 * (want - exact).abs().max() + 1e-6, name


def program(x, w, rank, ranks, exact, name):
    """Reads rows in every way. x: [batch, tokens, 4], w: [4]."""
    n = x.size(1)
    u = n // ranks if exact else (n + ranks - 1) // ranks
    end = (rank, ranks, name)
    h = ops.r_to_s(x, 1, u, exact, *end) * ops.r_to_v(w, ranks, name)
    y = ops.halo(h, 1, 2, 1, n, exact, False, False, 0.0, *end)
    y = y[:, :u] * y[:, 3 : u + 3] + ops.halo(h, 1, 1, -1, n, exact, True, True, 0.0, *end)
    y = y + ops.scan_rows(h.tanh(), "cumsum", 1, *end) + ops.flip_rows(h, 1, n, exact, *end)
    y = y + ops.rows_at(
        ops.r_to_v(w, ranks, name)[None, None] * h.new_ones(2, 1, 1), 1, u, 0, 1, rank
    )
    y = y * ops.softmax_rows(h, False, 1, n, exact, *end)
    last = ops.p_to_r(ops.take_rows(y, 1, n - 1, 1, rank), name)
    spread, _ = ops.variance_rows(y, [1], 1, False, True, 1.0, n, n, exact, *end)
    high = ops.reduce_rows(h, "amax", [1], 1, False, 0.0, n, exact, *end)
    return last.sum() + (spread * high).sum(), ops.s_to_r(y, 1, n, exact, *end)


def compiled_equals_eager(rank, ranks, exact, lengths, compiler):
    generator = torch.Generator().manual_seed(0)
    counter = CompileCounterWithBackend(compiler)
    run = torch.compile(
        lambda x, w, name: program(x, w, rank, ranks, exact, name), backend=counter, fullgraph=True
    )
    for n in lengths:
        x = torch.randn(2, n, 4, dtype=torch.float64, generator=generator).requires_grad_()
        w = torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_()
        torch._dynamo.mark_dynamic(x, 1)
        outcomes = []
        for call in (lambda *args: program(args[0], args[1], rank, ranks, exact, args[2]), run):
            loss, result = call(x, w, group())
            grads = torch.autograd.grad(loss + result.square().sum(), [x, w])
            outcomes.append([loss, result, *grads])
        torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-9, atol=1e-11)
    return counter.frame_count


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "exact", "lengths"), [(2, True, (8, 12)), (3, False, (10, 13))])
def test_compiled(fresh_dynamo, ranks, exact, lengths):
    args = (ranks, exact, lengths, "aot_eager")
    assert run_ranks(ranks, compiled_equals_eager, *args) == [1] * ranks


@pytest.mark.inductor
def test_inductor(fresh_dynamo):
    args = (2, True, (8, 12), "inductor")
    assert run_ranks(2, compiled_equals_eager, *args, timeout_seconds=550) == [1, 1]

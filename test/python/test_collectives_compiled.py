"""Compilers see through the conversions: plain functional collectives, our adjoints, any length."""

import types

import autosp.collectives  # noqa: F401  registers torch.ops.autosp
import pytest
import torch
import torch.distributed as dist
from autosp.simulate import run_ranks
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.compile_fx import compile_fx
from torch._inductor.utils import fresh_cache
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

ops = torch.ops.autosp


def program(x, w, rank, ranks, exact, group):
    """Uses every conversion. x: [batch, tokens, 4], w: [4, heads]."""
    n, heads = x.size(1), w.size(1)
    u = n // ranks if exact else (n + ranks - 1) // ranks
    part = (u, exact, rank, ranks, group)
    whole = (n, exact, rank, ranks, group)
    h = torch.tanh(ops.r_to_s(x, 1, *part) @ ops.r_to_v(w, ranks, group))
    q, k = ops.all_to_all(
        [h, h.sin()], [2, 2], [heads // ranks] * 2, [1, 1], [n, n], exact, ranks, group
    )
    mixed = q.cumsum(1) * k + x.sum(2, keepdim=True)
    (o,) = ops.all_to_all([mixed], [1], [u], [2], [heads], exact, ranks, group)
    o = ops.mask_tail(o, 1, n - 1, 0.0, rank)
    v = ops.s_to_v(o, 1, *whole)
    t = ops.v_to_s(v * x.mean(2, keepdim=True), 1, *part)
    z = ops.p_to_s(ops.r_to_p(x.sum(2, keepdim=True), rank) + 0 * v, 1, u, *whole[1:])
    result = ops.s_to_r(t + z, 1, *whole)
    return ops.p_to_r(o.sum(), group) + ops.v_to_r(ops.p_to_v(t.sum(), group), rank), result


class Compiled:
    """`program` of one rank: compiled by `compiler`, how often, and the graphs' collectives."""

    def __init__(self, compiler, rank, ranks, exact):
        self.compilations, self.collectives, self.namespaces = 0, {"fw": [], "bw": []}, set()
        inner = compile_fx if compiler == "inductor" else self._eager_compiler()

        def backend(gm, example_inputs):
            self.compilations += 1
            for node in gm.graph.find_nodes(op="placeholder"):
                size = node.meta["example_value"]
                if exact and isinstance(size, torch.SymInt):
                    assert size % ranks == 0
            return inner(gm, example_inputs)

        # Dynamo remembers by name which of a function's integers change between calls
        own = types.FunctionType(program.__code__.replace(co_name=f"rank_{rank}"), globals())
        self.run = torch.compile(own, backend=backend, fullgraph=True)

    def _eager_compiler(self):
        def keep(which):
            def compiler(gm, example_inputs):
                for node in gm.graph.nodes:
                    if isinstance(node.target, torch._ops.OpOverload):
                        self.namespaces.add(node.target.namespace)
                        if node.target.namespace == "_c10d_functional":
                            self.collectives[which].append(node.target.__name__.split(".")[0])
                return make_boxed_func(gm.forward)

            return compiler

        return aot_autograd(
            fw_compiler=keep("fw"),
            bw_compiler=keep("bw"),
            partition_fn=min_cut_rematerialization_partition,
        )


def compiled_equals_eager(rank, ranks, exact, lengths, dynamic, compiler):
    group = dist.group.WORLD.group_name
    generator = torch.Generator().manual_seed(0)
    compiled = Compiled(compiler, rank, ranks, exact)

    def leaf(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    for n in lengths:
        x, w = leaf(2, n, 4), leaf(4, 2 * ranks)
        if dynamic:
            torch._dynamo.mark_dynamic(x, 1)
        outcomes = []
        for run in (program, compiled.run):
            loss, result = run(x, w, rank, ranks, exact, group)
            assert result.shape == (2, n, 2 * ranks)
            grads = torch.autograd.grad(loss + result.square().sum(), [x, w])
            outcomes.append([loss, result, *grads])
        torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-11, atol=1e-11)
        with torch.no_grad():
            torch.testing.assert_close(program(x, w, rank, ranks, exact, group)[0], loss)
    return compiled


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks, exact, dynamic, lengths, compilations",
    [
        (2, True, True, (8, 12, 6), 1),
        (2, True, False, (8, 12, 6), 2),
        (2, False, True, (7, 11, 9), 1),
        (3, False, False, (8, 10, 11), 2),
    ],
)
def test_values_compilations_and_graphs(ranks, exact, dynamic, lengths, compilations):
    def names(which):
        return sorted(name for name in compiled.collectives[which] if name != "wait_tensor")

    gather, scatter = "all_gather_into_tensor", "reduce_scatter_tensor"
    exchange, reduce = "all_to_all_single", "all_reduce"
    once = [gather] * 2 + [reduce] * 2 + [exchange] * 2 + [scatter]
    args = (ranks, exact, lengths, dynamic, "eager")
    for compiled in run_ranks(ranks, compiled_equals_eager, *args):
        assert compiled.compilations == compilations
        assert "autosp" not in compiled.namespaces
        # s_to_v, s_to_r; p_to_r, p_to_v; two exchanges; p_to_s
        assert names("fw") == sorted(once * compilations)
        # adjoints of r_to_s and p_to_s; of p_to_v and r_to_v; of the exchanges; of s_to_v
        assert names("bw") == sorted(once * compilations)


@pytest.mark.inductor
@pytest.mark.parametrize("exact, dynamic, lengths", [(True, True, (8, 12)), (False, False, (7,))])
def test_inductor(exact, dynamic, lengths):
    args = (2, exact, lengths, dynamic, "inductor")
    for compiled in run_ranks(2, compiled_equals_eager, *args, timeout_seconds=550):
        assert compiled.compilations == 1


@pytest.fixture
def fake_group():
    """Two ranks of which only rank 0 exists; nothing is exchanged."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


@pytest.mark.inductor
def test_compiler_cache_keeps_the_ranks_apart(fake_group):
    def own_part(x, rank):
        return ops.r_to_s(ops.r_to_v(x, 2, fake_group), 0, 2, True, rank, 2, fake_group).sin()

    x = torch.arange(4.0, requires_grad=True)
    seen = []
    with fresh_cache():
        for rank in (0, 0, 1):
            torch._dynamo.reset()
            counters.clear()
            y = torch.compile(own_part, fullgraph=True)(x, rank)
            y.sum().backward()
            assert torch.equal(y, x[2 * rank :][:2].sin())
            statistics = counters["aot_autograd"]
            assert statistics["autograd_cache_bypass"] == 0
            seen.append((statistics["autograd_cache_hit"], statistics["autograd_cache_miss"]))
    assert seen == [(0, 1), (1, 0), (0, 1)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_conversions_that_move_nothing_are_no_aliasing_error(dynamic):
    def identities(rank, group):
        def function(x):
            r, p, v = ops.r_to_v(x, 1, group), ops.r_to_p(x, 0), ops.v_to_r(x, 0)
            part = ops.r_to_s(x, 0, x.size(0), True, 0, 1, group)
            (exchanged,) = ops.all_to_all([x], [0], [x.size(0)], [1], [x.size(1)], True, 1, group)
            gathered = ops.s_to_r(x, 0, x.size(0), True, 0, 1, group)
            return r, p, v, part, exchanged, gathered, ops.p_to_r(x, group)

        x = torch.randn(4, 3, requires_grad=True)
        ys = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)(x)
        sum(y.sum() for y in ys).backward()
        assert all(torch.equal(y, x) for y in ys)
        assert torch.equal(x.grad, torch.full((4, 3), 7.0))

    with torch._functorch.config.patch(error_on_custom_op_aliasing=True):
        run_ranks(1, lambda rank: identities(rank, dist.group.WORLD.group_name))


def test_fake_tensors_over_a_fake_group(fake_group):
    with FakeTensorMode():
        x, w = torch.empty(2, 8, 4, requires_grad=True), torch.empty(4, 6, requires_grad=True)
        loss, result = program(x, w, 0, 2, True, fake_group)
        (loss + result.sum()).backward()
        assert result.shape == (2, 8, 6)
        assert x.grad.shape == x.shape
        assert w.grad.shape == w.shape


def test_real_tensors_over_a_fake_group(fake_group):
    x, w = torch.ones(2, 8, 4, requires_grad=True), torch.ones(4, 6, requires_grad=True)
    loss, result = program(x, w, 0, 2, True, fake_group)
    (loss + result.sum()).backward()
    assert result.shape == (2, 8, 6)
    assert x.grad.shape == x.shape


def test_gathered_sizes_are_the_given_symbol():
    sizes = []

    def note_sizes(gm, example_inputs):
        for node in gm.graph.nodes:
            if getattr(node.target, "namespace", None) == "autosp":
                value = node.meta["example_value"]
                for y in value if isinstance(value, list) else [value]:
                    sizes.append(y.size(0).node.expr)
        return gm

    def gathers(x, group):
        n, u = x.size(0), x.size(0) // 2
        part = ops.r_to_s.default(x, 0, u, True, 0, 2, group)
        whole = ops.s_to_r.default(part, 0, n, True, 0, 2, group)
        again = ops.s_to_v.default(part, 0, n, True, 0, 2, group)
        (exchanged,) = ops.all_to_all.default([part], [1], [2], [0], [n], True, 2, group)
        return whole, again, exchanged

    def on_rank(rank):
        x = torch.ones(6, 4)
        torch._dynamo.mark_dynamic(x, 0)
        torch.compile(gathers, backend=note_sizes, fullgraph=True)(x, dist.group.WORLD.group_name)

    run_ranks(2, on_rank)
    part, *wholes = sizes[:4]
    assert wholes == [wholes[0]] * 3
    assert wholes[0].is_Symbol
    assert str(part) == f"({wholes[0]}//2)"

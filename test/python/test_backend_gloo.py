"""The backend in real processes: restarted captures, the exchanges' own group, compiler caches."""

import autosp
import gloo_pool
import pytest
import torch
import torch.distributed as dist
from causal import Model, tokens
from torch._dynamo.utils import counters

pytestmark = pytest.mark.gloo


def loss_and_gradients(model, compiled, ids):
    model.zero_grad()
    loss = compiled(ids, ids)[0]
    loss.backward()
    return loss.item(), [p.grad.clone() for p in model.parameters()]


def check(got, lengths):
    model = Model()
    for results in got:
        for (loss, grads), length in zip(results, lengths, strict=True):
            expected_loss, expected = loss_and_gradients(model, model, tokens(length))
            assert loss == pytest.approx(expected_loss, rel=1e-5)
            for grad, other in zip(grads, expected, strict=True):
                torch.testing.assert_close(grad, other)


def through_torch(rank, lengths, backend):
    """dynamic=True makes the model's float attribute a traced number: Dynamo captures twice."""
    torch._dynamo.reset()
    model = Model()
    model.scale = 1.0
    options = {"backend": backend}
    compiled = torch.compile(model, backend="autosp", fullgraph=True, dynamic=True, options=options)
    return [loss_and_gradients(model, compiled, tokens(length)) for length in lengths]


def test_as_a_backend_of_torch_with_dynamic_shapes():
    check(gloo_pool.run(2, through_torch, [8, 12, 4], "aot_eager"), [8, 12, 4])


@pytest.mark.inductor
def test_through_inductor():
    lengths = [8, 12]
    check(gloo_pool.run(2, through_torch, lengths, "inductor", timeout_seconds=400), lengths)


def cached(rank):
    hits = []
    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        autosp.compile(Model())(tokens(), tokens())[0].backward()
        hits.append(counters["aot_autograd"]["autograd_cache_hit"])
    return hits


@pytest.mark.inductor
def test_the_compilers_cache_is_used():
    for hits in gloo_pool.run(2, cached, timeout_seconds=400):
        assert hits[1] == 1


def with_pending_work(rank):
    """Work of the user's on their own group does not mix with the exchanges."""
    torch._dynamo.reset()
    model = Model()
    compiled = autosp.compile(model, backend="aot_eager")
    mine = torch.full((1000,), float(rank))
    work = dist.all_reduce(mine, async_op=True)
    result = loss_and_gradients(model, compiled, tokens())
    work.wait()
    assert mine.eq(1).all()
    return [result]


def test_the_users_group_stays_the_users():
    check(gloo_pool.run(2, with_pending_work), [8])


def under_ddp(rank):
    torch._dynamo.reset()
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "sp"))
    model = Model()
    thin = autosp.compile(model, group=mesh["sp"], backend="aot_eager", grad_sync=False)
    replica = torch.nn.parallel.DistributedDataParallel(thin)
    ids = tokens(8 + 4 * mesh.get_local_rank("dp"))
    for _ in range(2):
        model.zero_grad()
        loss = replica(ids, ids)[0]
        loss.backward()
    return loss.item(), [p.grad for p in model.parameters()]


def test_ddp_over_data_and_sequence_ranks():
    models = [Model(), Model()]
    losses = [m(tokens(n), tokens(n))[0] for m, n in zip(models, (8, 12), strict=True)]
    for loss in losses:
        loss.backward()
    for rank, (loss, grads) in enumerate(gloo_pool.run(4, under_ddp, timeout_seconds=300)):
        assert loss == pytest.approx(losses[rank // 2].item(), rel=1e-5)
        for grad, a, b in zip(grads, *(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(grad, (a.grad + b.grad) / 2)


def failing(rank):
    torch._dynamo.reset()
    model = Model()

    def reversed_outputs(ids):
        return model(ids, ids)[1].median(1).values.square().sum()

    compiled = torch.compile(reversed_outputs, backend="autosp", fullgraph=True)
    try:
        compiled(tokens())
    except autosp.AutoSPError as error:
        return type(error).__name__, str(error)


def test_refusals_through_torch_arrive_as_themselves():
    for kind, text in gloo_pool.run(2, failing):
        assert kind == "Unsupported" and "median" in text

"""autosp.compile on several ranks, the backend's entry point and explain, as users meet them."""

import autosp
import pytest
import torch
import torch.distributed as dist
from causal import Model, on_ranks, tokens
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_lengths_change_without_compiling_again():
    def case(rank, model):
        graphs = []

        def backend(gm, example_inputs):
            graphs.append(gm)
            return torch._dynamo.lookup_backend("aot_eager")(gm, example_inputs)

        thin = autosp.compile(model, backend=backend)
        losses = [thin(tokens(n), tokens(n))[0].item() for n in (8, 12, 20, 8, 28)]
        return losses, len(graphs)

    model = Model()
    expected = [model(tokens(n), tokens(n))[0].item() for n in (8, 12, 20, 8, 28)]
    for losses, graphs in on_ranks(2, case, model):
        assert losses == pytest.approx(expected, rel=1e-5)
        assert graphs <= 2


def test_outputs():
    def case(rank, model):
        results = {}
        for outputs in ("auto", "full", "local"):
            model.zero_grad()
            thin = autosp.compile(model, backend="aot_eager", outputs=outputs)
            loss, logits = thin(tokens(), tokens())
            whole = logits.full_tensor() if outputs == "auto" else logits
            if outputs != "local":
                (loss + whole.square().mean()).backward()
            grads = {n: p.grad for n, p in model.named_parameters()}
            results[outputs] = type(logits), type(loss), whole.detach(), grads
        return results

    model = Model()
    loss, logits = model(tokens(), tokens())
    (loss + logits.square().mean()).backward()
    for rank, results in enumerate(on_ranks(2, case, model)):
        assert results["auto"][0] is DTensor and results["full"][0] is torch.Tensor
        for kind in ("auto", "full"):
            assert results[kind][1] is torch.Tensor
            torch.testing.assert_close(results[kind][2], logits)
            for name, p in model.named_parameters():
                torch.testing.assert_close(results[kind][3][name], p.grad)
        assert results["local"][0] is torch.Tensor
        torch.testing.assert_close(results["local"][2], logits[:, 4 * rank : 4 * rank + 4])


def test_groups_smaller_than_the_world():
    """Two groups of two ranks, as meshes, each with sequences of its own."""

    def case(rank, model):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "sp"))
        with pytest.raises(autosp.Unsupported, match="mesh of 2 dimensions"):
            autosp.compile(model, group=mesh)
        thin = autosp.compile(model, group=mesh["sp"], backend="aot_eager")
        ids = tokens(8, batch=1 + rank // 2)
        loss, logits = thin(ids, ids)
        assert logits.device_mesh == mesh["sp"]
        return loss.item()

    model = Model()
    expected = [model(ids, ids)[0].item() for ids in (tokens(8, 1), tokens(8, 2))]
    got = on_ranks(4, case, model)
    assert got == pytest.approx([expected[0]] * 2 + [expected[1]] * 2, rel=1e-5)


def test_unsynchronized_gradients_average_to_one_devices():
    def case(rank, model):
        autosp.compile(model, backend="aot_eager", grad_sync=False)(tokens(), tokens())[
            0
        ].backward()
        return [p.grad for p in model.parameters()]

    model = Model()
    model(tokens(), tokens())[0].backward()
    grads = on_ranks(2, case, model)
    for parts, p in zip(zip(*grads, strict=True), model.parameters(), strict=True):
        torch.testing.assert_close(sum(parts) / 2, p.grad)


def test_the_callable_gets_this_ranks_graph():
    def case(rank, model):
        seen = []

        def backend(gm, example_inputs):
            seen.extend(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
            return gm

        loss = autosp.compile(model, backend=backend)(tokens(), tokens())[0]
        return loss.item(), seen

    model = Model()
    for loss, seen in on_ranks(2, case, model):
        assert loss == pytest.approx(model(tokens(), tokens())[0].item(), rel=1e-5)
        assert seen.count("autosp.all_to_all.default") == 2


# ---- torch's own entry point ----


@pytest.mark.parametrize("through_module", [False, True])
def test_as_a_backend_of_torch(alone, through_module):
    model = Model()
    expected = model(tokens())
    options = {"backend": "aot_eager", "outputs": "full"}
    if through_module:
        model.compile(backend="autosp", fullgraph=True, options=options)
        compiled = model
    else:
        compiled = torch.compile(model, backend="autosp", fullgraph=True, options=options)
    torch.testing.assert_close(compiled(tokens()), expected)


def test_as_a_backend_it_refuses_a_broken_graph(alone):
    def broken(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    compiled = torch.compile(broken, backend="autosp", options={"backend": "aot_eager"})
    with pytest.raises(autosp.Unsupported) as raised:
        compiled(torch.ones(2))
    text = str(raised.value)
    assert "one graph" in text and "test_api.py" in text and "graph_break()" in text


# ---- Seeing it ----


def test_explain_of_functions_and_compiled_modules(alone, capsys):
    model = Model()
    by_function = autosp.explain(lambda ids: model(ids, ids), tokens(), sp=4)
    assert capsys.readouterr().out == f"{by_function}\n"
    by_module = autosp.explain(autosp.compile(model), (tokens(), tokens()), sp=4)
    for a, b in zip(by_function.exchanges, by_module.exchanges, strict=True):
        assert (a.what, a.value, a.bytes, a.source) == (b.what, b.value, b.bytes, b.source)
    assert "causal.py" in by_module.exchanges[0].source


def test_compile_on_fake_tensors():
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        model = Model()
        ids = torch.zeros(1, 2**20, dtype=torch.int64)
        dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=8)
        try:
            loss, logits = autosp.compile(model, backend="aot_eager")(ids, ids)
            assert logits.to_local().shape == (1, 2**17, 11)
            loss.backward()
        finally:
            dist.destroy_process_group()


def test_print_shows_the_graph_after_a_step(alone, monkeypatch, capfd):
    monkeypatch.setenv("AUTOSP_PRINT", "prove-causal")
    autosp.compile(Model(), backend="aot_eager")(tokens())
    printed = capfd.readouterr().err
    assert "after prove-causal" in printed and "scaled_dot_product_attention" in printed
    monkeypatch.setenv("AUTOSP_PRINT", "no-such-step")
    with pytest.raises(autosp.Unsupported, match="prove-causal"):
        autosp.compile(Model(), backend="aot_eager")(tokens())

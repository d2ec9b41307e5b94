"""autosp.compile, the backend's entry point and explain, as users meet them."""

import copy
import inspect
import logging
import pickle

import autosp
import pytest
import simulate
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore


class Model(nn.Module):
    """A causal model with a property, and an attribute that changes its result."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(11, 16)
        self.q, self.out = nn.Linear(16, 48), nn.Linear(16, 11)
        self.scale = 1.0

    @property
    def width(self):
        return self.out.in_features

    def forward(self, ids, labels=None):
        q, k, v = (
            t.view(*ids.shape, 8, 2).transpose(1, 2) for t in self.q(self.embed(ids)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        logits = self.out(y.transpose(1, 2).reshape(*ids.shape, 16)) * self.scale
        if labels is None:
            return logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def tokens(length=8, batch=2):
    return torch.randint(0, 11, (batch, length), generator=torch.Generator().manual_seed(length))


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def on_ranks(ranks, case, model, *args):
    """[case(rank, the rank's own copy of the model, *args)], on simulated ranks."""
    copies = [copy.deepcopy(model) for _ in range(ranks)]
    return simulate.run_ranks(ranks, lambda rank: case(rank, copies[rank], *args))


# ---- The module that comes back ----


def test_the_module_is_used_as_before(alone):
    model = Model()
    thin = autosp.compile(model, backend="aot_eager")
    assert isinstance(thin, Model) and isinstance(thin, nn.Module)
    assert list(thin.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(thin.parameters(), model.parameters(), strict=True))
    assert [name for name, _ in thin.named_modules()] == [n for n, _ in model.named_modules()]
    assert (thin.width, repr(thin)) == (16, repr(model))
    assert inspect.signature(thin.forward) == inspect.signature(model.forward)
    thin.scale = 3.0
    assert model.scale == 3.0
    torch.testing.assert_close(thin(tokens()), model(tokens()))
    thin.eval()
    assert not model.training and not model.q.training
    model.train()
    assert thin.training
    thin.extra = nn.Parameter(torch.ones(1))
    assert "extra" in model.state_dict()
    thin.load_state_dict({k: torch.zeros_like(v) for k, v in thin.state_dict().items()})
    assert model.q.weight.abs().max() == 0
    assert thin.half().q is model.q and model.q.weight.dtype == torch.float16


def test_copies_and_pickles_are_plain(alone):
    thin = autosp.compile(Model(), backend="aot_eager")
    for other in (copy.deepcopy(thin), pickle.loads(pickle.dumps(thin))):
        assert type(other) is Model and other.q.weight is not thin.q.weight
        torch.testing.assert_close(other(tokens()), thin(tokens()))


def test_hooks_run(alone):
    model = Model()
    thin = autosp.compile(model, backend="aot_eager")
    thin.register_forward_hook(lambda module, args, result: result * 2)
    torch.testing.assert_close(thin(tokens()), model(tokens()))


def test_training_and_evaluation_alternate(alone):
    model = Model()
    thin = autosp.compile(model, backend="aot_eager")
    for _ in range(2):
        loss, _ = thin.train()(tokens(), tokens())
        loss.backward()
        with torch.no_grad():
            logits = thin.eval()(tokens())
        assert not logits.requires_grad
        torch.testing.assert_close(logits, model(tokens()))


def test_a_function_stays_a_function(alone):
    model = Model()

    def step(ids):
        """One step."""
        return model(ids, ids)[0]

    compiled = autosp.compile(step, backend="aot_eager")
    assert (compiled.__name__, compiled.__doc__) == ("step", "One step.")
    torch.testing.assert_close(compiled(tokens()), step(tokens()))


def test_compiling_a_compiled_module_compiles_the_module(alone):
    model = Model()
    once = autosp.compile(model, backend="aot_eager")
    twice = autosp.compile(once, backend="aot_eager")
    torch.testing.assert_close(twice(tokens()), model(tokens()))


def test_nothing_global_changes(alone):
    before = torch._dynamo.config.get_config_copy()
    autosp.compile(Model(), backend="aot_eager")(tokens())
    with pytest.raises(autosp.Unsupported):
        autosp.compile(lambda x: torch._dynamo.graph_break(), backend="aot_eager")(tokens())
    assert torch._dynamo.config.get_config_copy() == before


def test_warnings_of_transformers_do_not_break_the_graph(alone, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", logging)
    library, mine = logging.getLogger("transformers.models.x"), logging.getLogger("mine")

    def warns(logger):
        def function(x):
            logger.warning("careful")
            return x * 2

        return autosp.compile(function, backend="aot_eager")

    assert warns(library)(torch.ones(1)) == 2
    with pytest.raises(autosp.Unsupported, match="ignore_logging_functions"):
        warns(mine)(torch.ones(1))


# ---- Several ranks ----


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


def test_explain_needs_no_process_group(capsys):
    model = Model()
    report = autosp.explain(model, tokens(), labels=tokens(), sp=2)
    assert capsys.readouterr().out.strip() == str(report).strip()
    assert report.ranks == 2
    kinds = {what: source for what, _, _, _, source in report.exchanges}
    assert "all_to_all" in kinds and "p_to_r" in kinds
    assert "test_api.py" in kinds["p_to_r"] and "cross_entropy" in kinds["p_to_r"]
    assert len(report.outputs) == 2
    assert all(row[2] > 0 for row in report.exchanges + report.outputs)


def test_explain_of_functions_and_compiled_modules(alone, capsys):
    model = Model()
    by_function = autosp.explain(lambda ids: model(ids, ids), tokens(), sp=4)
    by_module = autosp.explain(autosp.compile(model), tokens(), tokens(), sp=4)
    assert [row[:4] for row in by_function.exchanges] == [row[:4] for row in by_module.exchanges]


def test_explain_and_compile_on_fake_tensors(capsys):
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        model = Model()
        ids = torch.zeros(1, 2**20, dtype=torch.int64)
        report = autosp.explain(model, ids, ids, sp=8)
        assert sum(row[2] * row[3] for row in report.exchanges) > 2**20
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

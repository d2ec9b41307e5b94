"""Captured graphs read into the engine and written back: same numbers, the same FX nodes."""

import operator

import pytest
import torch
import torch.nn.functional as F
from autosp import Unsupported, _engine, fx
from torch import nn
from torch._functorch import config as functorch_config


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


class Capture:
    """A backend that keeps the engine's view of every graph, and writes the graph back for one rank
    before another backend (or nothing) compiles it.
    """

    def __init__(self, then=None, group="the group"):
        self.then, self.group = then and torch._dynamo.lookup_backend(then), group

    def __call__(self, gm, example_inputs):
        self.gm = gm
        self.before = [(n.name, n.op, n.target) for n in gm.graph.nodes]
        self.program = fx.read(gm, ["first", "second"])
        self.plan = self.program.plan(1)
        self.plan.write(0, self.group)
        gm.graph.lint()
        return self.then(gm, example_inputs) if self.then else gm.forward


def capture(function, *args, dynamic=None, then=None, **kwargs):
    backend = Capture(then)
    backend.result = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)(
        *args, **kwargs
    )
    return backend


def calls(gm):
    return [n for n in gm.graph.nodes if n.op in ("call_function", "call_method")]


def transformer(norm_first=False):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double()


@pytest.mark.parametrize("dynamic", [False, True])
def test_round_trip_keeps_values_and_gradients(dynamic):
    model = transformer()
    x = torch.randn(2, 6, 16, dtype=torch.float64, requires_grad=True)
    model(x).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()} | {"x": x.grad}
    model.zero_grad()
    x.grad = None
    got = capture(lambda x: model(x).square().sum(), x, dynamic=dynamic, then="aot_eager")
    got.result.backward()
    for name, grad in {n: p.grad for n, p in model.named_parameters()}.items():
        torch.testing.assert_close(grad, expected[name], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(x.grad, expected["x"], rtol=1e-12, atol=1e-12)


def test_one_graph_for_two_lengths():
    compiled = torch.compile(
        lambda x: x.flip(0)[: x.shape[0] // 2].sum() / x.shape[0],
        backend=(backend := Capture("aot_eager")),
        fullgraph=True,
        dynamic=True,
    )
    first = torch.randn(6, 3)
    torch.testing.assert_close(compiled(first), first.flip(0)[:3].sum() / 6)
    gm = backend.gm
    second = torch.randn(11, 3)
    torch.testing.assert_close(compiled(second), second.flip(0)[:5].sum() / 11)
    assert backend.gm is gm, "the second length compiled again"


def test_nodes_keep_their_identity():
    lin = nn.Linear(4, 4)
    got = capture(lambda x: torch.relu(lin(x)).view(-1) + 1, torch.randn(2, 4), dynamic=False)
    assert [(n.name, n.op, n.target) for n in got.gm.graph.nodes] == got.before
    assert all(n.stack_trace for n in calls(got.gm))
    assert got.gm.compile_subgraph_reason is not None and "dynamo_compile_id" in got.gm.meta


def test_dead_code_goes_and_placeholders_stay():
    def function(x, unused):
        x.cumsum(0)
        return x + unused.shape[0]

    got = capture(function, torch.randn(3), torch.randn(2), dynamic=False)
    assert [n.target for n in calls(got.gm)] == [operator.add]
    placeholders = [n for n in got.gm.graph.nodes if n.op == "placeholder"]
    assert len(placeholders) == len([b for b in got.before if b[1] == "placeholder"])


def test_sizes_become_shared_arithmetic():
    def function(x, y):
        n, m = x.shape[0], y.shape[0]
        a = torch.arange(2 * n + m // 2)
        b = torch.zeros(2 * n + m // 2)
        c = torch.ones(torch.sym_max(n, m), n % 3)
        return a, b, c

    got = capture(function, torch.randn(4), torch.randn(9), dynamic=True)
    a, b, c = got.result
    assert (a.shape, b.shape, c.shape) == ((12,), (12,), (9, 1))
    functions = [n.target for n in calls(got.gm)]
    assert functions.count(torch.sym_max) == 1
    assert functions.count(operator.floordiv) == 1, "an expression is written once"
    assert functions.count(operator.mod) == 1


def test_equal_symbols_are_one():
    def function(x, y):
        torch._check(x.shape[0] == y.shape[0])
        return torch.zeros(x.shape[0]) + torch.ones(y.shape[0])

    text = capture(function, torch.randn(5), torch.randn(5), dynamic=True).program.text
    assert text.splitlines()[0].count("=5") == 1, text


def test_arguments_of_every_kind():
    def function(x):
        y = x.to(torch.float64)[..., None, 1:-1:2]
        z = torch.full((2, 3), 0.5, dtype=torch.bfloat16, device="cpu")
        w = F.pad(x, (0, 1), mode="constant", value=float("-inf"))
        return y, z, w, torch.cat([x, x], dim=-1), x.sum(dim=(0, 1), keepdim=True), None, 3

    x = torch.randn(2, 5)
    got = capture(function, x, dynamic=False)
    for result, expected in zip(got.result, function(x), strict=True):
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(result, expected)
        else:
            assert result == expected
    text = got.program.text
    assert "@torch.float64" in text and "slice(1, -1, 2)" in text and "-inf" in text


def test_inputs_are_told_apart():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
            self.register_buffer("table", torch.ones(3))

        def forward(self, x, *rest, **more):
            return x + rest[0] + more["extra"] * self.weight * self.frozen + self.table

    x = torch.ones(3)
    model = Model()
    got = capture(lambda *args, **kwargs: model(*args, **kwargs), x, x + 1, extra=x + 2)
    lines = {
        line.split('"')[1]: line for line in got.program.text.splitlines() if " input " in line
    }
    assert "input parameter" in lines["model.weight"] and lines["model.weight"].endswith("grad")
    assert "input parameter" in lines["model.frozen"]
    assert not lines["model.frozen"].endswith("grad")
    assert "input buffer" in lines["model.table"]
    assert [name for _, name in got.program.user_inputs] == ["first", "second", "extra"]
    for position, _ in got.program.user_inputs:
        assert got.before[position][1] == "placeholder"


def test_numbers_of_the_user_are_inputs():
    got = capture(lambda x, n: x * n, torch.randn(3), 7, dynamic=True)
    assert [name for _, name in got.program.user_inputs] == ["x", "n"]


def test_nested_graphs():
    lin = nn.Linear(4, 4)

    def function(x):
        return torch.utils.checkpoint.checkpoint(
            lambda x: torch.relu(lin(x)) * 2, x, use_reentrant=False
        ).sum()

    x = torch.randn(3, 4, requires_grad=True)
    function(x).backward()
    expected, x.grad = x.grad, None
    got = capture(function, x, dynamic=True, then="aot_eager")
    got.result.backward()
    torch.testing.assert_close(x.grad, expected)
    assert "subgraph" in got.program.text and "torch.relu" in got.program.text


def test_source_line_is_the_models():
    trace = (
        '  File "/lib/torch/nn/module.py", line 7, in _call\n    return forward(x)\n'
        '  File "/home/me/model.py", line 12, in forward\n    return self.lin(x)\n'
        "           ^^^^^^^^^^^\n"
        '  File "/lib/torch/nn/linear.py", line 130, in forward\n    return F.linear(x)\n'
    )
    assert _engine.source_line(trace, ["/lib/torch/"]) == (
        "model.py:12 in forward: return self.lin(x)"
    )
    assert _engine.source_line(trace, ["/lib/", "/home/"]).startswith("linear.py:130 in forward")
    assert _engine.source_line(trace, ["/home/", "/lib/"]).startswith("model.py:12 in forward")
    assert _engine.source_line("", ["/lib/"]) == ""


@pytest.mark.inductor
def test_a_written_graph_hits_the_compilers_cache():
    from torch._dynamo.utils import counters

    model = transformer(norm_first=True)

    def step():
        torch._dynamo.reset()
        counters.clear()
        x = torch.randn(2, 6, 16, dtype=torch.float64)
        with functorch_config.patch(enable_autograd_cache=True):
            capture(lambda x: model(x).sum(), x, dynamic=True, then="inductor")
        return {k: v for k, v in counters["aot_autograd"].items() if k.startswith("autograd_cache")}

    step()
    assert step().get("autograd_cache_hit") == 1


def test_data_dependent_sizes_are_refused():
    with (
        torch._dynamo.config.patch(capture_scalar_outputs=True),
        pytest.raises(Unsupported, match="depends on data") as raised,
    ):
        capture(lambda x: torch.zeros(x.sum().item()), torch.tensor([1, 2]))
    assert "test_fx.py" in str(raised.value), "the refusal names the line"

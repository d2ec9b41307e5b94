"""Operators of the user's own, with rules that they have registered."""

import autosp
import pytest
import torch
import torch.nn.functional as F
from autosp import fx
from autosp.errors import Unsupported
from parity import check_simulated
from programs import VOCABULARY, Program
from small import WIDTH, program
from torch import Tensor, nn

SLOW = pytest.mark.slow
TOKENS = pytest.mark.parametrize(
    ("ranks", "length"),
    [(2, 13), pytest.param(3, 12, marks=SLOW), pytest.param(4, 13, marks=SLOW)],
)


def define(function):
    """The function as an operator that compilers do not look into, with its gradient."""

    def save(ctx, inputs, output, keyword_only_inputs=None):
        ctx.save_for_backward(*inputs)
        ctx.keywords = keyword_only_inputs or {}

    def backward(ctx, *cotangents):
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            return torch.autograd.grad(function(*leaves, **ctx.keywords), leaves, cotangents)

    op = torch.library.custom_op(f"autosp_test::{function.__name__}", function, mutates_args=())
    op.register_fake(function)
    op.register_autograd(backward, setup_context=save)
    return op


@define
def norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight)


@define
def kernel(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """Linear attention with a decay for each head: [batch, tokens, heads, width]."""
    t = torch.arange(q.shape[1])
    weights = (decay[:, None, None] ** (t[:, None] - t).clamp(min=0)).tril()
    return torch.einsum("bihk,bjhk,hij,bjhv->bihv", q, k, weights, v)


@define
def energy(x: Tensor, weight: Tensor) -> Tensor:
    return (x * weight).cosh().sum((0, 1))


@define
def running(x: Tensor) -> Tensor:
    return x.cumsum(1)


@define
def unknown(x: Tensor) -> Tensor:
    return x.sin()


@define
def wrong(x: Tensor) -> Tensor:
    return x + x.mean(1, keepdim=True)


RULES = {
    "norm": "... d, d -> ... d  whole d",
    "kernel": "b t h d, b t h d, b t h e, h -> b t h e  attend t, whole d",
    "energy": "b t d, d -> d  sum b t",
    "running": "... t d -> ... t d  scan t",
    "wrong": "... -> ...",
}


@pytest.fixture(autouse=True)
def rules():
    for name, rule in RULES.items():
        autosp.register_rule(f"autosp_test::{name}", rule)


class Scans(nn.Module):
    """The kernel is the one operator that says which dimension carries tokens."""

    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.weight, self.decay = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.rand(12))

    def forward(self, ids):
        x = self.token(ids)
        for _ in range(2):
            q, k, v = (
                t.unflatten(-1, (12, -1)) for t in self.qkv(norm(x, self.weight)).chunk(3, -1)
            )
            x = x + self.out(kernel(q, k, v, self.decay).flatten(2))
        return F.cross_entropy((x @ self.token.weight.t())[:, :-1].mT, ids[:, 1:]), x


def scans(length):
    def make():
        torch.manual_seed(0)
        return Scans().double()

    return Program(make, program(None, length).inputs)


@TOKENS
@pytest.mark.parametrize("attention", ["auto", pytest.param("gather_kv", marks=SLOW)])
def test_kernel_on_heads(ranks, length, attention):
    made = scans(length)
    check_simulated(made.make, made.inputs(), ranks, attention=attention)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=SLOW)])
def test_compiled(ranks):
    made = scans(12)
    options = {"backend": "aot_eager", "checkpointing": "full"}
    check_simulated(made.make, made.inputs(), ranks, **options)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=SLOW), pytest.param(4, marks=SLOW)])
def test_sum_over_tokens(ranks):
    made = program(lambda m, x, ids: (norm(x, m.vector), energy(x, m.vector)), 12)
    check_simulated(made.make, made.inputs(), ranks)


def refusal(form, length=12, sp=2):
    made = program(form, length)
    with pytest.raises(Unsupported) as error:
        autosp.check(made.make(), made.inputs(), sp=sp)
    return str(error.value)


def test_refused():
    message = refusal(lambda m, x, ids: (running(x),))
    assert "torch.ops.autosp_test.running" in message and "test_rules.py" in message
    assert "dimension 1 of %" in message and '"… t d -> … t d  scan t"' in message
    assert "mark both in the rule" in message
    assert "register 'attend t': every rank then gets all tokens of some of the heads" in message
    message = refusal(lambda m, x, ids: (unknown(x),))
    assert "AutoSP has no rule" in message and "autosp.register_rule" in message
    message = refusal(lambda m, x, ids: (x, energy(x, m.vector)), length=13)
    assert "would sum rows past the end. Use a length that they divide" in message
    with pytest.raises(Unsupported, match="of a size that 5 ranks divide"):
        autosp.check(scans(15).make(), scans(15).inputs(), sp=5)


def test_a_false_rule_shows():
    made = program(lambda m, x, ids: (wrong(x),), 12)
    with pytest.raises(autosp.Mismatch):
        autosp.check(made.make(), made.inputs(), sp=2)


@pytest.mark.parametrize(
    ("op", "rule", "text"),
    [
        ("norm", "... d d", "one '->' and results"),
        ("norm", "... d, d -> ... d whole d", "kinds stand behind the results, with two blanks"),
        ("norm", "... d, d, d -> ... d", "it has 3 operands, the operator takes 2 tensors"),
        ("norm", "... d, d -> ... d, ...", "it has 2 results, the operator gives 1 tensors"),
        ("norm", "... d, d -> ... d  hole d", "'hole' is no kind; the kinds are sum, whole"),
        ("norm", "... d, d -> ... d  whole", "the kind 'whole' names no letter"),
        ("norm", "... d, d -> ... d  whole z", "names 'z', which no tensor has"),
        ("norm", "... d, d -> ... d  sum d", "'d' is summed, so no result can have it"),
        ("norm", "t ... d, d -> ... d", "… stands for leading dimensions"),
        ("norm", "... d, e -> ... d", "'e' stands on one side alone"),
        ("norm", "... d, d -> ... d e", "'e' stands on one side alone, so it is whole"),
        ("norm", "d d, d -> d", "'d' stands twice in one tensor"),
        ("norm", "t d, state d -> t d  scan t", "each state that it begins with has one that it"),
        ("norm", "t d, state d -> state d  sum t", "is what a scan along one letter begins and"),
        ("norm", "t d, state d -> state d  scan t d", "is what a scan along one letter begins"),
        ("norm", "t d, state t -> state t  scan t, whole d", "a state has no 't', along which it"),
        ("norm", "... d-1, d -> ... d", "'d-1' is no letter"),
        ("nothing", "... -> ...", "torch knows no operator of this name"),
    ],
)
def test_bad_lines(op, rule, text):
    with pytest.raises(Unsupported, match=text):
        autosp.register_rule(f"autosp_test::{op}", rule)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("norm", r"has a name like \"namespace::name\""),
        ("aten::add_.Tensor", "it writes to its arguments"),
        ("aten::split.Tensor", r"it gives List\[Tensor\]"),
    ],
)
def test_bad_operators(op, text):
    with pytest.raises(Unsupported, match=text):
        autosp.register_rule(op, "... -> ...")


def test_plans_name_their_rules():
    """Two ranks with two rules disagree even where their plans are one."""
    plans = []
    for rule in ("... d, d -> ... d  whole d", "... d, d -> ... d"):
        autosp.register_rule("autosp_test::norm", rule)

        def backend(gm, _):
            plans.append(fx.read(gm).plan(2, seq_dims={"x": 0}))
            return gm

        torch._dynamo.reset()
        torch.compile(lambda x: norm(x, torch.ones(3)), backend=backend)(torch.ones(4, 3))
    first, second = plans
    assert first.text == second.text and first.hash != second.hash
    assert first.unnamed_text.startswith("// rule autosp_test::norm: … d, d -> … d  whole d\n")

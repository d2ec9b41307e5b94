"""What explain says, against sizes computed by hand."""

import importlib.util
from pathlib import Path

import autosp
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from transformers import LlamaConfig, LlamaForCausalLM

MIB = 2**20


def _llama(**sizes):
    defaults = {"vocab_size": 64, "use_cache": False, "attn_implementation": "sdpa"}
    return LlamaForCausalLM(LlamaConfig(**defaults | sizes))


class _Attention(torch.nn.Module):
    """Tokens mixed under a mask that every query may see differently, or under one made of it."""

    def __init__(self, times=1):
        super().__init__()
        self.times = times

    def forward(self, x, mask):
        mask = mask if self.times == 1 else mask * self.times
        heads = x.unflatten(-1, (4, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
        return mixed.transpose(1, 2).flatten(2).sum()


def test_bytes_of_one_layer_and_of_the_gradients():
    batch, tokens, ranks, heads, kv_heads, head_dim = 2, 32, 4, 8, 4, 4
    model = _llama(
        hidden_size=heads * head_dim,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
    )
    ids = torch.zeros(batch, tokens, dtype=torch.long)
    report = autosp.explain(model, {"input_ids": ids, "labels": ids}, sp=ranks)

    element = batch * tokens // ranks * head_dim * 4  # of one head on one rank, float32
    to_others = (ranks - 1) / ranks
    exchanges = [row for row in report.exchanges if row.what == "all_to_all"]
    assert [(row.bytes, row.backward_bytes, row.count) for row in exchanges] == [
        (element * (heads + 2 * kv_heads) * to_others,) * 2 + (3,),
        (element * heads * to_others,) * 2 + (3,),
    ]
    assert f"f32[2, {heads}/{ranks}, {tokens}, {head_dim}]" in exchanges[0].value
    assert exchanges[1].value == f"f32[2, {heads}, {tokens}/{ranks}, {head_dim}]"
    assert "scaled_dot_product_attention" in exchanges[0].source
    assert "self.o_proj" in exchanges[1].source

    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    (gradients,) = [row for row in report.exchanges if row.backward_bytes and not row.bytes]
    assert gradients.what == "all_reduce"
    assert gradients.backward_bytes == 2 * weights * to_others
    # The rest are the loss and the number of labels, summed over the ranks.
    rest = [row for row in report.exchanges if row not in (*exchanges, gradients)]
    assert sum(row.bytes * row.count for row in rest) == 2 * (4 + 8) * to_others


def test_outputs_and_their_bytes():
    model = _llama(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4)
    ids = torch.zeros(1, 16, dtype=torch.long)
    loss, logits = autosp.explain(model, {"input_ids": ids, "labels": ids}, sp=2).outputs
    assert (loss.what, loss.value, loss.bytes) == ("the same on every rank", "f32[]", 4)
    assert (logits.what, logits.value) == ("cut along dim 1", "f32[1, 16/2, 64]")
    assert logits.bytes == 8 * 64 * 4


@pytest.mark.parametrize("tokens, listed", [(512, 1), (256, 0)])
def test_replicated_masks_are_listed_from_a_mebibyte_on(tokens, listed):
    mask = torch.zeros(tokens, tokens)
    report = autosp.explain(_Attention(), (torch.zeros(1, tokens, 16), mask), sp=2)
    inputs = [row for row in report.replicated if row.what == "input"]
    assert [row.bytes for row in inputs] == [tokens * tokens * 4] * listed


def test_a_mask_that_is_computed_is_made_in_parts():
    report = autosp.explain(
        _Attention(times=2), (torch.zeros(1, 512, 16), torch.zeros(512, 512)), sp=2
    )
    assert [row.what for row in report.replicated] == ["input"]
    made = [row.value for row in report.operators if "mask * self.times" in row.source]
    assert made[-1] == "f32[512/2, 512]"


class _Pooled(_Attention):
    """The last token of each sequence, worked on by itself."""

    def __init__(self):
        super().__init__()
        self.inside, self.head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 8, bias=False)

    def forward(self, x):
        heads = self.inside(x).unflatten(-1, (4, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return self.head(mixed.transpose(1, 2).flatten(2)[:, -1])


def test_the_share_of_the_work_that_every_rank_does():
    batch, tokens, ranks = 3, 32, 4
    report = autosp.explain(_Pooled(), torch.zeros(batch, tokens, 16), sp=ranks)
    (row,) = report.repeated
    assert "self.head" in row.source
    head = 2 * batch * 16 * 8
    inside = 2 * batch * tokens * 16 * 16
    attention = batch * 4 * tokens * tokens * (2 * 4 + 1 + 2 * 4)  # scores, softmax, values
    assert row.share == pytest.approx(head / (head + (inside + attention) / ranks), rel=0.05)
    assert f"{100 * row.share:.1f} %" in str(report)


def test_no_gradient_is_exchanged_where_none_flows():
    x = torch.zeros(1, 16, 16)
    report = autosp.explain(_Attention(), (x, torch.zeros(16, 16)), sp=2)
    assert [row.what for row in report.exchanges] == ["all_to_all", "all_to_all", "all_reduce"]
    assert not any(row.backward_bytes for row in report.exchanges)
    report = autosp.explain(_Attention(), [x.requires_grad_(), torch.zeros(16, 16)], sp=2)
    part = 8 * 16 * 4  # of x on one rank
    assert [(row.what, row.bytes, row.backward_bytes) for row in report.exchanges] == [
        ("all_gather", 0, part),  # the gradient of x, whole on every rank as x is
        ("all_to_all", part / 2, part / 2),
        ("all_to_all", part / 2, part / 2),
        ("all_reduce", 4, 0),
    ]


def test_changing_lengths_are_written_as_parts_of_symbols():
    x, mask = torch.zeros(1, 16, 16), torch.zeros(16, 16)
    for tensor, dim in ((x, 1), (mask, 0), (mask, 1)):
        torch._dynamo.mark_dynamic(tensor, dim)
    back = autosp.explain(_Attention(), (x, mask), sp=2).exchanges[1]
    symbol = back.value.split(", ")[2].removesuffix("/2")
    assert symbol.isidentifier()
    assert back.value == f"f32[1, 4, {symbol}/2, 4]"


def test_operators_are_the_program_of_a_rank():
    model = _llama(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4)
    ids = torch.zeros(1, 16, dtype=torch.long)
    operators = autosp.explain(model, {"input_ids": ids, "labels": ids}, sp=2).operators
    names = {row.name for row in operators}
    assert all(name in names for row in operators for name in row.operands)
    (attention,) = [row for row in operators if "scaled_dot_product" in row.target]
    assert attention.value == "f32[1, 4/2, 16, 8]"
    parameters = [row.name for row in operators if row.target == "parameter"]
    assert len(parameters) == len(list(model.parameters()))
    assert any(name.endswith("model.layers.0.mlp.up_proj.weight") for name in parameters)
    assert {row.name for row in operators if row.target == "input"} == {"input_ids"}


@pytest.mark.slow
def test_a_large_model_on_a_small_machine(capsys):
    """Two layers of an 8B model's width at a million tokens, on fake tensors."""
    tokens, width, ranks = 2**20, 4096, 8
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = _llama(
                vocab_size=128256,
                hidden_size=width,
                intermediate_size=14336,
                num_hidden_layers=2,
                num_attention_heads=32,
                num_key_value_heads=8,
                max_position_embeddings=tokens,
            )
            ids = torch.zeros(1, tokens, dtype=torch.long)
            report = autosp.explain(model, {"input_ids": ids, "labels": ids}, sp=ranks)
    finally:
        torch.set_default_dtype(default)
    assert not dist.is_initialized()
    qkv, back = report.exchanges[:2]
    assert (qkv.bytes, qkv.count) == (tokens // ranks * (width + 2 * 1024) * 2 * 7 // 8, 2)
    assert (back.bytes, back.count) == (tokens // ranks * width * 2 * 7 // 8, 2)
    assert report.outputs[1].bytes == tokens // ranks * 128256 * 2
    assert not any(f"{tokens}, {tokens}" in row.value for row in report.replicated)
    assert "31.3 GiB  cut along dim 1" in capsys.readouterr().out


def test_the_picture_is_drawn_from_the_report(tmp_path):
    path = Path(__file__).resolve().parents[2] / "tools/draw_layer.py"
    spec = importlib.util.spec_from_file_location("draw_layer", path)
    draw_layer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw_layer)
    made = draw_layer.report()
    steps = draw_layer.steps_of(draw_layer.one_layer(made.operators))
    rows = [[s.title for s in steps if s.row == row and not s.is_exchange] for row in range(8)]
    assert rows[1] == ["q_proj", "k_proj", "v_proj"]
    assert [row for row, titles in enumerate(rows) if not titles] == [3, 6]  # the exchanges
    assert rows[5] == ["sdpa_attention_forward"]
    cuts = {step.title: draw_layer.cut_of(step.outputs[0].value) for step in steps}
    assert {title for title, cut in cuts.items() if cut == "heads"} >= {"sdpa_attention_forward"}
    assert all(cuts[title] == "tokens" for title in ("q_proj", "o_proj", "mlp"))
    draw_layer.Picture(made, steps).figure.savefig(tmp_path / "layer.svg")
    assert (tmp_path / "layer.svg").stat().st_size > 50_000

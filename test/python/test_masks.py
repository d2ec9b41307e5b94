"""What explain says of masks: their names, and which part of them a rank holds."""

import re

import architectures
import autosp
import pytest
import torch
import torch.nn.functional as F
from autosp.check import Reference
from transformers import (
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

LENGTH = 16


def masks_of(model, inputs, ranks=2):
    report = autosp.explain(model, inputs, sp=ranks)
    return [(row.count, row.name, row.cut, row.value) for row in report.masks]


def names_of(model, inputs):
    return {name for _, name, _, _ in masks_of(model, inputs)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, masks",
    [
        ("llama", {"causal"}),
        ("mistral", {"causal, window 6"}),
        ("gemma2", {"causal, window 6", "causal"}),
        ("gemma3_text", {"causal, window 6", "causal"}),
        ("llama4_text", {"causal, chunks of 8192", "causal"}),
        ("gpt_oss", {"causal, window 6", "causal"}),
        ("mpt", {"causal, ALiBi"}),
        ("bloom", {"causal, ALiBi"}),
        ("xglm", {"causal"}),  # the largest of scores and a number that hides
        ("mimo_v2_flash", {"causal, window 6", "causal"}),  # columns beside the scores
        ("deepseek_v32", {"causal, as written"}),  # keys that activations choose
    ],
)
def test_masks_of_models(name, masks):
    model = architectures.tiny_model(name)
    assert names_of(model, architectures.inputs(model, LENGTH)) == masks


def _mistral(**settings):
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=61,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        sliding_window=6,
        use_cache=False,
    )
    return MistralForCausalLM._from_config(config, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_masks_that_inputs_ask_for(attention):
    model = _mistral(attn_implementation=attention)
    ids = torch.zeros(2, LENGTH, dtype=torch.long)
    inputs = {"input_ids": ids, "labels": ids}
    positions = torch.cat([torch.arange(6), torch.arange(10)]).expand(2, -1)
    (packed,) = names_of(model, inputs | {"position_ids": positions})
    assert packed.startswith("causal, window 6, document by ")
    padded = names_of(model, inputs | {"attention_mask": torch.ones(2, LENGTH, dtype=torch.long)})
    assert padded == {"causal, window 6, padding of keys"}


@pytest.mark.slow
def test_an_encoder_and_its_decoder():
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=61,
        d_model=16,
        d_kv=4,
        d_ff=32,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    ids = torch.ones(2, LENGTH, dtype=torch.long)
    model = T5ForConditionalGeneration(config).eval()
    assert names_of(model, {"input_ids": ids, "attention_mask": ids, "labels": ids}) == {
        "padding of keys, relative bias",  # of the encoder
        "causal, relative bias",  # of the decoder
        "padding of keys",  # of what the decoder sees of the encoder
    }


class _Attention(torch.nn.Module):
    """Tokens mixed under a mask, in a fused attention or one that is written out."""

    def __init__(self, mask, fused, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.mask, self.fused = mask, fused
        self.table = torch.nn.Embedding(32, 4)
        self.qkv = torch.nn.Linear(width, 3 * width)

    def forward(self, x, segments):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        index = torch.arange(x.shape[1])
        mask = self.mask(self, index[:, None], index, segments)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            scores = q @ k.mT * 0.5
            if mask.dtype == torch.bool:
                scores = scores.masked_fill(~mask, torch.finfo(x.dtype).min)
            else:
                scores = scores + mask
            y = scores.softmax(-1) @ v
        return torch.sin(y.transpose(1, 2).flatten(2)).sum()


def _bucketed(m, q, k, _):
    far = (q - k).abs()
    large = 4 + (torch.log(far.float() / 4) * 3).long()
    return m.table(torch.where(far < 4, far, large.clamp(max=15))).permute(2, 0, 1)[None]


def _slopes(m, q, k, _):
    return torch.where(k <= q, m.table.weight[0, :, None, None] * (k - q), float("-inf"))


def _sizes(m, q, k, _):
    return (-(q - k).abs() * m.table.weight[0, :, None, None]).masked_fill(k > q, float("-inf"))


MASKS = {
    "causal": (lambda m, q, k, s: (k <= q)[None, None], "causal"),
    "strictly causal": (lambda m, q, k, s: k < q, "causal offset -1"),
    "window": (lambda m, q, k, s: (k <= q) & (q - k < 5), "causal, window 5"),
    "two-sided": (lambda m, q, k, s: (q - k).abs() <= 3, "two-sided window 3"),
    "chunks": (lambda m, q, k, s: (k <= q) & (k // 5 == q // 5), "causal, chunks of 5"),
    "documents": (
        lambda m, q, k, s: ((k <= q) & (s[:, :, None] == s[:, None]))[:, None],
        "causal, document by segments",
    ),
    "padding": (lambda m, q, k, s: (k <= q) & (s != 0)[:, None, None], "causal, padding of keys"),
    "prefix": (lambda m, q, k, s: (k <= q) | (k < 5), "prefix 5"),
    "ALiBi": (_slopes, "causal, ALiBi"),
    "ALiBi by size": (_sizes, "causal, ALiBi"),
    "relative bias": (_bucketed, "relative bias"),
    "odd keys": (lambda m, q, k, s: (k <= q) & (k % 2 == 0), "causal, as written"),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "opened"])
def test_masks_of_programs(kind, fused):
    mask, name = MASKS[kind]
    for batch in (1, 2):
        inputs = (torch.zeros(batch, LENGTH, 16), torch.ones(batch, LENGTH, dtype=torch.long))
        assert names_of(_Attention(mask, fused), inputs) == {name}


def test_which_part_of_a_mask_a_rank_holds():
    inputs = (torch.zeros(2, LENGTH, 16), torch.ones(2, LENGTH, dtype=torch.long))
    expected = {
        ("causal", True): ("heads exchanged: the kernel's flag", ""),
        ("causal", False): ("heads exchanged: whole", f"bool[1, 1, {LENGTH}, {LENGTH}]"),
        ("window", True): ("heads exchanged: whole", f"bool[{LENGTH}, {LENGTH}]"),
        ("ALiBi", True): ("heads exchanged: own heads", f"f32[4/2, {LENGTH}, {LENGTH}]"),
    }
    for (kind, fused), held in expected.items():
        mask, name = MASKS[kind]
        assert masks_of(_Attention(mask, fused), inputs) == [(1, name, *held)]


def _inputs(length, width=16):
    generator = torch.Generator().manual_seed(1)
    segments = torch.randint(1, 4, (2, length), generator=generator)
    segments[:, -3:] = 0
    return torch.randn(2, length, width, generator=generator, dtype=torch.float64), segments


def _tables(report, length):
    """Operators whose result has all rows and all columns of queries and keys."""
    whole = re.compile(rf"\b{length}(?!/|\d)")
    return [
        row
        for row in report.operators
        if any(len(whole.findall(tensor)) > 1 for tensor in row.value.split("]"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in MASKS if kind != "strictly causal"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "opened"])
def test_gathered_keys_leave_a_rank_its_own_queries(kind, fused):
    """No value has a row for every query, and every number is one device's."""
    mask, name = MASKS[kind]
    for length, all_ranks in ((24, (2, 3)), (23, (2,))):
        reference = Reference(_Attention(mask, fused).double(), _inputs(length))
        for ranks in all_ranks:
            report = reference.compare(ranks, attention="gather_kv")
            assert report.parity, report
            assert [row.cut for row in report.plan.masks] == ["keys gathered: own queries"]
            assert [row.name for row in report.plan.masks] == [name]
            if length % ranks == 0:
                assert not _tables(report.plan, length)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ALiBi", "relative bias"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "opened"])
def test_exchanged_heads_leave_a_rank_the_terms_of_its_own(kind, fused):
    """They are made where they are needed: nothing of them is sent."""
    mask, name = MASKS[kind]
    reference = Reference(_Attention(mask, fused, 512).double(), _inputs(24, 512))
    for ranks in (2, 4):
        report = reference.compare(ranks)
        assert report.parity, report
        (row,) = report.plan.masks
        assert (row.name, row.cut) == (name, "heads exchanged: own heads")
        assert f"4/{ranks}, 24, 24]" in row.value
        tables = _tables(report.plan, 24)
        assert tables and not [row.target for row in tables if "autosp" in row.target]
        assert not any(
            re.search(r"(?<!/)\b4, 24, 24\b|24, 24, 4(?!/)", row.value) for row in tables
        )
        assert not any("24, 24" in row.value for row in report.plan.exchanges)

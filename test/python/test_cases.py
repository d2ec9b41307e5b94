"""What users of sequence parallelism report most, on 2, 3 and 4 ranks against one device.

Where each is, here (a name of cases.py or of a test below) or in another file:

    targets on the next rank        programs.py "pad shift", "slice shift"
    ignored labels                  programs.py "unequal labels" to "ignore index -1"
    class weights, smoothing        programs.py "class weights" to "slice shift smoothing"
    a count that the trainer passes test_models.py
    weights per token, z-loss       forms.py weighted_tokens, z_loss
    several batches; no labels      test_semantics.py
    preferences; two losses         programs.py "preference", "two losses"
    means under exp and clip        policy_gradient
    losses in chunks                a_loss_in_chunks, a_loss_in_groups; over slices: refused
    several tokens ahead, documents several_tokens_ahead_in_documents
    lengths, also without a mask    test_lengths; test_programs.py ANY_LENGTH
    fewer tokens than ranks         test_fewer_tokens_than_ranks
    heads, shared key heads         test_heads
    other layouts, equal sizes      programs.py "encoder tokens first", "length is …", "flat"
    padding on both sides           padding_on_the_right, padding_on_the_left
    a length that changes           test_semantics.py
    positions, biases, prefixes     forms.py
    masks, cross-attention          programs.py "mask …", "encoder decoder"
    windows, chunks                 windows_on_alternate_layers, chunked_attention
    packed documents                five_packed_documents, and one by one
    a row that sees nothing         a_row_that_sees_nothing
    capped scores, sinks            forms.py capped_scores; a_learned_sink
    a mask of ones                  test_a_mask_of_ones_beside_positions_that_restart
    shared and tied                 programs.py "shared", "tied"
    checkpoints, own backwards      test_regions.py, test_functions.py
    along tokens                    windows.py, scans.py; a_convolution_that_reaches_far
    writes; rows in front           writes.py; soft_prompts
    dropout, also recomputed        test_dropout.py
    dtypes, scaled losses           test_semantics.py; test_a_scaled_loss
    adapters, frozen layers         adapters, a_frozen_embedding
    evaluation, two models          test_semantics.py
    experts                         test_experts.py; balance_of_experts; test_regions.py
    rows at masked places           images_put_between_tokens, test_scattered_by_a_mask_is_refused
    programs that differ            test_refusals.py
    more than 2^31 logits           test_more_than_two_to_the_31_logits
    no attention or parameters      test_without_attention
"""

import copy

import autosp
import pytest
import torch
import torch.nn.functional as F
from autosp.check import Reference
from autosp.simulate import run_ranks
from cases import CASES, documents
from forms import Toolbox
from parity import run_as_is, take_step
from programs import lm
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


def check(program, *ranks, **options):
    reference = Reference(program.make(), program.inputs())
    for count in ranks:
        report = reference.compare(count, tolerance=program.tolerance, **options)
        assert report.parity, report


def refuses(form, pattern):
    ids = torch.arange(32).view(2, 16)
    reference = Reference(Toolbox(form).double(), {"ids": ids, "labels": ids})
    with pytest.raises(autosp.Unsupported, match=pattern):
        reference.compare(2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_case(name):
    check(CASES[name], 2, 3, 4)


# Heads and key heads that ranks divide, don't divide, or exceed.
HEADS = {
    "3 heads": ((3, 3), 2),
    "7 heads": ((7, 7), 4),
    "20 heads": ((20, 20), 8),
    "4 and 1": ((4, 1), 2),
    "8 and 2": ((8, 2), 4),
    "28 and 4": ((28, 4), 8),
    "2 heads on 4 ranks": ((2, 2), 4),
    "1 head on 3 ranks": ((1, 1), 3),
}


@pytest.mark.parametrize("style", ["causal", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HEADS)
def test_heads(name, style):
    (heads, kv_heads), ranks = HEADS[name]
    program = lm(16, layers=1, heads=heads, kv_heads=kv_heads, width=2 * heads, style=style)
    check(program, ranks)


@pytest.mark.parametrize("length", [7, 15, pytest.param(1533, marks=pytest.mark.slow)])
@pytest.mark.parametrize("style", ["causal", "full"])
def test_lengths(length, style):
    check(lm(length, layers=1, batch=1, style=style, positions="rotary"), 2, 3, 4)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_fewer_tokens_than_ranks(length):
    check(lm(length + 1, layers=1, positions="rotary"), 4)


def test_packed_documents_are_what_they_are_one_by_one():
    """On one device; `five_packed_documents` has the same program on several."""
    program = CASES["five_packed_documents"]
    model, inputs = program.make(), program.inputs()
    _, packed = model(**inputs)
    number, positions = documents(inputs["ids"], 5, 2, 6, 1, 6)
    for document in range(5):
        of = number[0] == document
        x = model.token(inputs["ids"][:, of]) + model.position[positions[:, of]]
        torch.testing.assert_close(packed[:, of], x)


class Tokenwise(nn.Module):
    """No attention: the user names the sequence."""

    def __init__(self, weights):
        super().__init__()
        self.up = nn.Linear(8, 8) if weights else nn.Identity()

    def forward(self, x):
        y = F.silu(self.up(x))
        return (y - y.mean(1, keepdim=True)).square().mean(), y


@pytest.mark.parametrize("weights", [True, False], ids=["weights", "no parameters"])
def test_without_attention(weights):
    torch.manual_seed(0)
    x = torch.randn(2, 13, 8, dtype=torch.float64, requires_grad=True)
    reference = Reference(Tokenwise(weights).double(), {"x": x})
    for ranks in (2, 3, 4):
        report = reference.compare(ranks, seq_dims={"x": 1})
        assert report.parity, report


def test_scattered_by_a_mask_is_refused():
    def form(m, ids, labels):
        x = m.token(ids)
        x = x.masked_scatter((ids % 7 == 0)[..., None], m.position.repeat(2, 1))
        return m.loss(x + m.attend(x), labels), x

    refuses(form, r"masked_scatter at test_cases\.py:\d+ in form")


def test_a_loss_over_slices_is_refused():
    """`a_loss_in_chunks` is how it can be written."""

    def form(m, ids, labels):
        logits, loss = m.head(m.body(ids)), 0
        for start in range(0, ids.shape[1], 6):
            piece = logits[:, start : start + 6]
            loss = loss + F.cross_entropy(piece.mT, labels[:, start : start + 6], reduction="sum")
        return loss, logits

    refuses(form, r"getitem at test_cases\.py:\d+ in form: piece =")


def test_more_than_two_to_the_31_logits():
    """On shapes alone: sizes and positions are 64 bits everywhere."""

    def form(m, ids, labels):
        logits = m.body(ids) @ m.mixer.repeat(2**13, 1).mT
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits

    ids = torch.zeros(1, 2**15, dtype=torch.long)
    report = autosp.explain(Toolbox(form).double(), {"ids": ids, "labels": ids}, sp=2)
    sharded = [row for row in report.outputs if "131072" in row.value]
    assert sharded and sharded[0].bytes == 2**17 * 2**14 * 8


def test_a_mask_of_ones_beside_positions_that_restart():
    """A simplified mask never becomes plain causal: what one device computes, whatever that is."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    ids = torch.randint(0, 61, (1, 16))
    inputs = {
        "input_ids": ids,
        "labels": ids,
        "position_ids": torch.cat([torch.arange(6), torch.arange(10)])[None],
        "attention_mask": torch.ones(1, 16, dtype=torch.long),
    }
    reference = Reference(LlamaForCausalLM(config), inputs)
    for ranks in (2, 3, 4):
        report = reference.compare(ranks)
        assert report.parity, report


def test_a_scaled_loss():
    """GradScaler: gradients that overflow on a rank are found on all, and unscaled they are one
    device's.
    """
    program = lm(layers=1)
    model, inputs = program.make(), program.inputs()
    want = take_step(model, model, inputs)
    models = [copy.deepcopy(model) for _ in range(2)]

    def on_rank(rank):
        compiled = autosp.compile(models[rank], backend=run_as_is)
        optimizer = torch.optim.SGD(models[rank].parameters(), 0.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        scaler.scale(compiled(**inputs)[0]).backward()
        scaler.unscale_(optimizer)
        return {name: p.grad for name, p in models[rank].named_parameters()}

    for grads in run_ranks(2, on_rank):
        for name, grad in grads.items():
            torch.testing.assert_close(grad, want.grads[name])

"""The hand-written peers of the benchmark compute what one device computes."""

import sys
from pathlib import Path

import gloo_pool
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

RANKS = 2
BATCH, TOKENS, VOCAB = 2, 16, 61


def _model(tied: bool):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        use_cache=False,
    )
    return LlamaForCausalLM(config).double()


def _batch(first_ignored: int, last_ignored: int):
    """Ids and labels; the first and the last columns of labels are ignored, and one in between."""
    ids = torch.randint(0, VOCAB, (BATCH, TOKENS), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[:, :first_ignored] = -100
    labels[:, TOKENS - last_ignored :] = -100
    labels[0, TOKENS // 2 + 1] = -100
    return ids, labels


def _against_one_device(backend, tied, batches):
    from peers.ulysses import Ulysses

    reference, peer = _model(tied), Ulysses(_model(tied), backend=backend)
    for ids, labels in batches:
        expected = reference(input_ids=ids, labels=labels).loss
        expected.backward()
        loss = peer(ids, labels)
        loss.backward()
        peer.reduce_gradients()
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
        _assert_same_gradients(peer.model, reference)
        reference.zero_grad()
        peer.zero_grad()


def _assert_same_gradients(model, reference):
    """Hugging Face's norms and its loss round to float32, hence not 1e-12; the floor is for
    gradients that hold only rounding."""
    expected = {name: p.grad for name, p in reference.named_parameters()}
    floor = 1e-3 * max(grad.norm() for grad in expected.values())
    for name, p in model.named_parameters():
        error = (p.grad - expected[name]).norm() / (expected[name].norm() + floor)
        assert error < 1e-5, f"{name}: {error}"


def _ulysses_case(rank):
    last_rank_ignored = _batch(0, TOKENS // RANKS)
    batches = [_batch(0, 1), _batch(3, 0), last_rank_ignored]
    _against_one_device(None, False, batches)
    _against_one_device(None, True, batches)
    _against_one_device("aot_eager", False, batches)


@pytest.mark.gloo
@pytest.mark.slow
def test_ulysses_equals_one_device():
    gloo_pool.run(RANKS, _ulysses_case)

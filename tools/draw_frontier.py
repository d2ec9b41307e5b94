"""Draws what memory costs in time for a Llama of an 8B model's size, as autosp.frontier finds it.

    python tools/draw_frontier.py [docs/frontier.svg] [--layers 32] [--tokens 131072] [--ranks 8]

On fake tensors: the model is not made, and nothing runs.
"""

import argparse

import autosp
import torch
from torch._subclasses import FakeTensorMode
from transformers import LlamaConfig, LlamaForCausalLM


def frontier(layers, tokens, ranks, **options):
    """The frontier of a model with the widths of Llama 3.1 8B."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = LlamaForCausalLM(
                LlamaConfig(
                    vocab_size=128256,
                    hidden_size=4096,
                    intermediate_size=14336,
                    num_hidden_layers=layers,
                    num_attention_heads=32,
                    num_key_value_heads=8,
                    max_position_embeddings=tokens,
                    use_cache=False,
                )
            )
            ids = torch.zeros(1, tokens, dtype=torch.long)
            return autosp.frontier(model, {"input_ids": ids, "labels": ids}, sp=ranks, **options)
    finally:
        torch.set_default_dtype(default)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", default="docs/frontier.svg")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--device", default="h100")
    parser.add_argument("--gib", type=float, help="a budget for the activations of one rank")
    args = parser.parse_args()
    frontier(
        args.layers,
        args.tokens,
        args.ranks,
        device=args.device,
        memory_bytes=args.gib and int(args.gib * 2**30),
        path=args.path,
    )


if __name__ == "__main__":
    main()

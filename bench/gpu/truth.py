"""Two ranks on one GPU against one device: the loss and every gradient of a small model, as
compiled by default and with what is kept moved to host memory.

Started by measure.py under torchrun. Gloo carries the exchanges through the host, since NCCL has no
two ranks on one GPU. Rank 0 prints a line that begins with "@" for each way.
"""

import argparse
import json
import sys
from pathlib import Path

import old_torch  # noqa: F401 (before autosp)
import torch
import torch.distributed as dist
from transformers import LlamaForCausalLM

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH.parent / "examples"))

import autosp  # noqa: E402
from train import llama  # noqa: E402


def model(tokens: int, device: str) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(llama(tokens)).to(device)


def gradients(trained) -> dict[str, torch.Tensor]:
    return {name: p.grad.double() for name, p in trained.named_parameters()}


WAYS = {
    "aot_eager": {"backend": "aot_eager"},
    "aot_eager, offloaded": {"backend": "aot_eager", "checkpointing": "sac", "offload": "all"},
    "inductor": {"backend": "inductor"},
    "inductor, offloaded": {"backend": "inductor", "checkpointing": "sac", "offload": "all"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--device", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (1, args.tokens), generator=generator).to(args.device)
    one = model(args.tokens, args.device)
    expected = one(input_ids=ids, labels=ids).loss
    expected.backward()
    reference = gradients(one)
    largest = max(grad.norm() for grad in reference.values())
    for way in args.ways:
        try:
            ours = autosp.compile(model(args.tokens, args.device), **WAYS[way])
            loss = ours(input_ids=ids, labels=ids).loss
            loss.backward()
        except autosp.AutoSPError as error:  # the same on both ranks
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        else:
            errors = {
                name: (
                    (grad - reference[name]).norm() / (reference[name].norm() + 1e-3 * largest)
                ).item()
                for name, grad in gradients(ours).items()
            }
            worst = max(errors, key=errors.get)
            answer = {
                "loss": loss.item(),
                "one device": expected.item(),
                "loss error": abs(loss.item() / expected.item() - 1),
                "largest gradient error": errors[worst],
                "of": worst,
            }
        if dist.get_rank() == 0:
            print("@" + json.dumps({"way": way} | answer), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""One way to train one model on one device, measured on demand.

Started by measure.py. Reads lines of JSON from its input, {"tokens": 4096, "steps": 3}, runs so
many steps of forward and backward at this length, and answers each on its output with a line that
begins with "@": the seconds of each step, the peak of memory and what of it is above parameters and
gradients, in bytes; or an error.

With more than one rank it is rank 0 of a `fake` process group: memory and computing are those of
one rank, the exchanges take no time, and the numbers mean nothing.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import old_torch  # noqa: F401 (before autosp)
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH.parent / "examples")]

import autosp  # noqa: E402
from peers.ulysses import Ulysses  # noqa: E402
from train import llama  # noqa: E402

VARIANTS = ("one eager", "one compiled", "ulysses eager", "ulysses compiled", "autosp compiled")


def model_config(name: str) -> LlamaConfig:
    if name == "example":
        return llama(2**20)
    sizes = {
        # Llama 3.2 1B; "smoke" has its shape at a size for a quick look.
        "1b": (128256, 2048, 8192, 16, 32, 8),
        "smoke": (256, 128, 256, 2, 8, 8),
    }[name]
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    names += ("num_attention_heads", "num_key_value_heads")
    return LlamaConfig(
        **dict(zip(names, sizes, strict=True)),
        tie_word_embeddings=True,
        max_position_embeddings=2**20,
        use_cache=False,
    )


class Trainee:
    def __init__(self, variant: str, model: str, ranks: int, device: str, backend: str):
        self.device = torch.device(device)
        kind, _, how = variant.partition(" ")
        if kind != "one":
            from torch.testing._internal.distributed.fake_pg import FakeStore

            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        torch.manual_seed(0)
        with self.device:
            self.model = LlamaForCausalLM(model_config(model)).bfloat16()
        self.compiled = how == "compiled"
        if kind == "ulysses":
            peer = Ulysses(self.model, backend="inductor" if self.compiled else None)
            self.run = lambda ids: peer(ids, ids)
            if self.compiled:
                self.mark_lengths(peer)
            return
        call = self.model
        if kind == "autosp":
            call = autosp.compile(self.model, backend=backend)
        elif self.compiled:
            call = torch.compile(self.model, fullgraph=True)
        self.run = lambda ids: call(input_ids=ids, labels=ids).loss

    @staticmethod
    def mark_lengths(peer: Ulysses) -> None:
        """Its inputs are parts that it cuts itself: those have the lengths that change."""
        run = peer._run
        del peer._run  # a submodule: something else can't be assigned to it

        def marked(**inputs):
            for value in inputs.values():
                if value.dim() == 2:
                    torch._dynamo.mark_dynamic(value, 1)
            return run(**inputs)

        peer._run = marked

    def step(self, tokens: int) -> float:
        ids = torch.randint(self.model.config.vocab_size, (1, tokens), device=self.device)
        if self.compiled:
            torch._dynamo.mark_dynamic(ids, 1)  # one compilation for every length
        self.synchronize()
        began = time.perf_counter()
        self.run(ids).backward()
        self.synchronize()
        return time.perf_counter() - began

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def measure(self, tokens: int, steps: int) -> dict:
        held = sum(2 * p.numel() * p.element_size() for p in self.model.parameters())
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = [self.step(tokens) for _ in range(steps)]
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated()
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"seconds": seconds, "peak_bytes": peak, "above_bytes": peak - held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--model", choices=("example", "1b", "smoke"), required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--backend", default="inductor", help="of AutoSP")
    args = parser.parse_args()
    trainee = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            trainee = trainee or Trainee(**vars(args))
            answer = trainee.measure(**order)
        except torch.OutOfMemoryError:
            answer = {"error": "out of memory"}
        except Exception as error:  # the others go on
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print("@" + json.dumps(order | answer), flush=True)
        if args.device == "cuda":
            for parameter in trainee.model.parameters() if trainee else ():
                parameter.grad = None
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

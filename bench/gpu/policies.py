"""One way to keep or recompute, measured on demand, on a rank of a model with an 8B model's widths.

Started by measure.py. Reads lines of JSON from its input and answers each on its output with a line
that begins with "@":

    {"layers": 2, "tokens": 65536, "backend": "inductor", "steps": 3, "memory": true}
        the seconds of each step; with "memory" what one step takes on the device, in bytes, above
        parameters, inputs and gradients of parameters: between forward and backward, at the peak,
        and both as predicted. The first order of its kind compiles.
    {"calibrate": true}
        what autosp.calibrate() measures, and its seconds.

It is rank 0 of a `fake` process group: memory and computing are those of one rank, the exchanges
take no time, and the values mean nothing. The vocabulary is small, so that the layers and not the
loss make the peak, and lengths are static: the prediction is for them alone.
"""

import argparse
import json
import sys
import time

import autosp
import old_torch  # noqa: F401 (before autosp)
import torch
import torch.distributed as dist
from autosp import checkpointing
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM

POLICIES = {
    "off": {"checkpointing": "off"},
    "sac": {"checkpointing": "sac"},
    "sac+exchanges": {"checkpointing": "sac+exchanges"},
    "full": {"checkpointing": "full"},
    "sac, offloaded": {"checkpointing": "sac", "offload": "all"},
}
# hidden, intermediate, heads, key/value heads
WIDTHS = {"8b": (4096, 14336, 32, 8), "smoke": (64, 128, 8, 8)}
VOCABULARY = 1024


class Trainee:
    def __init__(self, policy: str, widths: str, device: str, layers: int, tokens: int, backend):
        hidden, intermediate, heads, kv_heads = WIDTHS[widths]
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            intermediate_size=intermediate,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=2**20,
            use_cache=False,
        )
        torch.manual_seed(0)
        with torch.device(device):
            self.model = LlamaForCausalLM(config).bfloat16()
            self.ids = torch.randint(VOCABULARY, (1, tokens))
        self.call = autosp.compile(self.model, backend=backend, **POLICIES[policy])

    def loss(self):
        return self.call(input_ids=self.ids, labels=self.ids).loss

    def step(self) -> float:
        self.model.zero_grad()
        synchronize()
        began = time.perf_counter()
        self.loss().backward()
        synchronize()
        return time.perf_counter() - began

    def memory(self) -> dict:
        """Of one step on CUDA, from the allocator's own record of it."""
        self.model.zero_grad()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.memory._record_memory_history(context=None, max_entries=2**20)
        loss = self.loss()
        kept = torch.cuda.memory_allocated() - before
        loss.backward()
        torch.cuda.synchronize()
        trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        torch.cuda.memory._record_memory_history(enabled=None)
        gradients = {p.grad.data_ptr() for p in self.model.parameters()}
        return {"kept_bytes": kept, "peak_bytes": peak_bytes(trace, gradients)}


def peak_bytes(trace: list[dict], aside: set[int]) -> int:
    """The most bytes that live at once, of what an allocator's events make, without the blocks at
    the addresses `aside` that are there in the end.
    """
    born = {}
    for at, event in enumerate(trace):
        if event["action"] == "alloc":
            born[event["addr"]] = at
        elif event["action"] == "free_completed":
            born.pop(event["addr"], None)
    remaining = {born[address] for address in aside if address in born}
    live, total, most = {}, 0, 0
    for at, event in enumerate(trace):
        address = event["addr"]
        if event["action"] == "alloc" and at not in remaining:
            live[address] = event["size"]
            total += event["size"]
            most = max(most, total)
        elif event["action"] == "free_completed":
            total -= live.pop(address, 0)
    return most


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Worker:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.trainees = {}
        self.plan = None
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=args.ranks)
        torch._dynamo.config.automatic_dynamic_shapes = False
        make = checkpointing.Partitioner.plan

        def plan(partitioner, graph):
            self.plan = make(partitioner, graph)
            return self.plan

        checkpointing.Partitioner.plan = plan

    def calibrate(self) -> dict:
        began = time.perf_counter()
        device = autosp.calibrate(device=self.args.device)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "launch_ns": device.launch_ns} | device.reached

    def measure(self, layers: int, tokens: int, backend: str, steps: int, memory=False) -> dict:
        key = layers, tokens, backend
        answer = {}
        if key not in self.trainees:
            self.plan = None
            args = self.args
            trainee = Trainee(args.policy, args.widths, args.device, layers, tokens, backend)
            began = time.perf_counter()
            trainee.step()
            answer["compile_seconds"] = time.perf_counter() - began
            self.trainees[key] = trainee, self.plan
        trainee, plan = self.trainees[key]
        answer["seconds"] = [trainee.step() for _ in range(steps)]
        if memory and self.args.device == "cuda":
            answer |= trainee.memory()
        if plan is not None:
            answer |= {
                "predicted_kept_bytes": plan.kept_bytes,
                "predicted_peak_bytes": plan.peak_bytes,
                "predicted_seconds": plan.step_ns * 1e-9,
                "host_bytes": plan.offloaded_bytes,
            }
        trainee.model.zero_grad()
        return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", choices=POLICIES, required=True)
    parser.add_argument("--widths", choices=WIDTHS, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--device", required=True)
    worker = Worker(parser.parse_args())
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order.pop("calibrate", False):
                answer = worker.calibrate()
            else:
                answer = order | worker.measure(**order)
        except torch.OutOfMemoryError:
            answer = order | {"error": "out of memory"}
        except Exception as error:  # the others go on
            answer = order | {"error": f"{type(error).__name__}: {error}"[:2000]}
        print("@" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

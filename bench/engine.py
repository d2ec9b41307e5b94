"""Time of the engine on Hugging Face Llamas of growing depth, beside the compilation around it.

    python bench/engine.py [--layers 2 8 32 126] [--repeats 5] [--ranks 8]
    python bench/engine.py --quick     two small depths; writes no results

Dynamo captures each model once and hands it to a backend, which lets the engine read the FX graph,
run its steps and write the graph of one rank back, several times on copies, and then compiles the
captured graph with "aot_eager" as torch.compile does. Inductor would take longer still, so the
engine's share of a real compilation is smaller than the one given. Sizes of tensors matter to none
of this: the model is narrow. One thread, medians.
"""

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path

import record
import torch
from autosp import collectives, fx  # noqa: F401 (registers the operators that `write` names)
from transformers import LlamaConfig, LlamaForCausalLM

PARTS = ("read", "steps", "write")
AIM_LAYERS, AIM_STEPS_MS, AIM_FX_MS, AIM_SHARE = 32, 150, 500, 0.03


def llama(layers: int, ranks: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=8 * ranks,
        intermediate_size=16 * ranks,
        num_hidden_layers=layers,
        num_attention_heads=ranks,
        num_key_value_heads=ranks,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


class Backend:
    """Times the engine on a captured graph, then compiles the graph without it."""

    def __init__(self, ranks: int, repeats: int):
        self.ranks, self.repeats = ranks, repeats
        self.ms: dict[str, list[float]] = {part: [] for part in PARTS}
        self.steps: list[dict[str, float]] = []

    def __call__(self, gm, inputs):
        self.entered = time.perf_counter()
        self.nodes = len(gm.graph.nodes)
        for _ in range(self.repeats):
            self.once(torch.fx.GraphModule(gm, copy.deepcopy(gm.graph)))
        self.left = time.perf_counter()
        return torch._dynamo.lookup_backend("aot_eager")(gm, inputs)

    def once(self, gm) -> None:
        times = [time.perf_counter()]
        program = fx.read(gm)
        times.append(time.perf_counter())
        plan = program.plan(self.ranks)
        times.append(time.perf_counter())
        plan.write(0, "group")
        times.append(time.perf_counter())
        for part, start, end in zip(PARTS, times[:-1], times[1:], strict=True):
            self.ms[part].append(1e3 * (end - start))
        self.steps.append({name: ns / 1e6 for name, ns in plan.step_ns})


def measure(layers: int, ranks: int, repeats: int) -> dict:
    model = llama(layers, ranks)
    ids = torch.randint(0, 256, (1, 16 * ranks))
    torch._dynamo.reset()
    backend = Backend(ranks, repeats)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    began = time.perf_counter()
    compiled(input_ids=ids, labels=ids).loss.backward()
    whole = time.perf_counter() - began - (backend.left - backend.entered)
    row = {f"{part}_ms": statistics.median(times) for part, times in backend.ms.items()}
    engine = sum(row.values())
    return {
        "layers": layers,
        "nodes": backend.nodes,
        **row,
        "engine_ms": engine,
        "capture_ms": 1e3 * (backend.entered - began),
        "compile_ms": 1e3 * whole,
        "share": engine / (1e3 * whole + engine),
        "step_ms": {
            name: statistics.median(steps[name] for steps in backend.steps)
            for name in backend.steps[0]
        },
    }


def tables(rows: list[dict], ranks: int) -> list[record.Table]:
    times = record.Table(
        f"Engine, plan for {ranks} ranks, ms",
        [
            "layers",
            "nodes",
            "read FX",
            "steps",
            "write FX",
            "engine",
            "µs a node",
            "growth",
            "share",
            "capture",
            "compile",
        ],
        note="growth: µs for each node more than in the row above; share: the engine's of the whole"
        " compilation through aot_eager, capture by Dynamo included",
    )
    previous = None
    for row in rows:
        growth = ""
        if previous:
            more = row["nodes"] - previous["nodes"]
            growth = f"{1e3 * (row['engine_ms'] - previous['engine_ms']) / more:.1f}"
        previous = row
        times.rows.append(
            [str(row["layers"]), str(row["nodes"])]
            + [f"{row[f'{part}_ms']:.1f}" for part in PARTS]
            + [f"{row['engine_ms']:.1f}", f"{1e3 * row['engine_ms'] / row['nodes']:.1f}", growth]
            + [
                f"{100 * row['share']:.2f} %",
                f"{row['capture_ms']:.0f}",
                f"{row['compile_ms']:.0f}",
            ]
        )
    steps = record.Table(
        "The engine's steps, ms", ["step", *(f"{row['layers']} layers" for row in rows)]
    )
    for name in rows[0]["step_ms"]:
        steps.rows.append([name, *(f"{row['step_ms'][name]:.2f}" for row in rows)])
    return [times, steps]


def aims(rows: list[dict]) -> dict[str, bool]:
    at = next((row for row in rows if row["layers"] == AIM_LAYERS), None)
    if at is None:
        return {}
    per_node = [row["engine_ms"] / row["nodes"] for row in rows]
    return {
        f"{AIM_LAYERS} layers: steps within {AIM_STEPS_MS} ms": at["steps_ms"] <= AIM_STEPS_MS,
        f"{AIM_LAYERS} layers: reading and writing FX within {AIM_FX_MS} ms": at["read_ms"]
        + at["write_ms"]
        <= AIM_FX_MS,
        f"{AIM_LAYERS} layers: at most {AIM_SHARE:.0%} of the compilation": at["share"]
        <= AIM_SHARE,
        "linear: no depth takes 1.5 times the µs a node of another": max(per_node)
        <= 1.5 * min(per_node),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8, 32, 126])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="2 and 4 layers, no file")
    parser.add_argument("--output", type=Path, default=record.RESULTS / "engine.json")
    args = parser.parse_args()
    if args.quick:
        args.layers, args.repeats, args.output = [2, 4], 3, None
    torch.set_num_threads(1)
    rows = []
    for layers in args.layers:
        print(f"{layers} layers …", end=" ", flush=True)
        rows.append(measure(layers, args.ranks, args.repeats))
        print(
            f"engine {rows[-1]['engine_ms']:.0f} ms, compile {rows[-1]['compile_ms']:.0f} ms",
            flush=True,
        )
    record.finish(args.output, tables(rows, args.ranks), aims=aims(rows), rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

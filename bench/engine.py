"""Time of the engine on Hugging Face Llamas of growing depth, beside what torch.compile takes for the same model.

    python bench/engine.py [--layers 2 8 32 126] [--repeats 5] [--ranks 8] [--output bench/results/engine.json]

For each depth: Dynamo's capture, the engine's reading of the FX graph, its steps, its writing back, and the whole of
torch.compile(backend="aot_eager") up to the first call's end, all in one process and run. Medians. Sizes do not matter
to any of it, so the model is narrow.
"""

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import time

import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from autosp import collectives, fx  # noqa: F401 (registers the operators that `write` names)


def llama(layers, ranks):
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


def milliseconds(function):
    start = time.perf_counter()
    result = function()
    return result, 1e3 * (time.perf_counter() - start)


def measure(layers, ranks, repeats):
    model = llama(layers, ranks)
    ids = torch.randint(0, 256, (1, 16 * ranks))
    graphs = []

    def capture(gm, inputs):
        graphs.append(copy.deepcopy(gm.graph))
        graphs.append(gm)
        return gm

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=capture, fullgraph=True)
    _, captured_ms = milliseconds(lambda: compiled(input_ids=ids, labels=ids))
    gm = graphs[1]
    rows = {"read": [], "steps": [], "write": []}
    for _ in range(repeats):
        fresh = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
        program, read_ms = milliseconds(lambda: fx.read(fresh))  # noqa: B023
        plan, steps_ms = milliseconds(lambda: program.plan(ranks))  # noqa: B023
        _, write_ms = milliseconds(lambda: plan.write(0, "group"))  # noqa: B023
        rows["read"].append(read_ms)
        rows["steps"].append(steps_ms)
        rows["write"].append(write_ms)
    torch._dynamo.reset()
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    _, compile_ms = milliseconds(lambda: whole(input_ids=ids, labels=ids).loss.backward())
    medians = {name: statistics.median(values) for name, values in rows.items()}
    return {
        "layers": layers,
        "nodes": len(gm.graph.nodes),
        "capture_ms": captured_ms,
        **{f"{name}_ms": value for name, value in medians.items()},
        "step_ns": {name: ns for name, ns in plan.report.step_ns},
        "compile_ms": compile_ms,
        "share_of_compile": sum(medians.values()) / compile_ms,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8, 32, 126])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--output", default=os.path.join(os.path.dirname(__file__), "results", "engine.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"Engine time in ms, plan for {arguments.ranks} ranks", box=None)
    columns = ["layers", "nodes", "read", "steps", "write", "engine / compile", "µs a node", "capture", "compile"]
    for column in columns:
        table.add_column(column, justify="right")
    results = []
    for layers in arguments.layers:
        row = measure(layers, arguments.ranks, arguments.repeats)
        results.append(row)
        engine = row["read_ms"] + row["steps_ms"] + row["write_ms"]
        print(f"{layers} layers: engine {engine:.0f} ms, compile {row['compile_ms']:.0f} ms", file=sys.stderr, flush=True)
        table.add_row(
            str(layers),
            str(row["nodes"]),
            f"{row['read_ms']:.1f}",
            f"{row['steps_ms']:.1f}",
            f"{row['write_ms']:.1f}",
            f"{100 * row['share_of_compile']:.2f} %",
            f"{1e3 * engine / row['nodes']:.1f}",
            f"{row['capture_ms']:.0f}",
            f"{row['compile_ms']:.0f}",
        )
    Console(width=120).print(table)
    os.makedirs(os.path.dirname(arguments.output), exist_ok=True)
    with open(arguments.output, "w") as file:
        record = {
            "command": "python " + " ".join(["bench/engine.py", *sys.argv[1:]]),
            "device": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "date": time.strftime("%Y-%m-%d"),
            "rows": results,
        }
        json.dump(record, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()

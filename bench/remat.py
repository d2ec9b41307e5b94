"""What is kept for the backward and what it costs: our plans beside torch's own partitioner.

    python bench/remat.py [--layers 4] [--depths 32] [--ranks 8] [--length 8192] [--device h100]
    python bench/remat.py --quick     two layers; writes no results

The joint graph of one rank of a Llama with the 8B model's widths is captured once, on fake tensors.
Torch's partitioner splits it for a range of its `activation_memory_budget`; each of its choices,
and each of ours, is judged by the same simulation of peak memory and the same estimate of time. In
the same run both planners are timed on the same graph, and the memory of attention and of the
other half of a layer is split by operator. One thread; times are the least of several runs.
"""

import argparse
import bisect
import copy
import dataclasses
import operator
import sys
import time
from pathlib import Path
from unittest.mock import patch

import record
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test" / "python"))

import autosp
from autosp import _engine, checkpointing, fx
from measure_memory import as_inductor_splits, fake_llama, fake_ranks
from torch._functorch import config as functorch_config
from torch._functorch import partitioners

BUDGETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
AIM_SPEEDUP = 20
AIM_MS, AIM_FRONTIER_MS = {32: 50, 126: 250}, 1000
MIB = 1 << 20


class Captured(Exception):
    pass


class Capture:
    """Takes the joint graph that it is given, and stops."""

    def __call__(self, gm, joint_inputs, *, num_fwd_outputs, **kwargs):
        checkpointing.prepare(gm)
        self.taken = gm, joint_inputs, num_fwd_outputs, kwargs
        raise Captured


class Joint:
    """The joint graph of one rank, for torch and for the engine."""

    def __init__(self, layers: int, vocabulary: int, ranks: int, length: int, device: str):
        torch._dynamo.reset()
        capture = Capture()
        with fake_ranks(ranks), fake_llama(layers, vocabulary) as model:
            ids = torch.zeros(1, ranks * length, dtype=torch.int64)
            compiled = autosp.compile(model, backend=as_inductor_splits(capture))
            try:
                compiled(input_ids=ids, labels=ids)
            except Exception as error:
                if not hasattr(capture, "taken"):
                    raise error
        self.gm, self.inputs, self.forward_outputs, self.kwargs = capture.taken
        self.costs = {"device": device, "ranks": ranks}
        self.ranks, self.layers, self.length = ranks, layers, length
        self.graph = self.read()
        self.numbers = {node.name: number for number, node in enumerate(self.gm.graph.nodes)}

    def read(self):
        return checkpointing.read_joint_graph(
            self.gm.graph, self.forward_outputs, self.kwargs["static_lifetime_input_indices"]
        )

    def split_by_torch(self, budget: float):
        """The nodes that torch's partitioner keeps, and how long it took to choose them."""
        gm = torch.fx.GraphModule(self.gm, copy.deepcopy(self.gm.graph))
        choose, chosen, seconds = partitioners.choose_saved_values_set, [], []

        def timed(*args, **kwargs):
            began = time.perf_counter()
            chosen.extend(choose(*args, **kwargs))
            seconds.append(time.perf_counter() - began)
            return chosen

        with (
            fake_ranks(self.ranks),
            functorch_config.patch(activation_memory_budget=budget),
            patch.object(partitioners, "choose_saved_values_set", timed),
            patch.object(partitioners, "get_default_op_list", operators_with_attention),
        ):
            partitioners.min_cut_rematerialization_partition(
                gm, self.inputs, num_fwd_outputs=self.forward_outputs, **self.kwargs
            )
        return [self.numbers[node.name] for node in chosen], seconds[0]


def operators_with_attention(get=partitioners.get_default_op_list):
    """Torch's lists for its partitioner, which know the attentions of GPUs to be expensive; so that
    it does for the processor's what it would do there.
    """
    types = get()
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    expensive = types.compute_intensive_ops | {attention}
    return dataclasses.replace(types, compute_intensive_ops=expensive)


def milliseconds(run, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


def compare(joint: Joint, budgets) -> tuple[record.Table, list[dict]]:
    """Torch's choice at each budget, and our fastest plan with no higher peak."""
    table = record.Table(
        f"Torch's memory budgets and our plans: {joint.layers} layers,"
        f" {joint.length} tokens on each of {joint.ranks} ranks",
        ["budget", "torch: kept", "peak", "recomputed", "ours: kept", "peak", "recomputed"],
        note="MiB, and estimated milliseconds; ours is the fastest plan whose peak is not higher",
    )
    rows = []
    for budget in budgets:
        saved, seconds = joint.split_by_torch(budget)
        theirs = joint.graph.simulate(saved, **joint.costs)
        row = {"budget": budget, "seconds": seconds, "torch": figures(theirs)}
        try:
            plan = joint.graph.plan("memory", memory_bytes=theirs.peak_bytes, **joint.costs)
            row["ours"] = figures(plan)
        except autosp.Unsupported:
            row["ours"] = None
        rows.append(row)
        cells = [f"{budget}", *cells_of(row["torch"]), *cells_of(row["ours"])]
        table.rows.append(cells)
    return table, rows


def figures(plan) -> dict:
    return {
        "kept_bytes": plan.kept_bytes,
        "peak_bytes": plan.peak_bytes,
        "recompute_ns": plan.recompute_ns,
        "step_ns": plan.step_ns,
    }


def cells_of(result: dict | None) -> list[str]:
    if result is None:
        return ["–"] * 3
    kept, peak = (result[key] / MIB for key in ("kept_bytes", "peak_bytes"))
    return [f"{kept:.0f}", f"{peak:.0f}", f"{result['recompute_ns'] / 1e6:.3f}"]


def is_as_good(row: dict) -> bool:
    ours, theirs = row["ours"], row["torch"]
    return ours is not None and ours["recompute_ns"] <= theirs["recompute_ns"]


def frontier_table(joint: Joint) -> tuple[record.Table, list[dict]]:
    table = record.Table(
        "The frontier of the same graph",
        ["point", "kept", "in host memory", "peak", "recomputed", "waiting", "step"],
        note="MiB, and estimated milliseconds; with and without host memory",
    )
    rows = []
    for offload in ("off", "auto"):
        points = joint.graph.frontier(offload=offload, **joint.costs)
        for number, point in enumerate(points):
            keys = ("kept_bytes", "offloaded_bytes", "peak_bytes")
            times = ("recompute_ns", "wait_ns", "step_ns")
            row = {key: getattr(point, key) for key in keys + times}
            rows.append({"offload": offload, **row})
            # Every point is in the file; the table shows some.
            if number % max(1, len(points) // 8) == 0 or number == len(points) - 1:
                cells = [f"{row[key] / MIB:.0f}" for key in keys]
                cells += [f"{row[key] / 1e6:.3f}" for key in times]
                table.rows.append([f"{offload} {number}", *cells])
    return table, rows


def time_planners(joint: Joint, repeats: int) -> dict[str, float]:
    stock = min(joint.split_by_torch(1.0)[1] for _ in range(2)) * 1e3
    peak = joint.graph.plan("sac", **joint.costs).peak_bytes
    return {
        "nodes": len(joint.gm.graph.nodes),
        "torch's cut": stock,
        "reading the graph": milliseconds(joint.read, repeats),
        "sac": milliseconds(lambda: joint.graph.plan("sac", **joint.costs), repeats),
        "a budget": milliseconds(
            lambda: joint.graph.plan("memory", memory_bytes=peak, **joint.costs), repeats
        ),
        "the frontier": milliseconds(lambda: joint.graph.frontier(**joint.costs), repeats),
        "the frontier with offload": milliseconds(
            lambda: joint.graph.frontier(offload="auto", **joint.costs), repeats
        ),
    }


def times_table(ms: dict[int, dict[str, float]]) -> record.Table:
    table = record.Table(
        "Milliseconds to plan",
        ["layers", *next(iter(ms.values()))],
        note="torch's is its minimum cut alone, at budget 1; a budget, the frontier: ours",
    )
    for layers, row in ms.items():
        cells = [f"{value:.{0 if key == 'nodes' else 1}f}" for key, value in row.items()]
        table.rows.append([str(layers), *cells])
    return table


# ---- Attention and the other half of a layer ----

POLICIES = ("off", "sac", "sac+exchanges", "full")


def halves(joint: Joint) -> list[str]:
    """Per node to which half of which layer it belongs: "attention 0", "mlp 0", …; what a half
    passes on belongs to it. "" for what comes after the layers.
    """
    nodes = list(joint.gm.graph.nodes)
    adds = [
        number
        for number, node in enumerate(nodes)
        if node.target is torch.ops.aten.add.Tensor and "residual + " in source_of(node)
    ]
    where = []
    for number in range(len(nodes)):
        at = bisect.bisect_left(adds, number)
        where.append(f"{('attention', 'mlp')[at % 2]} {at // 2}" if at < len(adds) else "")
    return where


def source_of(node) -> str:
    return _engine.source_line(node.meta.get("stack_trace") or "", fx.PACKAGES)


def split_by_operator(joint: Joint) -> tuple[record.Table, dict]:
    """What the layer in the middle keeps for the backward, by half and operator."""
    nodes, where = list(joint.gm.graph.nodes), halves(joint)
    kept: dict[tuple[str, str], dict[str, float]] = {}
    total = {half: dict.fromkeys(POLICIES, 0.0) for half in ("attention", "mlp")}
    for policy in POLICIES:
        if policy == "off":
            saved, _ = joint.split_by_torch(1.0)
        else:
            saved = joint.graph.plan(policy, **joint.costs).saved
        for owner in dict.fromkeys(owner_of(nodes[number]) for number in saved):
            half, _, layer = where[joint.numbers[owner.name]].partition(" ")
            if layer != str(joint.layers // 2) or owner.op == "placeholder":
                continue
            value = owner.meta["val"]
            kib = value.numel() * value.element_size() / joint.length / 1024
            row = half, what(owner)
            kept.setdefault(row, dict.fromkeys(POLICIES, 0.0))[policy] += kib
            total[half][policy] += kib
    table = record.Table(
        "Kept for the backward by one layer, KiB per local token",
        ["operator", *POLICIES],
        note="off: torch's own partitioner; the layer's input is the result of the addition before",
    )
    for half in total:
        rows = [(name, figures) for (of_half, name), figures in kept.items() if of_half == half]
        for name, figures in [*rows, (f"{half}, in all", total[half])]:
            table.rows.append([name, *(f"{figures[policy]:.3f}" for policy in POLICIES)])
        table.rows.append([f"{half}, of off", *(share(total[half], policy) for policy in POLICIES)])
    return table, {"kept_kib": total}


def share(total: dict[str, float], policy: str) -> str:
    return f"1/{total['off'] / total[policy]:.2f}" if total[policy] >= 0.01 else "0"


def what(node) -> str:
    made_by = node.args[0] if node.target is operator.getitem else node
    name = str(made_by.target).removesuffix(".default").removeprefix("aten.")[:36]
    line = source_of(node).rpartition(": ")[2]
    return f"{name}: {line[:40]}" if line else f"{name}, exchanged"


def owner_of(node):
    """The node that made the storage in which a value lies."""
    while checkpointing._is_view(node):
        node = node.args[0]
    return node


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--depths", type=int, nargs="*", default=[32], help="to time planners at")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--device", default="h100")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    layers, depths, repeats = args.layers, args.depths, 10
    if args.quick:
        layers, depths, repeats = 2, [], 2

    def capture(layers):
        return Joint(layers, args.vocabulary, args.ranks, args.length, args.device)

    joint = capture(layers)
    budgets = (0.1, 0.5, 1.0) if args.quick else BUDGETS
    comparison, rows = compare(joint, budgets)
    points, frontier = frontier_table(joint)
    ms = {layers: time_planners(joint, repeats)}
    operators, split = split_by_operator(joint)
    ms |= {depth: time_planners(capture(depth), repeats) for depth in depths}
    aims = {
        "at every budget of torch's a plan of ours is as good in peak and time": all(
            is_as_good(row) for row in rows
        ),
        f"a plan takes a {AIM_SPEEDUP}th of torch's minimum cut, or less": all(
            row["sac"] * AIM_SPEEDUP <= row["torch's cut"] for row in ms.values()
        ),
    }
    for depth, plan_ms in AIM_MS.items():
        if depth in ms:
            aims[f"a plan of {depth} layers in {plan_ms} ms, the frontier in {AIM_FRONTIER_MS}"] = (
                ms[depth]["sac"] <= plan_ms and ms[depth]["the frontier"] <= AIM_FRONTIER_MS
            )
    record.finish(
        None if args.quick else record.RESULTS / "remat.json",
        [comparison, points, times_table(ms), operators],
        aims,
        budgets=rows,
        frontier=frontier,
        planner_ms=ms,
        **split,
    )
    return 0 if all(aims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

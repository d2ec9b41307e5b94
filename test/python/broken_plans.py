"""Plans in text form, as autosp-break writes them, on simulated ranks."""

import dataclasses
import math
import re

import torch
import torch.distributed as dist
from autosp import fx
from autosp.simulate import RanksFailed, run_ranks

_LINE = re.compile(r"%(\w+): (.*?) = ([\w.]+)\((.*)\)$")


@dataclasses.dataclass
class Plan:
    """`dims`: the dimension that each output is sharded along, or None."""

    program: str
    change: str
    accepted: bool
    dims: list
    lines: list[str]

    @classmethod
    def read(cls, text):
        header, body = [], []
        for line in text.splitlines():
            (header if line.startswith("// ") else body).append(line)
        fields = dict(line.removeprefix("// ").split(": ", 1) for line in header)
        dims = [None if dim == "-" else int(dim) for dim in fields["outputs"].split()]
        accepted = fields["verdict"] == "accepted"
        return cls(fields["program"], fields["change"], accepted, dims, body)


def run_plan(lines, inputs, rank, group):
    """The outputs of one rank; `inputs` by name."""
    symbols, values = {"rank": rank}, {}
    names = {"slice": slice, "inf": math.inf, "nan": math.nan, "torch": torch, "group": group}
    for line in lines:
        line = re.sub(r' loc ".*"$', "", line.strip())
        if line.startswith("symbols "):
            hints = (entry.split("=") for entry in line.removeprefix("symbols ").split(", "))
            symbols |= {name: int(value) for name, value in hints if name != "rank"}
        elif line.startswith("let "):
            name, length = line.removeprefix("let ").split(" = ", 1)
            symbols[name] = eval(length.removeprefix("size"), {}, symbols)
        elif " = input " in line:
            name = line[1:].split(":")[0]
            values[name] = inputs[name]
        elif line.startswith("return "):
            return _arguments(line.removeprefix("return "), names | symbols, values)
        elif line:
            name, _, target, arguments = _LINE.match(line).groups()
            call = f"_call({arguments})"
            scope = names | symbols | {"_call": _caller(target)}
            values[name] = _arguments(call, scope, values)
    raise ValueError("a plan without outputs")


def _arguments(text, names, values):
    text = re.sub(r"%(\w+)", r"_values['\1']", text)
    text = re.sub(r"@\"device\(type='(\w+)'\)\"", r"torch.device('\1')", text)
    return eval(text.replace("@", ""), names | {"_values": values})


def _caller(target):
    if target.startswith("Tensor."):
        return lambda x, *args, **kwargs: getattr(x, target[7:])(*args, **kwargs)
    return fx.resolve(target)


def what_differs(plan, reference):
    """How the plan's step differs from one device's; None where it doesn't."""

    def on_rank(rank):
        def run(inputs):
            return list(run_plan(plan.lines, inputs, rank, dist.group.WORLD.group_name))

        return reference.step(rank, plan.dims, run)

    try:
        steps = run_ranks(reference.program.ranks, on_rank, timeout_seconds=20)
        return reference.difference(plan.dims, steps)
    except RanksFailed as failed:
        return f"fails: {next(iter(failed.errors.values()))}"
    except RuntimeError as error:  # parts that don't fit together
        return f"fails: {error}"

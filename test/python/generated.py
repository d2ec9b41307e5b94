"""Programs as data: inputs, calls of torch's operators with all arguments written out, outputs.

A program prints, runs on one device, becomes the graph that Dynamo would hand to the compiler, and
stays a program when calls are taken out: what random testing needs to find and to shrink failures.
"""

import builtins
import dataclasses
import functools
import math
import operator
import zlib

import torch


class Ref(str):
    """A value, by its name."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


def map_refs(function, arg):
    """An argument with its names replaced."""
    if isinstance(arg, Ref):
        return function(arg)
    if isinstance(arg, tuple | list):
        return type(arg)([map_refs(function, x) for x in arg])
    if isinstance(arg, dict):
        return {key: map_refs(function, x) for key, x in arg.items()}
    return arg


@dataclasses.dataclass(frozen=True)
class Input:
    """`values`: "normal" and wants a gradient, "positive", "ints" below `high`, "bools", or
    "order", a permutation.
    """

    name: Ref
    shape: tuple
    values: str
    high: int = 0

    def make(self, seed):
        generator = torch.Generator().manual_seed(seed * 1000 + zlib.crc32(self.name.encode()))
        if self.values == "normal":
            x = torch.randn(self.shape, generator=generator, dtype=torch.float64)
            return x.requires_grad_()
        if self.values == "ints":
            return torch.randint(0, self.high, self.shape, generator=generator)
        if self.values == "positive":
            return torch.rand(self.shape, generator=generator, dtype=torch.float64) + 0.1
        if self.values == "bools":
            return torch.rand(self.shape, generator=generator) < 0.6
        return torch.randperm(*self.shape, generator=generator)

    def __str__(self):
        below = f" below {self.high}" if self.high else ""
        return f"{self.name} = input {self.values}{below} {list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class Call:
    """`name` = target(*args, **kwargs): "torch.matmul" or, of a method, "Tensor.view"."""

    name: Ref
    target: str
    args: tuple
    kwargs: dict

    def refs(self):
        found = []
        map_refs(found.append, (self.args, self.kwargs))
        return found

    def reading(self, values):
        """(args, kwargs) with the values of their names."""
        return map_refs(values.__getitem__, (self.args, self.kwargs))

    def __str__(self):
        if self.target == "_operator.setitem":
            value, index, what = self.args
            return f"{value}[{_index(index)}] = {what!r}"
        if self.target == "_operator.getitem":
            return f"{self.name} = {self.args[0]}[{_index(self.args[1])}]"
        arguments = [repr(x) for x in self.args]
        arguments += [f"{key}={value!r}" for key, value in self.kwargs.items()]
        if self.target.startswith("Tensor."):
            return f"{self.name} = {arguments[0]}{self.target[6:]}({', '.join(arguments[1:])})"
        return f"{self.name} = {self.target}({', '.join(arguments)})"


def _index(index):
    items = index if isinstance(index, tuple) else (index,)
    return ", ".join(_slice(x) if isinstance(x, slice) else repr(x) for x in items)


def _slice(x):
    text = ":".join("" if part is None else str(part) for part in (x.start, x.stop))
    return text if x.step is None else f"{text}:{x.step}"


@functools.cache
def resolve(target):
    if target.startswith("Tensor."):
        return target.removeprefix("Tensor.")
    head, *path = target.split(".")
    root = {"torch": torch, "_operator": operator, "builtins": builtins, "math": math}[head]
    return functools.reduce(getattr, path, root)


def run_call(call, values):
    args, kwargs = call.reading(values)
    target = resolve(call.target)
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


@dataclasses.dataclass
class Module:
    """What the engine looks at of a torch.fx.GraphModule; making one of those takes longer than the
    engine does.
    """

    graph: torch.fx.Graph

    def recompile(self):
        pass


@dataclasses.dataclass(frozen=True)
class Step:
    outputs: list
    grads: dict


@dataclasses.dataclass
class Program:
    """`options` are those of a plan, "ranks" and "attention" and the like; with "lengths" the first
    is a symbol, captured at that length, and what is compared is run at the second.
    """

    seed: int
    inputs: list[Input]
    calls: list[Call]
    outputs: list[Ref]
    options: dict

    @property
    def ranks(self):
        return self.options["ranks"]

    def targets(self):
        return {call.target for call in self.calls}

    def make_inputs(self):
        return {x.name: x.make(self.seed) for x in self.inputs}

    def cotangents(self, outputs):
        """One for each output that wants a gradient; of a scalar 1, as of a loss."""
        generator = torch.Generator().manual_seed(self.seed)
        return [
            None
            if not x.requires_grad
            else torch.ones_like(x)
            if x.ndim == 0
            else torch.randn(x.shape, generator=generator, dtype=x.dtype)
            for x in outputs
        ]

    def run(self, nudge=None):
        """All values on one device, and the step: raises what torch raises. `nudge`, a generator,
        changes the last digits of every value.
        """
        values = self.make_inputs()
        leaves = {name: x for name, x in values.items() if x.requires_grad}
        for call in self.calls:
            value = run_call(call, values)
            values[call.name] = value if nudge is None else _nudged(value, nudge)
        outputs = [values[name] for name in self.outputs]
        return values, take_step(outputs, self.cotangents(outputs), leaves)

    def graph(self, values):
        """What Dynamo would have captured, as far as the engine looks at it; `values` are of the
        shapes and types of all values.
        """
        graph = torch.fx.Graph()
        nodes = {}
        for x in self.inputs:
            nodes[x.name] = graph.placeholder(x.name)
            nodes[x.name].meta["example_value"] = values[x.name]
        for line, call in enumerate(self.calls, len(self.inputs) + 1):
            args, kwargs = call.reading(nodes)
            target = resolve(call.target)
            op = "call_method" if isinstance(target, str) else "call_function"
            nodes[call.name] = node = graph.create_node(op, target, args, kwargs, call.name)
            node.meta["example_value"] = values[call.name]
            node.stack_trace = f'  File "program.py", line {line}, in program\n    {call}\n'
        graph.output(tuple(nodes[name] for name in self.outputs))
        return Module(graph)

    def __str__(self):
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        lines = [f"# seed {self.seed}; {options}", *map(str, self.inputs), *map(str, self.calls)]
        return "\n".join([*lines, f"return {', '.join(self.outputs)}"])


def _nudged(value, generator):
    if isinstance(value, tuple):
        return type(value)([_nudged(x, generator) for x in value])
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value._is_view():
        return value  # a view stays one
    units = torch.randint(-4, 5, value.shape, generator=generator)
    return value * (1 + units.to(value.dtype) * torch.finfo(value.dtype).eps)


def take_step(outputs, cotangents, leaves):
    wanted = [i for i, cotangent in enumerate(cotangents) if cotangent is not None]
    grads = [None] * len(leaves)
    if wanted and leaves:
        grads = torch.autograd.grad(
            [outputs[i] for i in wanted],
            list(leaves.values()),
            [cotangents[i] for i in wanted],
            allow_unused=True,
        )
    return Step([x.detach() for x in outputs], dict(zip(leaves, grads, strict=True)))

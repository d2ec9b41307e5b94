"""Facts about FX objects and symbolic sizes that only Python can ask; everything else about graphs
is the engine's.

All that depends on the version of torch is in this file and in `backend.py`.
"""

import functools
import operator
import os

import sympy
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from . import _engine, scans

PACKAGES = [
    os.path.dirname(file) + os.sep for file in (torch.__file__, __file__)
]  # their frames are not the model's; AutoSP itself is the last


def target_name(target) -> str:
    """The dotted name of a callable: "torch.matmul", "_operator.add", "torch.ops.aten.add.Tensor",
    "Tensor.view".
    """
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{target}"
    owner = getattr(target, "__objclass__", None)
    if owner is not None and issubclass(torch.Tensor, owner):
        return f"Tensor.{target.__name__}"
    module = getattr(target, "__module__", None) or type(target).__module__
    return f"{module}.{getattr(target, '__name__', type(target).__name__)}"


@functools.cache
def resolve(name: str):
    """The object behind a dotted name that the engine writes; `operator`, `torch` and AutoSP's
    operators.
    """
    head, *path = name.split(".")
    if head == "autosp" and path[0] == "passing_state":
        return scans.passing_state(functools.reduce(getattr, path[1:], torch.ops))
    if head == "autosp":
        return getattr(torch.ops.autosp, path[0]).default
    roots = {"torch": torch, "_operator": operator}
    if head not in roots:
        raise ValueError(f"no object named {name!r}")
    return functools.reduce(getattr, path, roots[head])


def literal_name(value) -> str:
    """A text for a constant argument that is the same on every rank, whatever devices and addresses
    they have.
    """
    if isinstance(value, torch.device):
        local = value.type == "cpu" or value.index in (None, _current_index(value.type))
        return repr(torch.device(value.type)) if local else repr(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"<{target_name(value)}>"
    text = repr(value)
    return f"<{type(value).__module__}.{type(value).__qualname__}>" if " at 0x" in text else text


def _current_index(kind: str):
    module = getattr(torch, kind, None)
    return (
        module.current_device()
        if hasattr(module, "current_device") and module.is_available()
        else None
    )


def size_facts(size: torch.SymInt):
    """The text of a size after everything that is known about its symbols, and each symbol's hint
    (None: it depends on data).
    """
    node = size.node
    hints = node.shape_env.backed_var_to_val
    symbols = getattr(node.expr, "free_symbols", ())
    return str(node.expr), {
        str(s): None if hints.get(s) is None else int(hints[s]) for s in symbols
    }


def hint(value):
    """The number behind a symbolic one; anything else as it is."""
    if not isinstance(value, torch.SymInt | torch.SymFloat):
        return value
    number = value.node.expr.xreplace(value.node.shape_env.backed_var_to_val)
    return int(number) if isinstance(value, torch.SymInt) else float(number)


def largest_number(gm: torch.fx.GraphModule) -> int:
    """The largest whole number in the sizes of a captured graph, coefficients of symbols among
    them.
    """
    largest = 1
    for node in gm.graph.nodes:
        for value in torch.utils._pytree.tree_leaves(node.meta.get("example_value")):
            for size in value.shape if isinstance(value, torch.Tensor) else ():
                symbolic = isinstance(size, torch.SymInt)
                numbers = size.node.expr.atoms(sympy.Integer) if symbolic else [size]
                largest = max(largest, *(abs(int(number)) for number in numbers), 0)
    return largest


def input_sizes(gm: torch.fx.GraphModule):
    """The symbols in the sizes of a captured graph's inputs: the value of each in the call that is
    being compiled, and for each whose range may be narrowed a SymInt that is it. The range may not
    be where the user has stated one (`mark_dynamic` with min or max).
    """
    hints, sizes, stated = {}, {}, set()
    for node in gm.graph.find_nodes(op="placeholder"):
        example = node.meta.get("example_value")
        if not isinstance(example, torch.Tensor):
            continue
        arg = node.meta.get("grapharg")
        ranges = getattr(arg.example, "_dynamo_dynamic_range", ()) if arg is not None else ()
        dims = {r.dim for r in ranges if r.min is not None or r.max is not None}
        for dim, size in enumerate(example.shape):
            if isinstance(size, torch.SymInt):
                text, symbols = size_facts(size)
                hints |= {symbol: hint for symbol, hint in symbols.items() if hint is not None}
                if text in hints:
                    sizes[text] = size
                if dim in dims:
                    stated |= symbols.keys()
    return hints, {symbol: size for symbol, size in sizes.items() if symbol not in stated}


def input_facts(node: torch.fx.Node):
    """Where Dynamo found a placeholder: (source text, is a parameter, belongs to a module, is a
    Python number, is an element of *args, of **kwargs). Empty for sizes of tensors and for the
    arguments of nested graphs.
    """
    arg = node.meta.get("grapharg")
    if (
        arg is None
        or arg.source is None
        or isinstance(arg.source, torch._dynamo.source.TensorPropertySource)
    ):
        return ()
    source = arg.source
    root = source.get_base() if isinstance(source, torch._guards.ChainedSource) else source
    return (
        source.name,
        isinstance(arg.example, torch.nn.Parameter),
        source.guard_source.is_unspecialized_nn_module()
        or source.guard_source.is_specialized_nn_module(),
        arg.pass_arg_as_tensor or not arg.is_tensor,
        getattr(root, "is_varargs", False),
        getattr(root, "is_varkw", False),
    )


def drawn_number() -> int:
    """A seed from torch's default generator, that of `torch.manual_seed`."""
    with unset_fake_temporarily():
        return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


def seed_tensor(number):
    """What a program takes that draws random numbers."""
    return torch.tensor(number, dtype=torch.int64, device="cpu")


def seeds(draws, number=0):
    """What a plan's program takes behind its inputs."""
    return [seed_tensor(number)] if draws else []


def read(gm: torch.fx.GraphModule, parameters=()):
    """The engine's view of a graph that Dynamo captured; `parameters` are the names behind a
    frame's *args.
    """
    return _engine.read(gm, PACKAGES, list(parameters))

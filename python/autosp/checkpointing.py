"""What the forward keeps for the backward: the engine's plan for a joint graph, carried out by
torch's own partitioner.

AOTAutograd traces forward and backward into one joint graph and hands it to a partitioner, which
splits it in two. Ours reads the graph into the engine, asks for a plan and tags every forward
operator with it (MUST_SAVE, MUST_RECOMPUTE, or no tag where torch is to decide); then torch's
partitioner splits the graph, and the tags leave it no choice.

A plan is a function of the graph and of the partitioner's attributes, which are in the keys of the
compiler's caches, and of nothing else: ranks that hit a cache and ranks that don't repeat their
exchanges in the same order. So the sizes that a plan is made for are the rounded ones in
`Partitioner.lengths`, not those of the call that happened to come first.
"""

import dataclasses
import functools
import hashlib
import math
import numbers
import operator

import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from . import _engine, fx
from . import offload as moving
from .errors import Unsupported

POLICIES = ("off", "sac", "sac+exchanges", "full", "auto")
BUDGETS = {"memory_bytes": "memory", "overhead": "overhead"}  # and the engine's names for them
_SAVE, _RECOMPUTE, _OFFLOAD = 1, 2, 3  # actions of a plan; 0 leaves a node to torch
_TAGS = {
    _SAVE: CheckpointPolicy.MUST_SAVE,
    _RECOMPUTE: CheckpointPolicy.MUST_RECOMPUTE,
    _OFFLOAD: CheckpointPolicy.MUST_SAVE,
}
_MOST_BYTES = 2**62
_UNKNOWN_SIZE = 8192  # for a size that depends on data or on a number


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a plan depends on besides the graph and the lengths. `memory_bytes` of policy "auto" is
    what the ranks have at hand, "" for `device` the one that they run on.
    """

    policy: str
    ranks: int = 1
    device: str = ""
    memory_bytes: int = 0
    overhead: float = 0.0
    offload: str = "off"


def choose(checkpointing, backend, device=None, offload="auto") -> Choice:
    """The user's options as a choice. Raises Unsupported for those that don't exist or don't fit
    each other.
    """
    choice = _policy(checkpointing)
    moving.check(offload)
    if callable(backend):
        for name, value in (("checkpointing", checkpointing), ("offload", offload)):
            if value not in ("auto", "off"):
                raise Unsupported(
                    f"{name}={value!r} does not fit a backend of your own, which splits forward and"
                    ' backward itself; it needs backend="inductor" or "aot_eager"'
                )
        choice = Choice("off")
    if choice.policy == "off" and offload == "all":
        raise Unsupported(
            'offload="all" does not fit checkpointing="off", with which torch\'s own partitioner'
            " decides what is kept; the smallest change is checkpointing="
            '{"overhead": 0}'
        )
    by_plan = choice.policy in ("auto", *BUDGETS.values())
    return dataclasses.replace(
        choice,
        device=_device_text(device),
        offload=offload if offload == "all" or by_plan else "off",
    )


def _policy(checkpointing):
    if isinstance(checkpointing, dict) and len(checkpointing) == 1:
        [(name, value)] = checkpointing.items()
        if name in BUDGETS:
            if not isinstance(value, numbers.Real) or not 0 <= value < math.inf:
                raise Unsupported(
                    f"checkpointing={checkpointing!r}: {name} is a number of at least 0"
                )
            value = min(int(value), _MOST_BYTES) if name == "memory_bytes" else float(value)
            return Choice(BUDGETS[name], **{name: value})
    elif checkpointing in POLICIES:
        return Choice(checkpointing)
    raise Unsupported(
        f"checkpointing={checkpointing!r} is not supported; the choices are "
        + ", ".join(f'"{policy}"' for policy in POLICIES)
        + ', {"memory_bytes": n} and {"overhead": x}'
    )


def _device_text(device):
    if device is None:
        return ""
    if isinstance(device, str):
        device = _engine.find_device(device)
    if not isinstance(device, _engine.Device):
        raise Unsupported(
            f"device={device!r} is neither the name of a device nor one that autosp.calibrate() has"
            f" measured; the names are {', '.join(_engine.device_names())}"
        )
    return device.text


class Recomputation:
    """A backend's way of splitting graphs in forward and backward, for one choice."""

    def __init__(self, backend, choice):
        self.backend, self.choice = backend, choice

    def partitioner(self, gm):
        """For a captured graph, before it is cut into parts. The graph gets guards: with lengths
        that the plan is not for, it is captured again.
        """
        if self.choice.policy == "off":
            return Partitioner(self.choice)
        hints, sizes = fx.input_sizes(gm)
        choice, headroom = self.choice, 2
        if choice.policy in ("auto", "memory") and choice.memory_bytes > 0:
            if self._is_tight(gm, Partitioner(choice, _ranges(hints, headroom))):
                headroom = 1
            else:
                choice = _with_ease(choice)
        partitioner = Partitioner(choice, _ranges(hints, headroom))
        for symbol, size in sizes.items():
            upper = partitioner.value_of(symbol)
            bool(size <= upper)
            bool(4 * size > upper)
        return partitioner

    def compile(self, gm, example_inputs, partitioner):
        if callable(self.backend):
            return self.backend(gm, example_inputs)
        compile_with = {"inductor": _inductor, "aot_eager": _aot_eager}[self.backend]
        return compile_with(gm, example_inputs, partitioner)

    def __call__(self, gm, example_inputs):
        return self.compile(gm, example_inputs, self.partitioner(gm))

    def _is_tight(self, gm, partitioner):
        """Whether memory may decide what is kept at the partitioner's sizes. It hardly does where
        four times the values of the captured graph would fit.
        """
        size_of = _sizes(partitioner.value_of)
        values = (node.meta.get("example_value") for node in gm.graph.nodes if _computes(node))
        tensors = [x for x in tree_leaves(list(values)) if isinstance(x, torch.Tensor)]
        nbytes = sum(math.prod(map(size_of, x.shape)) * x.element_size() for x in tensors)
        return 4 * nbytes > self.choice.memory_bytes * self.choice.ranks


def _with_ease(choice):
    """A choice for programs that need much less memory than there is. The number of bytes at hand
    is the same from run to run, and so is the key of compilers' caches.
    """
    offload = "all" if choice.offload == "all" else "off"
    nbytes = choice.memory_bytes
    if choice.policy == "auto":
        nbytes = 1 << (nbytes.bit_length() - 1)
    return dataclasses.replace(choice, offload=offload, memory_bytes=nbytes)


def _computes(node):
    return node.op in ("call_function", "call_method")


def _inductor(gm, example_inputs, partitioner):
    from torch._inductor.compile_fx import compile_fx

    options = {"custom_partitioner_fn": partitioner}
    if partitioner.choice.offload != "off":
        options |= moving.INDUCTOR_OPTIONS
    return compile_fx(gm, example_inputs, config_patches=options)


def _aot_eager(gm, example_inputs, partitioner):
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    backend = aot_autograd(
        fw_compiler=boxed_nop,
        bw_compiler=boxed_nop,
        partition_fn=partitioner,
        keep_inference_input_mutations=True,
    )
    return backend(gm, example_inputs)


def _ranges(hints, headroom):
    """Sizes to plan for: `headroom` times those of the call, and at most a fourth more, so that
    other calls come to the same. A plan holds from a fourth of its sizes up to them.
    """
    return tuple((symbol, rounded_up(headroom * hint)) for symbol, hint in hints.items())


def rounded_up(size):
    shift = max(size.bit_length() - 3, 0)
    return -(-size >> shift) << shift


class Partitioner(CustomPartitionerFn):
    """Splits a joint graph as the engine plans. Its attributes are what a plan depends on besides
    the graph; compilers pickle them into the keys of their caches. `sizes` are pairs of a symbol
    and the size that is planned for, for every symbol in the sizes of the inputs. `regions` stands
    for the user's regions: a graph's code, which is in the keys, doesn't say which nodes are in
    one.
    """

    def __init__(self, choice, sizes=()):
        self.planner = get_hash_for_files((_engine.__file__, __file__)).hex()
        self.choice = choice
        self.sizes = sizes
        self.regions = ""
        self.exchanges = ""  # of the last graphs, see _exchanges

    def uuid(self):
        return f"autosp {self.planner} {self} {self.regions}"

    def __str__(self):
        return f"{self.choice} for {self.sizes}"

    def value_of(self, symbol, _hint=None):
        return dict(self.sizes).get(symbol, _UNKNOWN_SIZE)

    def __call__(
        self, gm, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices=(), **kw
    ):
        prepare(gm)
        static = static_lifetime_input_indices
        actions, absences = self._decide(gm.graph, num_fwd_outputs, static)
        tag(gm.graph, actions)
        parts = min_cut_rematerialization_partition(
            gm,
            joint_inputs,
            num_fwd_outputs=num_fwd_outputs,
            static_lifetime_input_indices=list(static or ()),
            **kw,
        )
        for part in parts:
            _restore_operators(part)
        moving.rewrite(*parts, absences, num_fwd_outputs)
        self.exchanges = _exchanges(parts)
        return parts

    def _decide(self, graph, forward_outputs, static_inputs):
        """For every node what becomes of it, and what is in host memory between which nodes."""
        if self.choice.policy == "off":
            return [0] * len(graph.nodes), []
        plan = self.plan(read_joint_graph(graph, forward_outputs, static_inputs, self.value_of))
        names = [node.name for node in graph.nodes]
        absences = [
            tuple(names[node] if node >= 0 else None for node in absence)
            for absence in plan.absences
        ]
        return plan.actions, absences

    def plan(self, graph):
        return graph.plan(
            self.choice.policy,
            device=self.choice.device,
            ranks=self.choice.ranks,
            memory_bytes=self.choice.memory_bytes,
            overhead=self.choice.overhead,
            offload=self.choice.offload,
        )


def _exchanges(parts):
    """A text that is the same on all ranks whose forward and backward make the same exchanges, of
    the same sizes and in the same order.
    """
    names = ("_c10d_functional", "autosp_scan")
    made = [
        (str(node.target), [[fx.hint(n) for n in x.shape] for x in _tensors(node)])
        for part in parts
        for node in part.graph.nodes
        if getattr(node.target, "namespace", "") in names
    ]
    return hashlib.sha256(repr(made).encode()).hexdigest()[:16]


def _tensors(node):
    return [x for x in tree_leaves(node.meta.get("val")) if isinstance(x, torch.Tensor)]


def prepare(gm):
    """Does to a joint graph what torch's partitioner begins with: a plan is for the graph that will
    be split.
    """
    gm.graph.eliminate_dead_code()
    if torch._functorch.config.cse:
        gm.graph = fx_graph_cse(gm.graph)


def tag(graph, actions):
    """Marks the nodes of a joint graph with the plan's actions, one for each node. What reads an
    input before the forward overwrites it is kept, whoever else decides: torch's own partitioner
    and the user's regions would read the new value when they make it again.
    """
    overwritten = _overwritten(graph)
    for node, action in zip(graph.nodes, actions, strict=True):
        if node.op != "call_function" or _is_size(node):
            continue
        if action in _TAGS:
            node.meta["recompute"] = _TAGS[action]
            if action == _RECOMPUTE and _is_seeded(node.target) and not _draws(node):
                node.target = _Unseeded(node.target)
        elif not (overwritten.isdisjoint(node.all_input_nodes) or _is_view(node) or _writes(node)):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


class _Unseeded:
    """Stands for an attention without dropout while its graph is split. It draws nothing, but its
    operator's tags say that it might, and torch would save and restore generators around it.
    """

    def __init__(self, operator):
        self.operator = operator
        self.__name__ = operator.__name__

    def __call__(self, *args, **kwargs):
        return self.operator(*args, **kwargs)


def _restore_operators(gm):
    for node in gm.graph.nodes:
        if isinstance(node.target, _Unseeded):
            node.target = node.target.operator
    gm.recompile()


def read_joint_graph(graph, forward_outputs, static_inputs=(), value_of=None):
    """The engine's view of AOTAutograd's joint graph. `static_inputs` are the positions, among the
    forward's inputs, of parameters and buffers. `value_of(symbol: str, hint: int | None)` is the
    number for a symbol in a size; default: the hint.
    """
    numbers, nodes = {}, []
    overwritten = _overwritten(graph)
    static_inputs = frozenset(static_inputs or ())
    primals = 0
    size_of = _sizes(value_of or _hinted)
    source_line = functools.cache(lambda trace: _engine.source_line(trace, fx.PACKAGES))
    for node in graph.nodes:
        numbers[node] = len(nodes)
        target, parameter = _target(node), False
        if target == "placeholder:primal":
            parameter, primals = primals in static_inputs, primals + 1
        if node.op == "output":
            leaves = torch.utils._pytree.arg_tree_leaves(*node.args)
            inputs = [numbers.get(leaf, -1) for leaf in leaves]
        else:
            inputs = [numbers[source] for source in node.all_input_nodes]
        value = node.meta.get("val")
        tensor = isinstance(value, torch.Tensor)
        shape = [size_of(n) for n in value.shape] if tensor else []
        nbytes = functools.reduce(operator.mul, shape, value.element_size() if tensor else 0)
        overload = node.target if isinstance(node.target, torch._ops.OpOverload) else None
        nodes.append(
            _engine.JointNode(
                node.name,
                target,
                inputs,
                nbytes,
                shape,
                str(value.dtype).removeprefix("torch.") if tensor else "",
                view=_is_view(node),
                # What reads an input before it is overwritten can't be repeated either.
                random=_draws(node) or not overwritten.isdisjoint(node.all_input_nodes),
                mutates=_writes(node),
                causal=overload is not None and _argument(node, "is_causal") is True,
                tagged="recompute" in node.meta,
                parameter=parameter,
                source=source_line(node.meta.get("stack_trace") or ""),
            )
        )
    return _engine.JointGraph(nodes, forward_outputs)


def _target(node):
    if node.op == "placeholder":
        own = "tangents" in node.target or "bwd_rng_state" in node.target
        return "placeholder:tangent" if own else "placeholder:primal"
    if node.op != "call_function":
        return node.op
    if node.target is operator.getitem:
        return "getitem"
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    return fx.target_name(node.target)


def _overwritten(graph):
    """The inputs that the forward writes to, and views of them."""
    found = {
        node.args[0]
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    }
    outputs = graph.output_node().meta.get("desc", [])
    written = {getattr(output, "mutated_input", None) for output in outputs} - {None}
    found |= {n for n in graph.find_nodes(op="placeholder") if n.meta.get("desc") in written}
    for node in graph.nodes:
        if _is_view(node) and node.args[0] in found:
            found.add(node)
    return found


def _writes(node):
    """Whether an operator writes to an argument."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _is_view(node):
    """Whether the value lies in the storage of the node's first input."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target in _SAME_STORAGE:
        return True
    aliases = (result.alias_info for result in node.target._schema.returns)
    return any(alias is not None and not alias.is_write for alias in aliases)


# Operators whose results are their inputs, which their schemas don't say.
_SAME_STORAGE = {
    torch.ops.aten._unsafe_view.default,
    torch.ops._c10d_functional.wait_tensor.default,
}


def _draws(node):
    """Whether an operator draws random numbers. Attentions can, for their dropout."""
    return _is_seeded(node.target) and _argument(node, "dropout_p") != 0.0


def _is_seeded(target):
    overload = isinstance(target, torch._ops.OpOverload)
    return overload and torch.Tag.nondeterministic_seeded in target.tags


def _argument(node, name):
    """The value of an operator's argument, None where it has none of this name."""
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            if name in node.kwargs:
                return node.kwargs[name]
            return node.args[position] if position < len(node.args) else argument.default_value
    return None


def _is_size(node):
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int))


# ---- Sizes ----


def _sizes(value_of):
    """A function from sizes to numbers, with `value_of` for each symbol; it knows what it has
    seen.
    """
    known = {}

    def number(size):
        if not isinstance(size, torch.SymInt):
            return size
        expression = size.node.expr
        if expression not in known:
            _, hints = fx.size_facts(size)
            values = {s: value_of(str(s), hints[str(s)]) for s in expression.free_symbols}
            known[expression] = max(int(expression.xreplace(values)), 0)
        return known[expression]

    return number


def _hinted(_symbol, hint):
    return hint or _UNKNOWN_SIZE

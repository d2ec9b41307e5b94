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

import functools
import operator

import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files
from torch.utils.checkpoint import CheckpointPolicy

from . import _engine, fx
from .errors import Unsupported

POLICIES = ("sac", "sac+exchanges", "full")
_RECOMPUTE = 2  # of the actions in a plan
_TAGS = {1: CheckpointPolicy.MUST_SAVE, _RECOMPUTE: CheckpointPolicy.MUST_RECOMPUTE}
_UNKNOWN_SIZE = 8192  # for a size that depends on data


def check_policy(checkpointing, backend):
    """Raises Unsupported unless `checkpointing` is a choice that exists and fits the backend."""
    if checkpointing in ("auto", "off"):
        return
    if checkpointing not in POLICIES:
        raise Unsupported(
            f"checkpointing={checkpointing!r} is not supported; the choices are"
            ' "auto" and "off" (torch\'s own partitioner decides), '
            + ", ".join(f'"{policy}"' for policy in POLICIES)
        )
    if callable(backend):
        raise Unsupported(
            f"checkpointing={checkpointing!r} does not fit a backend of your own, which splits"
            ' forward and backward itself; it needs backend="inductor" or "aot_eager"'
        )


def inner_backend(backend, checkpointing, ranks):
    """The backend for a rank's graph: `backend` itself, or with `checkpointing` carried out."""
    if not isinstance(backend, str):
        return backend
    if checkpointing in ("auto", "off"):
        return torch._dynamo.lookup_backend(backend)
    compile_with = {"inductor": _inductor, "aot_eager": _aot_eager}[backend]

    def compile(gm, example_inputs):
        lengths = tuple(_rounded(_hint(x)) for x in example_inputs if isinstance(x, torch.SymInt))
        return compile_with(gm, example_inputs, Partitioner(checkpointing, ranks, lengths))

    return compile


def _inductor(gm, example_inputs, partitioner):
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs, config_patches={"custom_partitioner_fn": partitioner})


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


class Partitioner(CustomPartitionerFn):
    """Splits a joint graph as the engine plans. Its attributes are what a plan depends on besides
    the graph; compilers pickle them into the keys of their caches.
    """

    def __init__(self, policy, ranks, lengths):
        self.planner = get_hash_for_files((_engine.__file__, __file__)).hex()
        self.policy = policy
        self.ranks = ranks
        self.lengths = lengths  # rounded values of the symbolic sizes among the graph's inputs

    def uuid(self):
        return f"autosp {self.planner} {self.policy} {self.ranks} {self.lengths}"

    def __call__(
        self, gm, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices=(), **kw
    ):
        prepare(gm)
        graph = read_joint_graph(gm.graph, num_fwd_outputs, static_lifetime_input_indices)
        tag(gm.graph, self.plan(graph).actions)
        parts = min_cut_rematerialization_partition(
            gm,
            joint_inputs,
            num_fwd_outputs=num_fwd_outputs,
            static_lifetime_input_indices=list(static_lifetime_input_indices or ()),
            **kw,
        )
        for part in parts:
            _restore_operators(part)
        return parts

    def plan(self, graph):
        return graph.plan(self.policy, ranks=self.ranks)


def prepare(gm):
    """Does to a joint graph what torch's partitioner begins with: a plan is for the graph that will
    be split.
    """
    gm.graph.eliminate_dead_code()
    if torch._functorch.config.cse:
        gm.graph = fx_graph_cse(gm.graph)


def tag(graph, actions):
    """Marks the nodes of a joint graph with the plan's actions, one for each node."""
    for node, action in zip(graph.nodes, actions, strict=True):
        if action in _TAGS and node.op == "call_function" and not _is_size(node):
            node.meta["recompute"] = _TAGS[action]
            if action == _RECOMPUTE and _is_seeded(node.target) and not _draws(node):
                node.target = _Unseeded(node.target)


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
    number for a symbol in a size; default: the hint, rounded so that a plan holds for a range.
    """
    numbers, nodes = {}, []
    overwritten = _overwritten(graph)
    static_inputs = frozenset(static_inputs or ())
    primals = 0
    size_of = _sizes(value_of or _rounded_value)
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
                mutates=overload is not None and overload._schema.is_mutable,
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
            known[expression] = int(expression.xreplace(values))
        return known[expression]

    return number


def _rounded_value(_symbol, hint):
    return _rounded(hint or _UNKNOWN_SIZE)


def _hint(size):
    text, hints = fx.size_facts(size)
    return hints.get(text) or _UNKNOWN_SIZE


def _rounded(size):
    """The next power of four: a plan holds for lengths up to four times apart."""
    return 1 << (max(size - 1, 0).bit_length() + 1) // 2 * 2

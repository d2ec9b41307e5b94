"""Kept values in host memory between forward and backward.

    refused = offload.rewrite(forward, backward, names, num_fwd_outputs)

takes the two graphs that torch's partitioner returned and moves the kept values of these names:

    before                                     after
    forward:  x = mm(a, w)                     x = mm(a, w)
              …                                host = ao.offload(x)    # starts the copy
              …                                …
              …                                host = ao.wait_tensor(host, None, x)
              return loss, x                   return loss, host
    backward: x = placeholder                  host = placeholder
              …                                moved = ao.reload(host, device)
              …                                …
              y = mm(x, g)                     x = ao.wait_tensor(moved, None, host)
                                               y = mm(x, g)

The operators are torch's: they copy on a stream of their own, to and from pinned memory. A copy out
starts as soon as the value exists and is waited for when it has probably ended; a copy in starts
early enough to end before the value's first use. "Probably" is in floating point operations of the
graph: a byte's copy takes as long as `flops_per_byte` of them. Copies that have begun and not been
waited for never hold more on the device than `IN_FLIGHT` times the largest value that moves.

The last argument of `wait_tensor` names a tensor that must live until then, and nothing else frees
it: aliases stay valid and a backward can run twice. (The argument before it empties the tensor's
storage at once, whoever still holds an alias, which is why torch's own pass refuses views and the
outputs of operators with several.) A copy between different orders of the elements would need a
temporary on the device: values are copied in the order that they have in memory.

Ranks may differ here without harm: nothing is exchanged.
"""

import functools
import importlib
from bisect import bisect_left
from collections import deque
from itertools import accumulate

import torch
from torch.utils.flop_counter import flop_registry

from . import fx
from .errors import InternalError, Unsupported

CHOICES = ("auto", "off", "all")
IN_FLIGHT = 4  # times the largest value
# Inductor would undo the distance between a copy and its wait: it sees only memory.
INDUCTOR_OPTIONS = {"reorder_for_peak_memory": False}
# Of a device with 990 TFLOP/s and 50 GB/s to its host, where nobody knows better.
_FLOPS_PER_BYTE = 20_000
# Copies are planned to take so many times as long: devices share the way to their host, and what
# first uses a value may come earlier, fused into another kernel. More would put more at the peak.
_MARGIN = 2
_UNKNOWN_SIZE = 8192  # for a size that depends on data


def check(choice, device_type=None):
    """Raises Unsupported unless `choice` exists and, for "all", this device and torch can carry it
    out. Has to run in every process that runs code with moved values, also code from a cache: it
    makes torch's operators known.
    """
    if choice not in CHOICES:
        names = ", ".join(f'"{name}"' for name in CHOICES)
        raise Unsupported(f"offload={choice!r} is not supported; the choices are {names}")
    if choice == "off" or available(device_type) or choice == "auto":
        return
    if device_type == "cpu":
        raise Unsupported(
            'offload="all" moves kept values from an accelerator to its host\'s memory, but this'
            ' program\'s tensors are on the CPU: use offload="auto", which moves nothing there'
        )
    raise Unsupported(
        'offload="all" needs torch\'s operators ao.offload and ao.reload, which torch'
        f" {torch.__version__} doesn't have"
    )


def available(device_type):
    """Whether values on devices of this type can be moved; makes torch's operators known."""
    return device_type != "cpu" and _operators_exist()


@functools.cache
def _operators_exist():
    if not hasattr(torch.ops.ao, "offload"):
        try:
            importlib.import_module("torch._functorch._activation_offloading.offload_ops")
        except ImportError:
            return False
    return True


def rewrite(forward, backward, names, num_fwd_outputs, flops_per_byte=_FLOPS_PER_BYTE):
    """Moves the kept values of these names to host memory between the two graphs, which it changes
    in place. Returns {name: reason} for those that stay: what shares memory with an input, an
    output or a kept value that stays, so that moving it would free nothing; what has gaps; what
    the backward doesn't read.
    """
    if not names:
        return {}
    if not _operators_exist():
        raise Unsupported(f"torch {torch.__version__} has no operators that move values to a host")
    going, refused = _choose(forward, backward, names, num_fwd_outputs)
    if going:
        limit = IN_FLIGHT * max(_bytes(node) for node in going)
        _copy_out(forward.graph, going, limit, _MARGIN * flops_per_byte)
        _copy_in(backward.graph, going, limit, _MARGIN * flops_per_byte)
        for part in (forward, backward):
            part.graph.lint()
            part.recompile()
    return refused


def _choose(forward, backward, names, num_fwd_outputs):
    """The nodes of these names that can go, in the graph's order, and why the others can't."""
    results = forward.graph.output_node().args[0]
    kept = {node.name: node for node in results[num_fwd_outputs:] if _is_tensor(node)}
    unknown = [name for name in names if name not in kept]
    if unknown:
        raise InternalError(f"{', '.join(unknown)} is to move to the host, but is not kept")
    stay = {}  # storage -> why it lives on whatever is moved
    for what, nodes in (
        ("an input", forward.graph.find_nodes(op="placeholder")),
        ("an output", results[:num_fwd_outputs]),
        ("a kept value", [node for name, node in kept.items() if name not in names]),
    ):
        for node in filter(_is_tensor, nodes):
            stay.setdefault(_storage(node), f"it is in the memory of {what}, {node.name}")
    read = {node.name for node in backward.graph.find_nodes(op="placeholder") if node.users}
    refused = {}
    for name in names:
        reason = stay.get(_storage(kept[name]))
        if reason is None and name not in read:
            reason = "the backward doesn't read it"
        if reason is None and (_bytes(kept[name]) == 0 or _memory_order(kept[name]) is None):
            reason = "it is empty, or its elements overlap or leave gaps in memory"
        if reason is not None:
            refused[name] = reason
    going = {name for name in names if name not in refused}
    return [node for node in forward.graph.nodes if node.name in going], refused


def _copy_out(graph, going, limit, flops_per_byte):
    nodes = list(graph.nodes)
    position = {node: at for at, node in enumerate(nodes)}
    starts = [position[node] + 1 for node in going]
    ends = _ends(starts, going, _work_before(nodes), limit, flops_per_byte)
    hosts = []
    for at, index, ends_here in _events(starts, ends):
        node = going[index]
        with graph.inserting_before(nodes[at]):
            if ends_here:
                args, value = (hosts[index], None, node), hosts[index].meta["val"]
                hosts[index] = _call(graph, torch.ops.ao.wait_tensor.default, args, value)
            else:
                ordered = _permuted(graph, node, _memory_order(node))
                value = ordered.meta["val"].new_empty(ordered.meta["val"].shape, device="cpu")
                hosts.append(_call(graph, torch.ops.ao.offload.default, (ordered,), value))
    output = graph.output_node()
    moved = dict(zip(going, hosts, strict=True))
    output.update_arg(0, type(output.args[0])(moved.get(x, x) for x in output.args[0]))


def _copy_in(graph, going, limit, flops_per_byte):
    """As `_copy_out`, backwards: seen from the end, a copy in begins with the value's first use."""
    saved = {node.name: node for node in graph.find_nodes(op="placeholder")}
    nodes = [node for node in graph.nodes if node.op != "placeholder"]
    position = {node: at for at, node in enumerate(nodes)}
    first_use = {node: min(position[user] for user in saved[node.name].users) for node in going}
    going = sorted(going, key=first_use.get)
    uses, last = [first_use[node] for node in going], len(nodes) - 1
    work = _work_before(nodes)
    mirrored = _ends(
        [last - use for use in reversed(uses)],
        going[::-1],
        [work[-1] - done for done in reversed(work)],
        limit,
        flops_per_byte,
    )
    starts = [last - end for end in reversed(mirrored)]
    reloaded = []
    for at, index, ends_here in _events(starts, uses):
        host, value = saved[going[index].name], going[index].meta["val"]
        order = _memory_order(going[index])
        with graph.inserting_before(nodes[at]):
            if ends_here:
                args = (reloaded[index], None, host)
                waited = _call(
                    graph, torch.ops.ao.wait_tensor.default, args, reloaded[index].meta["val"]
                )
                back = _permuted(graph, waited, [order.index(dim) for dim in range(len(order))])
                keep = {reloaded[index], waited}
                host.replace_all_uses_with(back, lambda user, keep=keep: user not in keep)
            else:
                shape = [value.shape[dim] for dim in order]
                host.meta = host.meta | {"val": value.new_empty(shape, device="cpu")}
                args = (host, value.device)
                device_value = value.new_empty(shape)
                reloaded.append(_call(graph, torch.ops.ao.reload.default, args, device_value))


def _ends(starts, nodes, work, limit, flops_per_byte):
    """Where the copies of `nodes`, one after the other, have ended that begin at `starts`
    (ascending); never fewer bytes are in flight than needed to stay within `limit`. `work` is what
    has been done before each place.
    """
    ends, flight, clock = [], deque(), 0
    for index, (start, node) in enumerate(zip(starts, nodes, strict=True)):
        clock = max(clock, work[start]) + _bytes(node) * flops_per_byte
        while flight and ends[flight[0]] <= start:
            flight.popleft()
        while flight and sum(_bytes(nodes[i]) for i in flight) + _bytes(node) > limit:
            ends[flight.popleft()] = start
        ends.append(bisect_left(work, clock, start, len(work) - 1))
        flight.append(index)
    return ends


def _events(starts, ends):
    """(place, index of the copy, whether it ends here), in the order of execution."""
    return sorted(
        [(at, index, False) for index, at in enumerate(starts)]
        + [(at, index, True) for index, at in enumerate(ends)]
    )


def _work_before(nodes):
    """The floating point operations that precede each node."""
    return list(accumulate((_flops(node) for node in nodes[:-1]), initial=0))


def _flops(node):
    formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if not hasattr(formula, "__wrapped__"):  # those take shapes; others would look at elements
        return 0
    args, kwargs, out = torch.fx.node.map_arg(
        (node.args, node.kwargs, node), lambda n: _shape(n.meta["val"])
    )
    return formula(*args, **kwargs, out_val=out)


def _shape(value):
    """The numbers in place of the sizes: the formulas compare them, which would install guards."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_shape, value))
    return tuple(map(_number, value.shape)) if isinstance(value, torch.Tensor) else value


def _call(graph, target, args, value):
    node = graph.call_function(target, args)
    node.meta["val"] = value
    return node


def _permuted(graph, node, order):
    if order == sorted(order):
        return node
    value = node.meta["val"].permute(order)
    return _call(graph, torch.ops.aten.permute.default, (node, order), value)


def _memory_order(node):
    """The dimensions from the outermost in memory to the innermost; None for overlaps and gaps."""
    value = node.meta["val"]
    sizes, strides = map(_number, value.shape), list(map(_number, value.stride()))
    sizes = list(sizes)
    order = sorted(range(len(sizes)), key=lambda dim: -strides[dim])
    expected = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order


def _bytes(node):
    value = node.meta["val"]
    return functools.reduce(lambda product, n: product * _number(n), value.shape, value.itemsize)


def _number(size):
    """A size's value in the call that is compiled."""
    if not isinstance(size, torch.SymInt):
        return size
    _, hints = fx.size_facts(size)
    values = {symbol: hints[str(symbol)] or _UNKNOWN_SIZE for symbol in size.node.expr.free_symbols}
    return int(size.node.expr.xreplace(values))


def _is_tensor(node):
    return isinstance(getattr(node, "meta", {}).get("val"), torch.Tensor)


def _storage(node):
    return node.meta["val"].untyped_storage()._cdata

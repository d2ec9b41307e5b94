"""Kept values in host memory between forward and backward.

    refused = offload.rewrite(forward, backward, absences, num_fwd_outputs)

takes the two graphs that torch's partitioner returned and moves kept values. For the absence
("x", "relu", "add") of a plan, to be freed after `relu` and fetched before `add`:

    before                              after
    forward:  x = mm(a, w)              x = mm(a, w)
              y = relu(x)               host = ao.offload(x)    # starts the copy
              …                         y = relu(x)
              return loss, x            host = ao.wait_tensor(host, None, x)
                                        …
                                        return loss, host
    backward: x = placeholder           host = placeholder
              z = add(…)                moved = ao.reload(host, device)
              …                         z = add(…)
              y = mm(x, g)              …
                                        x = ao.wait_tensor(moved, None, host)
                                        y = mm(x, g)

The operators are torch's: they copy on a stream of their own, to and from pinned memory, and only
`wait_tensor` makes the program wait. So a copy has the time between the two.

The last argument of `wait_tensor` names a tensor that must live until then, and nothing else frees
it: aliases stay valid and a backward can run twice. (The argument before it empties the tensor's
storage at once, whoever still holds an alias, which is why torch's own pass refuses views and the
outputs of operators with several.) A copy between different orders of the elements would need a
temporary on the device: values are copied in the order that they have in memory.
"""

import functools
import importlib

import torch

from . import fx
from .errors import InternalError, Unsupported

CHOICES = ("auto", "off", "all")
# Inductor would undo the distance between a copy and its wait: it sees only memory.
INDUCTOR_OPTIONS = {"reorder_for_peak_memory": False}
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


def rewrite(forward, backward, absences, num_fwd_outputs):
    """Moves kept values to host memory between the two graphs, which it changes in place. An
    absence is (name of the value, name of the forward's node after which it has left the device, of
    the backward's node before which its way back begins); None, or a node that isn't there: the
    forward's end, the first use.

    Returns {name: reason} for those that stay: what shares memory with an input, an output or a
    kept value that stays, so that moving it would free nothing; what has gaps; what the backward
    doesn't read.
    """
    if not absences:
        return {}
    if not _operators_exist():
        raise Unsupported(f"torch {torch.__version__} has no operators that move values to a host")
    names = [name for name, _, _ in absences]
    going, refused = _choose(forward, backward, names, num_fwd_outputs)
    if going:
        _copy_out(forward.graph, going, {name: end for name, end, _ in absences})
        _copy_in(backward.graph, going, {name: begin for name, _, begin in absences})
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


def _copy_out(graph, going, freed_after):
    nodes = list(graph.nodes)
    position = {node: at for at, node in enumerate(nodes)}
    by_name = {node.name: at for at, node in enumerate(nodes)}
    starts = [position[node] + 1 for node in going]
    last = len(nodes) - 1
    ends = [min(by_name.get(freed_after[node.name], last) + 1, last) for node in going]
    hosts = []
    for at, index, ends_here in _events(starts, map(max, starts, ends)):
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


def _copy_in(graph, going, fetched_before):
    nodes = [node for node in graph.nodes if node.op != "placeholder"]
    position = {node: at for at, node in enumerate(nodes)}
    by_name = {node.name: at for at, node in enumerate(nodes)}
    saved = {node.name: node for node in graph.find_nodes(op="placeholder")}
    first_use = {node: min(position[user] for user in saved[node.name].users) for node in going}
    going = sorted(going, key=first_use.get)
    uses = [first_use[node] for node in going]
    starts = [by_name.get(fetched_before[node.name], first_use[node]) for node in going]
    reloaded = {}
    for at, index, ends_here in _events(map(min, starts, uses), uses):
        node = going[index]
        host, value, order = saved[node.name], node.meta["val"], _memory_order(node)
        with graph.inserting_before(nodes[at]):
            if ends_here:
                moved = reloaded[node]
                args = (moved, None, host)
                back = _call(graph, torch.ops.ao.wait_tensor.default, args, moved.meta["val"])
                keep = {moved, back}
                back = _permuted(graph, back, [order.index(dim) for dim in range(len(order))])
                host.replace_all_uses_with(back, lambda user, keep=keep: user not in keep)
            else:
                on_device = value.new_empty([value.shape[dim] for dim in order])
                on_host = on_device.new_empty(on_device.shape, device="cpu")
                host.meta = host.meta | {"val": on_host}
                args = (host, value.device)
                reloaded[node] = _call(graph, torch.ops.ao.reload.default, args, on_device)


def _events(starts, ends):
    """(place, index of the copy, whether it ends here), in the order of execution."""
    return sorted(
        [(at, index, False) for index, at in enumerate(starts)]
        + [(at, index, True) for index, at in enumerate(ends)]
    )


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

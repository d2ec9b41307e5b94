"""What becomes of the joint graphs that are split meanwhile."""

import contextlib
import dataclasses
from unittest.mock import patch

import torch
from autosp import checkpointing
from torch.utils._pytree import arg_tree_leaves


@dataclasses.dataclass
class Split:
    """One joint graph, by the names of its nodes."""

    tagged: set[str]  # by the user, before any plan
    actions: dict[str, int]  # the plan
    planned: set[str] = dataclasses.field(default_factory=set)  # what is kept if it is obeyed
    kept: set[str] = dataclasses.field(default_factory=set)  # what the forward keeps
    exchanges_in_backward: int = 0


@contextlib.contextmanager
def watch_splits():
    """A list to which every joint graph that our partitioner splits adds its Split."""
    seen = []
    tag, split = checkpointing.tag, checkpointing.min_cut_rematerialization_partition

    def see_tag(graph, actions):
        tagged = {node.name for node in graph.nodes if "recompute" in node.meta}
        names = [node.name for node in graph.nodes]
        seen.append(Split(tagged, dict(zip(names, actions, strict=True))))
        tag(graph, actions)

    def see_split(gm, *args, num_fwd_outputs, **kwargs):
        seen[-1].planned = _planned(gm.graph, seen[-1].actions, num_fwd_outputs)
        parts = split(gm, *args, num_fwd_outputs=num_fwd_outputs, **kwargs)
        forward, backward = (part.graph for part in parts)
        returned = arg_tree_leaves(*forward.output_node().args)[num_fwd_outputs:]
        seen[-1].kept = {node.name for node in returned if _is_kept(node)}
        seen[-1].exchanges_in_backward = sum(
            "all_to_all" in str(node.target) for node in backward.nodes
        )
        return parts

    with (
        patch.object(checkpointing, "tag", see_tag),
        patch.object(checkpointing, "min_cut_rematerialization_partition", see_split),
    ):
        yield seen


def _is_kept(node):
    return node.op != "placeholder" and isinstance(node.meta["val"], torch.Tensor)


def _planned(graph, actions, forward_outputs):
    """What the backward finds when it goes from the gradients back until it meets what is saved."""
    backward = set()
    for node in graph.nodes:
        if "tangents" in node.name or backward.intersection(node.all_input_nodes):
            backward.add(node)
    todo = list(arg_tree_leaves(*graph.output_node().args)[forward_outputs:])
    seen, saved = set(), set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if actions[node.name] in (1, 3) and node not in backward:
            saved.add(node.name)
        else:
            todo += node.all_input_nodes
    return saved

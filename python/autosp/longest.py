"""`autosp.longest`: how long a sequence fits."""

from ._engine import bytes_text, held_state, longest_length
from .capture import capture_lengths
from .errors import Unsupported
from .memory import Memory, Planner


class Longest:
    """What `longest` found; its text says it with where the memory goes.

    `tokens` is the length of the whole sequence, `ranks` how many share it, `memory_bytes` what
    each has, and `memory` the Memory of a rank's step at that length.
    """

    def __init__(self, tokens, ranks, memory_bytes, memory):
        self.tokens, self.ranks = tokens, ranks
        self.memory_bytes, self.memory = memory_bytes, memory

    def __str__(self):
        return (
            f"The longest sequence on {self.ranks} ranks of {bytes_text(self.memory_bytes)}:"
            f" {self.tokens:,} tokens, {self.tokens // self.ranks:,} on each\n\n"
            + self.memory.total_text()
        )

    __repr__ = __str__


def longest(
    model,
    inputs,
    sp=8,
    memory_bytes=None,
    device="h100",
    *,
    checkpointing="auto",
    offload="auto",
    sharded=True,
    seq_dims=None,
):
    """Prints and returns the longest sequence of a model or function that `sp` ranks can train on
    together, called with inputs like `inputs` (a dict: keyword arguments, a tuple or list:
    positional ones, or the one tensor), within a thousandth of its length.

    What the length of the sequence is, the program says: the axes that the ranks cut. All of them
    grow in proportion, with them sizes of inputs that are equal to them, and everything else stays
    as it is in `inputs`. The program is captured once
    with a length that can be any, and traced with its backward once.
    Nothing runs: it works without a process group, and on fake tensors
    (`torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)`), which fit on any machine.

    A rank holds its part of parameters, gradients and the optimizer's states as `sharded` says, the
    inputs, and at the peak of the step activations as the plan for `checkpointing` needs them. Not
    counted are the allocator's gaps and what the device's libraries take. What is offloaded may
    take any amount of the host's memory; the text says how much.

    Args:
        memory_bytes: what each rank has for all of that. Default: all memory of `device`.
        device: the name of a device of the cost model ("a100", "h100", "h200", "mi250", "mi300",
            "cpu"), or what `autosp.calibrate()` returned.
        checkpointing, offload: as `autosp.compile` takes them. With "auto" whatever plan fits.
        sharded: True, parameters, gradients and the states of Adam (16 bytes for each parameter of
            16 or 32 bits) are cut over the ranks, as FSDP and ZeRO-3 do, and the largest segment's
            weights and gradients are whole besides; False, every rank holds all of them.
        seq_dims: as `autosp.compile` takes it.

    Raises Unsupported as the compiled model would; for a program without a backward or with a fixed
    length; and where not even one token a rank fits, with what takes the memory.
    """
    planner = Planner(checkpointing, offload, device, sp)
    memory_bytes = planner.device.memory_bytes if memory_bytes is None else int(memory_bytes)
    if memory_bytes <= 0:
        raise Unsupported(
            f"nothing says how much memory a rank has: device {planner.device.name!r} does not;"
            " memory_bytes is a number of bytes"
        )
    program = capture_lengths(model, inputs, sp, seq_dims=seq_dims, stock=planner.policy == "off")

    stock = program.capture.stock

    def state(graph):
        return held_state(program.capture.parameters, graph, sp, sharded)

    def needed(length):
        graph = program.at(length)
        return state(graph).total + planner.least(graph, stock).peak_bytes

    tokens = longest_length(needed, memory_bytes, start=program.length, step=program.step)
    graph = program.at(tokens)
    held = state(graph)
    plan = planner.plan(graph, memory_bytes - held.total, stock)
    found = Longest(tokens, sp, memory_bytes, Memory(planner, held, plan))
    print(found)
    return found

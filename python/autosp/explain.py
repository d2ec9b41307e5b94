"""`autosp.explain`: what the compiler would do, as a table."""

from ._engine import held_state
from .capture import capture
from .memory import Memory, Planner


class Explanation:
    """What `autosp.explain` found; its text is the tables.

    `exchanges`, `replicated`, `masks`, `outputs` and `operators` are lists of rows, `ranks` the
    number of ranks, `local_length` the length of a rank's part of the sequence; `memory` is a
    Memory, None where it was not asked for. In a group of one, of a program that can't be cut into
    parts, there is only the memory.
    """

    def __init__(self, report, memory):
        self._report, self.memory = report, memory

    def __getattr__(self, name):
        return getattr(self._report, name)

    def __str__(self):
        return "\n".join(str(part) for part in (self._report, self.memory) if part is not None)

    __repr__ = __str__


def explain(
    model,
    inputs,
    sp=4,
    *,
    checkpointing=None,
    offload="auto",
    device=None,
    sharded=True,
    seq_dims=None,
):
    """Prints and returns what `autosp.compile` would do with a model or function on `sp` ranks,
    called with `inputs` (a dict: keyword arguments, a tuple or list: positional ones, or the one
    tensor): every exchange with its bytes, every gathered or replicated value above a size, every
    output, each with the line it comes from, and masks by what they compute.

    With `checkpointing` or `device` also the memory of a training step: what a rank holds, what it
    keeps for the backward and what it makes again, by segment and by operator, and the peak. That
    needs the backward traced too, which takes about twice as long again as the rest.

    Nothing runs and nothing is exchanged: it works on one machine, without a process group, and on
    fake tensors (`torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)`), where a model of
    any size fits.

    Args:
        checkpointing, offload: as `autosp.compile` takes them. "auto", the default where `device`
            is given, is what fits beside the rest into all of the device's memory.
        device: the name of a device of the cost model ("a100", "h100", "h200", "mi250", "mi300",
            "cpu"), or what `autosp.calibrate()` returned. Default: "h100".
        sharded: True, parameters, gradients and the states of Adam are cut over the ranks, as FSDP
            and ZeRO-3 do; False, every rank holds all of them.
        seq_dims: as `autosp.compile` takes it.

    Returns an Explanation. Raises Unsupported as the compiled model would, for options that don't
    exist, and where the memory is asked for and there is no backward.
    """
    if checkpointing is None and device is None:
        explanation = Explanation(capture(model, inputs, sp, seq_dims=seq_dims).report, None)
    else:
        planner = Planner(checkpointing or "auto", offload, device or "h100", sp)
        program = capture(
            model, inputs, sp, seq_dims=seq_dims, joint=True, stock=planner.policy == "off"
        )
        state = held_state(program.parameters, program.joint, sp, sharded)
        budget = planner.device.memory_bytes - state.total
        plan = planner.plan(program.joint, budget, program.stock)
        explanation = Explanation(program.report, Memory(planner, state, plan))
    print(explanation)
    return explanation

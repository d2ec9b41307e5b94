"""A rank's memory in a training step: what it holds all the time, and the plan for the rest."""

from . import _engine, checkpointing
from ._engine import bytes_text, shortened, table, time_text


class Planner:
    """Plans for the graphs of a program, by the options that `autosp.compile` takes. Raises
    Unsupported for those that don't exist.
    """

    def __init__(self, option, offload, device, ranks):
        choice = checkpointing.choose(option, "inductor", device, offload)
        self.policy, self.offload = choice.policy, choice.offload
        self._budget, self._overhead = choice.memory_bytes, choice.overhead
        self.device = _engine.find_device(choice.device)
        self._fixed = {"device": choice.device, "ranks": ranks}

    @property
    def has_budget(self):
        """Whether plans depend on a budget."""
        return self.policy in ("auto", "memory")

    def least(self, graph, stock):
        """The plan with the least peak."""
        return self._plan(graph, stock, "auto", 1)

    def plan(self, graph, memory_bytes, stock):
        """The plan for a graph. With a budget, which is `memory_bytes` and the user's own: the
        fastest whose peak it is enough for, or where none is, that with the least peak. `stock` are
        the nodes that torch's own partitioner keeps, for policy "off".
        """
        budget = max(min(memory_bytes, self._budget or memory_bytes), 1)
        return self._plan(graph, stock, "auto", budget)

    def _plan(self, graph, stock, policy, memory_bytes):
        if self.policy == "off":
            return graph.simulate(stock, **self._fixed)
        return graph.plan(
            policy if self.has_budget else self.policy,
            memory_bytes=memory_bytes,
            overhead=self._overhead,
            offload=self.offload,
            **self._fixed,
        )


class Memory:
    """A rank's memory in a step; its text is tables.

    `policy` and `device` are those that it was planned for, `state` is what the rank holds besides
    (parameters, gradients, optimizer, whole, inputs and their total, in bytes). `kept_bytes` and
    `offloaded_bytes` wait for the backward, on the device and in the host's memory.
    `activation_bytes` is the predicted peak of all that is neither state nor input, at the model's
    line `peak_source`, and `parts` says what it consists of, a dict of bytes: "kept", "offloaded"
    (on its way), "forward" (passed on from operator to operator), "recomputed", "gradients" (of
    activations), "tail" (logits, loss and their gradients), "outputs". `step_ns` is the cost
    model's time of the step, `recompute_ns` that of what runs a second time in it.

    `segments` are the parts of the program that are recomputed on their own, of a transformer its
    layers, and `operators` the model's lines: lists of rows with kept_bytes, offloaded_bytes,
    recomputed_bytes and recompute_ns.
    """

    def __init__(self, planner, state, plan):
        self.policy, self.device, self.state = planner.policy, planner.device.name, state
        self.activation_bytes, self.parts = plan.peak_bytes, plan.peak.parts
        self.in_backward, self.peak_source = plan.peak.in_backward, plan.peak.peak_source
        self.kept_bytes, self.offloaded_bytes = plan.kept_bytes, plan.offloaded_bytes
        self.step_ns, self.recompute_ns = plan.step_ns, plan.recompute_ns
        self.operators, self.segments = plan.merged_rows, plan.segment_rows
        self._tables = str(plan)

    @property
    def total_bytes(self):
        """State and activations at their peak."""
        return self.state.total + self.activation_bytes

    def total_text(self):
        """The table without segments and operators."""
        phase = "backward" if self.in_backward else "forward"
        where = f" at {shortened(self.peak_source)}" if self.peak_source else ""
        rows = [(bytes_text(nbytes), what, remark) for what, nbytes, remark in self.state.rows]
        rows.append(
            (bytes_text(self.activation_bytes), "activations", f"peak, in the {phase}{where}")
        )
        for what, nbytes in self.parts.items():
            if nbytes:
                rows.append(("", f"  {what}", bytes_text(nbytes)))
        rows.append((bytes_text(self.total_bytes), "in all", ""))
        if self.offloaded_bytes:
            rows.append((bytes_text(self.offloaded_bytes), "host memory", "for the backward"))
        return (
            f"Memory of one rank in a training step, checkpointing {self.policy!r}\n"
            + table(rows, "rll")
            + f"A step takes {time_text(self.step_ns)} on {self.device} by the cost model,"
            f" {time_text(self.recompute_ns)} of it for what runs a second time.\n"
        )

    def __str__(self):
        return f"{self.total_text()}\n{self._tables}"

    __repr__ = __str__

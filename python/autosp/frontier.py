"""`autosp.frontier`: what a training step's time costs in memory, and memory in time."""

import dataclasses
from dataclasses import dataclass

from ._engine import bytes_text, table, time_text
from .capture import capture
from .errors import AutoSPError
from .memory import Planner

_POLICIES = ("full", "sac", "sac+exchanges")


@dataclass(frozen=True)
class Point:
    """One plan for a rank's step: bytes of its activations, nanoseconds as the cost model estimates
    them. `name` is that of a policy, "stock" for what torch's own partitioner would do, or "" for a
    point that has none.
    """

    name: str
    kept_bytes: int  # from the forward to the backward, on the device
    offloaded_bytes: int  # and in the memory of the host
    peak_bytes: int  # of the step; parameters, inputs and gradients of parameters aside
    recompute_ns: int  # of what runs a second time
    step_ns: int  # forward and backward, with the recomputation


class Frontier:
    """What `frontier` found; its text is a table.

    `points` are the plans that no other beats in both peak and time, from the smallest peak to the
    fastest; `named` maps "stock", "full", "sac" and "sac+exchanges" to theirs; `chosen` is the
    fastest plan within the budget, None without one. `local_length` is the length of a rank's part
    of the sequence, 0 where none was found.
    """

    def __init__(self, ranks, device, local_length, points, named, chosen):
        self.ranks, self.device, self.local_length = ranks, device, local_length
        self.points, self.named, self.chosen = points, named, chosen

    def __str__(self):
        named = [*self.named.values(), *([self.chosen] if self.chosen else [])]
        shown = {dataclasses.replace(point, name="") for point in named}
        every = [*named, *(point for point in self.points if point not in shown)]
        fastest = min(point.step_ns for point in every)
        rows = [("", "kept", "a position", "offloaded", "peak", "step", "slower by")]
        for point in sorted(every, key=lambda p: (p.peak_bytes, p.step_ns, p.name)):
            rows.append(
                (
                    point.name,
                    bytes_text(point.kept_bytes),
                    self._per_position(point.kept_bytes),
                    bytes_text(point.offloaded_bytes) if point.offloaded_bytes else "",
                    bytes_text(point.peak_bytes),
                    time_text(point.step_ns),
                    f"{point.step_ns / fastest - 1:.1%}",
                )
            )
        length = f", {self.local_length:,} positions on each" if self.local_length else ""
        return (
            f"Memory and time of a training step on one of {self.ranks} ranks"
            f" ({self.device}{length})\n"
            + table(rows, "lrrrrrr")
            + "Without parameters, their gradients and inputs, for the whole batch; times are the"
            " cost model's.\n"
        )

    __repr__ = __str__

    def plot(self, path=None):
        """Draws the curve with its points, and returns the matplotlib figure; with `path` also
        writes it, as PNG or SVG by its suffix. Raises AutoSPError where matplotlib is missing.
        """
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError:
            raise AutoSPError(
                "Drawing needs matplotlib, which is not installed: pip install autosp[plot]"
            ) from None
        with matplotlib.rc_context({"svg.hashsalt": "autosp", "font.size": 10}):
            figure = Figure(figsize=(7.2, 4.4), layout="constrained")
            self._draw(figure.add_subplot())
            if path is not None:
                svg = str(path).endswith(".svg")
                figure.savefig(path, dpi=150, metadata={"Date": None} if svg else None)
        return figure

    def _draw(self, axes):
        def at(point):
            return point.peak_bytes / 2**30, point.step_ns / 1e6

        axes.plot(*zip(*map(at, self.points), strict=True), "o-", color=_BLUE, markersize=4)
        for name, point in self.named.items():
            axes.plot(*at(point), "s", color=_COLORS.get(name, _GREY), markersize=7)
            axes.annotate(name, at(point), (6, 6), textcoords="offset points", color=_INK)
        if self.chosen is not None:
            axes.plot(*at(self.chosen), "*", color=_RED, markersize=14)
            axes.annotate(
                self.chosen.name,
                at(self.chosen),
                (0, -34),
                textcoords="offset points",
                color=_RED,
                ha="center",
            )
        axes.set_xlabel("predicted peak of activations on one rank (GiB)")
        axes.set_ylabel(f"estimated step on {self.device} (ms)")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)

    def _per_position(self, nbytes):
        return f"{nbytes / self.local_length / 1024:.1f} KiB" if self.local_length else ""


_BLUE, _RED, _GREY, _INK = "#2563a8", "#c0392b", "#555555", "#222222"
_COLORS = {"stock": "#e08214"}


def frontier(
    model,
    inputs,
    sp=4,
    device="h100",
    *,
    offload="off",
    memory_bytes=None,
    seq_dims=None,
    path=None,
):
    """Prints and returns the trade between memory and time of a training step of a model or
    function on one of `sp` ranks, called with `inputs` (a dict: keyword arguments, a tuple or list:
    positional ones, or the one tensor): what can be kept for the backward, and what it costs to run
    the rest again. Beside it what torch's own partitioner does ("stock") and the policies of
    `autosp.compile`.

    Nothing runs: it works without a process group, and on fake tensors
    (`torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)`), which fit on any machine.

    Args:
        device: the name of a device of the cost model ("a100", "h100", "h200", "mi250", "mi300",
            "cpu"), or what `autosp.calibrate()` returned.
        offload: "off"; "auto", the plans of the curve may have values wait in the host's memory;
            "all", every plan has all there that can be.
        memory_bytes: a budget for a rank's activations; the fastest plan within it is the chosen
            point.
        seq_dims: as `autosp.compile` takes it.
        path: of a picture to draw, PNG or SVG by its suffix (see `Frontier.plot`).

    Raises Unsupported as the compiled model would, for an unknown device, for a budget below the
    least that any plan needs, and where there is no backward; AutoSPError where matplotlib is
    needed and missing.
    """
    known = Planner("auto", offload, device, sp).device
    program = capture(model, inputs, sp, seq_dims=seq_dims, joint=True, stock=True)
    graph, where = program.joint, {"device": known.text, "ranks": sp}
    named = {"stock": _point("stock", graph.simulate(program.stock, **where))}
    for policy in _POLICIES:
        named[policy] = _point(policy, graph.plan(policy, offload=offload, **where))
    points = [_point("", point) for point in graph.frontier(offload=offload, **where)]
    chosen = None
    if memory_bytes is not None:
        plan = graph.plan("memory", memory_bytes=int(memory_bytes), offload=offload, **where)
        chosen = _point(f"within {bytes_text(memory_bytes)}", plan)
    length = program.report.local_length if program.report else 0
    found = Frontier(sp, known.name, length, points, named, chosen)
    print(found)
    if path is not None:
        found.plot(path)
    return found


def _point(name, plan):
    return Point(
        name,
        plan.kept_bytes,
        plan.offloaded_bytes,
        plan.peak_bytes,
        plan.recompute_ns,
        plan.step_ns,
    )

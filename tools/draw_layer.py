"""Draws what AutoSP makes of one layer of a Hugging Face Llama, from what autosp.explain says.

    python tools/draw_layer.py [docs/layer.svg]

A step of the picture is what one function of the model does, or one exchange. Code, shapes, cuts,
weights and bytes are the report's; only the model and the number of ranks are chosen here.
"""

import argparse
import ast
import contextlib
import io
import itertools
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import autosp
import matplotlib
import torch
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch
from transformers import LlamaConfig, LlamaForCausalLM

RANKS, TOKENS = 2, 4096
EXCHANGE = "autosp.all_to_all"
# Operators that only say how a tensor lies: a step of nothing else is part of the next one.
LAYOUT = {"Tensor.transpose", "Tensor.contiguous", "torch.reshape", "_operator.getitem"}
SOURCE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+) in (?P<function>[^:]+): (?P<code>.*)")


def report():
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    with contextlib.redirect_stdout(io.StringIO()):
        return autosp.explain(LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}, sp=RANKS)


# ---- From operators to steps ----


@dataclass
class Step:
    """Operators that one function runs one after the other, or one exchange."""

    owner: str  # "LlamaMLP.forward", "repeat_kv"; of an exchange its target
    operators: list = field(default_factory=list)
    weights: list[tuple[str, str]] = field(default_factory=list)  # module and type
    outputs: list = field(default_factory=list)  # operators that others read
    inputs: list = field(default_factory=list)  # the operators of other steps that it reads
    row: int = 0

    @property
    def is_exchange(self) -> bool:
        return self.owner == EXCHANGE

    @property
    def code(self) -> list[str]:
        """The lines behind the outputs, or the one that reads the exchanged values."""
        sources = [operator.source for operator in self.outputs or self.operators]
        return list(dict.fromkeys(SOURCE.match(source)["code"] for source in sources))

    @property
    def title(self) -> str:
        if self.weights:
            modules = [module.rpartition(".") for module, _ in self.weights]
            if len(modules) > 1:
                return modules[0][0].rpartition(".")[2]
            return modules[0][2]
        if "." in self.owner:
            return self.code[0].rpartition(" = ")[2]
        return self.owner

    def reads(self, operator) -> bool:
        return any(operator.name in own.operands for own in self.operators)


def one_layer(operators: list) -> list:
    """The operators of the first layer: those that repeat themselves for the second one."""

    def first_of(layer):
        return next(
            number
            for number, row in enumerate(operators)
            if any(f".layers.{layer}." in operand for operand in row.operands)
        )

    def alike(one, other):
        return (one.target, one.source) == (other.target, other.source)

    start, end = first_of(0), first_of(1)
    while alike(operators[start - 1], operators[end - 1]):
        start, end = start - 1, end - 1
    return operators[start:end]


def owner(operator) -> str:
    """The class and function around the operator's line."""
    match = SOURCE.match(operator.source)
    files = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
    path = next(f for f in files if "transformers" in f and Path(f).name == match["file"])
    for node in ast.parse(Path(path).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.lineno <= int(match["line"]) <= node.end_lineno:
            return f"{node.name}.{match['function']}"
    return match["function"]


def steps_of(layer: list) -> list[Step]:
    steps: list[Step] = []
    weights = {}
    for operator in layer:
        parameter = next((o for o in operator.operands if ".layers." in o), None)
        if operator.target == "autosp.r_to_v" and parameter:
            weights[operator.name] = parameter.rpartition(".")[0], operator.value
            continue
        step = step_for(operator, steps, any(o in weights for o in operator.operands))
        step.operators.append(operator)
        step.weights += [weights[o] for o in operator.operands if o in weights]
    connect(steps)
    return steps


def step_for(operator, steps: list[Step], has_weight: bool) -> Step:
    """The last step of `steps`, if the operator belongs to it, or a new one at the end."""
    last = steps[-1] if steps else None
    if last and last.is_exchange and operator.target == "_operator.getitem":
        return last
    own = EXCHANGE if operator.target == EXCHANGE else owner(operator)
    caller = steps[-2] if len(steps) > 1 and not steps[-2].is_exchange else None
    if caller and any(o.source == operator.source for o in caller.operators):
        # Back on a line that called a function.
        helper = steps.pop()
        steps[-1].operators += helper.operators
        return steps[-1]
    if last and all(o.target in LAYOUT for o in last.operators):
        last.owner = own
        return last
    another_weight = has_weight and last and last.weights
    if (
        last
        and last.owner == own
        and not (another_weight and last.operators[-1].source != operator.source)
    ):
        return last
    steps.append(Step(own))
    return steps[-1]


def connect(steps: list[Step]) -> None:
    """Who reads whom, and rows: steps side by side that read the same and not each other."""
    for step in steps:
        others = [other for other in steps if other is not step]
        step.outputs = [o for o in step.operators if any(other.reads(o) for other in others)]
        step.inputs = [o for other in others for o in other.operators if step.reads(o)]
    steps[-1].outputs = steps[-1].operators[-1:]
    for before, step in itertools.pairwise(steps):
        beside = [o.name for o in before.inputs] == [o.name for o in step.inputs]
        step.row = before.row if beside and not step.is_exchange else before.row + 1


# ---- From steps to a picture ----

INK, FAINT, EXCHANGED = "#24292f", "#6e7781", "#8250df"
CUT = {  # fill and edge by what a rank holds
    "tokens": ("#d6e8ff", "#2f6fd0"),
    "heads": ("#ffe3bf", "#c9741a"),
    "whole": ("#ebecee", "#7d858e"),
}
CODE_WIDTH = 48  # characters
CODE_X, LANE_X, LANE_WIDTH, OTHER_X, OTHER_WIDTH, WIDTH = 0.15, 3.55, 4.1, 8.25, 1.25, 9.65
COLUMNS = 3  # queries, keys and values side by side


def cut_of(text: str) -> str:
    """What a rank holds of a value of this type."""
    parts = re.findall(rf"(\d+)/{RANKS}\b", text)
    return "whole" if not parts else "tokens" if str(TOKENS) in parts else "heads"


def shape(text: str) -> str:
    return text[text.index("[") :]


def columns_of(steps: list[Step]) -> dict[str, set[int]]:
    """For each value the columns of the picture that it stands in."""
    columns: dict[str, set[int]] = {}
    for row in range(steps[-1].row + 1):
        beside = [step for step in steps if step.row == row]
        for number, step in enumerate(beside):
            own = {number} if len(beside) > 1 else None
            for operator in step.operators:
                read = [columns[o] for o in operator.operands if o in columns]
                columns[operator.name] = own or set().union(*read)
            if not any(columns[operator.name] for operator in step.outputs):
                columns |= {operator.name: set(range(COLUMNS)) for operator in step.operators}
            if step.is_exchange:
                exchange = next(o for o in step.operators if o.target == EXCHANGE)
                results = [o for o in step.operators if exchange.name in o.operands]
                for operand, result in zip(exchange.operands, results, strict=True):
                    columns[result.name] = columns[operand]
    return columns


class Picture:
    def __init__(self, made, steps: list[Step]):
        self.report, self.steps = made, steps
        self.columns = columns_of(steps)
        rows = [[s for s in steps if s.row == row] for row in range(steps[-1].row + 1)]
        self.code = {s.row: self.wrapped(rows[s.row]) for s in steps}
        heights = [
            max(
                0.62 if row[0].is_exchange else 0.5,
                0.14 * len(self.code[number]) + 0.1,
                0.19 * max(len(step.weights) for step in row) + 0.1,
                0.72 if len(row) > 1 else 0,
            )
            for number, row in enumerate(rows)
        ]
        self.height = sum(heights) + 0.24 * (len(rows) + 1) + 1.75
        self.figure = plt.figure(figsize=(WIDTH, self.height), facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, self.height))
        self.axes.set_axis_off()
        y = self.header()
        self.entry = y
        self.boxes = {}  # row -> top and bottom
        for number, height in enumerate(heights):
            y -= 0.24
            self.boxes[number] = (y, y - height)
            y -= height
        self.exit = y - 0.24
        self.arrows()
        for row in rows:
            self.draw_code(row[0].row)
            for step in row:
                self.exchange(step) if step.is_exchange else self.compute(step)
        self.legend()

    @staticmethod
    def wrapped(row: list[Step]) -> list[str]:
        """The steps' code in lines of a column's width, broken where code may be."""
        lines = []
        for step in row:
            for code in step.code if not step.is_exchange else []:
                lines.append("")
                for piece in re.findall(r".+?(?: |\(|(?=\.\w+\()|$)", code):
                    if len(lines[-1]) + len(piece) > CODE_WIDTH:
                        lines.append("    ")
                    lines[-1] += piece
                lines[-1] += "…)" if code.endswith("(") else ""
        return lines

    def text(self, x, y, text, size=8.0, color=INK, **style):
        style = {"ha": "center", "va": "center"} | style
        self.axes.text(x, y, text, fontsize=size, color=color, **style)

    def box(self, x, top, width, bottom, cut, **style):
        fill, edge = CUT[cut]
        style = {"facecolor": fill, "edgecolor": edge, "linewidth": 1.0} | style
        self.axes.add_patch(
            FancyBboxPatch(
                (x, bottom), width, top - bottom, boxstyle="round,pad=0,rounding_size=0.06", **style
            )
        )

    def header(self) -> float:
        y = self.height - 0.3
        per_rank = TOKENS // RANKS
        self.text(CODE_X, y, "your model's code, unchanged", 10, ha="left", weight="bold")
        self.text(LANE_X + LANE_WIDTH / 2, y, "what rank 0 computes", 10, weight="bold")
        self.text(OTHER_X + OTHER_WIDTH / 2, y, "rank 1", 10, weight="bold")
        y -= 0.22
        self.text(LANE_X + LANE_WIDTH / 2, y, f"tokens 0 – {per_rank - 1} of {TOKENS}", 8, FAINT)
        self.text(OTHER_X + OTHER_WIDTH / 2, y, f"tokens {per_rank} – {TOKENS - 1}", 8, FAINT)
        entry = self.steps[0].operators[0].value  # the layer's input, in the same form
        self.text(LANE_X + LANE_WIDTH / 2, y - 0.27, shape(entry), 7, family="monospace")
        return y - 0.37

    def span(self, columns: set[int], lane=(LANE_X, LANE_WIDTH)) -> tuple[float, float]:
        """Left edge and width of columns of a lane."""
        each = lane[1] / COLUMNS
        left = lane[0] + min(columns) * each
        gap = 0.0 if len(columns) == COLUMNS else 0.05
        return left + gap, (max(columns) - min(columns) + 1) * each - 2 * gap

    def draw_code(self, row: int) -> None:
        top, bottom = self.boxes[row]
        lines = self.code[row]
        y = (top + bottom) / 2 + 0.07 * (len(lines) - 1)
        for line in lines:
            self.text(CODE_X, y, line, 7, ha="left", family="monospace")
            y -= 0.14

    def compute(self, step: Step) -> None:
        top, bottom = self.boxes[step.row]
        cut = cut_of(step.outputs[0].value)
        left, width = self.span(self.stands(step))
        self.box(left, top, width, bottom, cut)
        other_left, other_width = self.span(self.stands(step), (OTHER_X, OTHER_WIDTH))
        self.box(other_left, top, other_width, bottom, cut, alpha=0.75)
        middle, center = (top + bottom) / 2, left + width / 2
        shapes = list(dict.fromkeys(shape(operator.value) for operator in step.outputs))
        weights = [shape(value) for _, value in step.weights]
        style = {"family": "monospace"}
        if len(step.title) < 26:
            style |= {"weight": "bold", "family": "sans-serif"}
        if weights and width < LANE_WIDTH / 2:
            self.pill(center, bottom + 0.13, width - 0.14, weights[0])
            middle += 0.09
        if not weights or width < LANE_WIDTH / 2:
            self.text(center, middle + 0.1, step.title, 8.5 if "weight" in style else 7.5, **style)
            self.text(center, middle - 0.1, "   ".join(shapes), 7, family="monospace")
            return
        self.text(left + 0.95, middle + 0.1, step.title, 8.5, **style)
        self.text(left + 0.95, middle - 0.1, "   ".join(shapes), 7, family="monospace")
        y = middle + 0.19 * (len(weights) - 1) / 2
        for weight in weights:
            self.pill(left + width - 0.95, y, 1.65, weight)
            y -= 0.19

    def pill(self, center: float, y: float, width: float, weight: str) -> None:
        self.box(center - width / 2, y + 0.075, width, y - 0.075, "whole")
        self.text(center, y - 0.005, f"weight {weight}", 6.5, FAINT)

    def exchange(self, step: Step) -> None:
        top, bottom = self.boxes[step.row]
        row = self.row_of(step)
        self.box(
            LANE_X - 0.05, top, OTHER_X + OTHER_WIDTH - LANE_X + 0.1, bottom, "whole",
            facecolor="white", edgecolor=EXCHANGED, linestyle=(0, (4, 2)),
        )  # fmt: skip
        before = cut_of(step.inputs[0].value)
        after = cut_of(row.value)
        middle = (top + bottom) / 2
        for x, lane in ((LANE_X, LANE_WIDTH), (OTHER_X, OTHER_WIDTH)):
            self.box(x + 0.03, top - 0.04, lane - 0.06, top - 0.13, before)
            self.box(x + 0.03, bottom + 0.13, lane - 0.06, bottom + 0.04, after)
        gap = (LANE_X + LANE_WIDTH, OTHER_X)
        for start, end in (gap, gap[::-1]):
            self.line_to((end, bottom + 0.09), (start, top - 0.09), EXCHANGED)
        title = f"all-to-all: cut along {before} → cut along {after}"
        self.text(LANE_X + LANE_WIDTH / 2, middle, title, 8.5, weight="bold")
        bytes_text = f"{row.bytes / 2**20:.2f} MiB"
        self.text(CODE_X, middle + 0.09, "one exchange, put in by AutoSP:", 8, EXCHANGED, ha="left")
        self.text(CODE_X, middle - 0.09, f"{bytes_text} from each rank", 8, EXCHANGED, ha="left")

    def line_to(self, end, start, color):
        style = {"arrowstyle": "-|>", "color": color, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
        self.axes.annotate("", end, start, arrowprops=style)

    def row_of(self, step: Step):
        """The report's row of an exchange."""
        exchange = next(o for o in step.operators if o.target == EXCHANGE)
        return next(r for r in self.report.exchanges if r.value == exchange.value)

    def arrows(self) -> None:
        """One arrow for each value that a step reads, and the layer's own input and output."""
        entry = self.steps[0].operators[0].operands[0]
        self.columns[entry] = set(range(COLUMNS))
        for lane in ((LANE_X, LANE_WIDTH), (OTHER_X, OTHER_WIDTH)):
            for step in self.steps:
                if any(entry in operator.operands for operator in step.operators):
                    self.arrow(self.columns[entry], -1, step.row, lane)
                for operator in step.inputs:
                    source = next(s for s in self.steps if operator in s.operators)
                    read = self.columns[operator.name] & self.stands(step)
                    self.arrow(read, source.row, step.row, lane)
            self.arrow(self.columns[entry], self.steps[-1].row, len(self.boxes), lane)

    def stands(self, step: Step) -> set[int]:
        return set().union(*(self.columns[operator.name] for operator in step.outputs))

    def arrow(self, columns: set[int], start: int, end: int, lane: tuple[float, float]) -> None:
        """From one row to another, straight down, or around the steps in between."""
        left, width = self.span(columns, lane)
        between = [s for s in self.steps if start < s.row < end]
        blocked = any(self.stands(step) & columns for step in between)
        above = self.boxes[start][1] if start in self.boxes else self.entry
        below = self.boxes[end][0] if end in self.boxes else self.exit
        xs, ys = [left + width / 2] * 2, [above, below]
        if blocked:
            side, near = lane[0] - 0.13, lane[0] + 0.25
            xs = [near, near, side, side, near]
            ys = [above, above - 0.09, above - 0.09, below + 0.13, below + 0.13]
            self.axes.plot(xs, ys, color=FAINT, linewidth=1.0, solid_joinstyle="round")
            xs, ys = [near, near], [below + 0.13, below]
        self.line_to((xs[1], ys[1]), (xs[0], ys[0]), FAINT)

    def legend(self) -> None:
        x, y = CODE_X, 0.48
        self.text(x, y, "a rank holds", 8.5, ha="left", weight="bold")
        x += 1.1
        for cut, label, width in (
            ("tokens", f"1/{RANKS} of the tokens", 1.85),
            ("heads", f"1/{RANKS} of the heads", 1.8),
            ("whole", "all of it; its gradient is summed over the ranks", 3.4),
        ):
            self.box(x, y + 0.08, 0.28, y - 0.08, cut)
            self.text(x + 0.36, y, label, 8, ha="left")
            x += width
        note = f"{TOKENS}/{RANKS} is one of {RANKS} equal parts of {TOKENS}"
        self.text(CODE_X + 1.1, 0.22, note, 8, FAINT, ha="left")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, nargs="?", default=Path("docs/layer.svg"))
    output = parser.parse_args().output
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "autosp"
    made = report()
    picture = Picture(made, steps_of(one_layer(made.operators)))
    output.parent.mkdir(parents=True, exist_ok=True)
    picture.figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())

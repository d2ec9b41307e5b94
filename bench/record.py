"""What every measurement leaves: tables on the terminal, and a file with the figures and how they
came about.
"""

import datetime
import json
import os
import platform
import shlex
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Table:
    """Formatted cells; the first column names the row, the others are figures."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""

    def show(self) -> None:
        table = RichTable(box=None, pad_edge=False)
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=not number)
        for row in self.rows:
            table.add_row(*row)
        console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
        console.print(f"\n[bold]{escape(self.title)}[/bold]", table)
        if self.note:
            console.print(f"[dim]{escape(self.note)}[/dim]")

    def markdown(self) -> str:
        lines = [self.columns, ["--", *["--:"] * (len(self.columns) - 1)], *self.rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{text}\n" + (f"\n{self.note}\n" if self.note else "")


def finish(path: Path | None, tables: list[Table], aims: dict | None = None, **more) -> None:
    """Prints tables and which aims are met, and writes all to `path` unless that is None."""
    for table in tables:
        table.show()
    for aim, met in (aims or {}).items():
        print(f"{'met    ' if met else 'not met'}  {aim}", flush=True)
    if path is not None:
        write(path, tables, aims or {}, **more)


def write(
    path: Path, tables: list[Table], aims: dict, device="cpu", command: str = "", **figures
) -> None:
    """`figures` are what the tables were made from; `command` is the running script's own."""
    script = Path(sys.argv[0]).resolve()
    root = RESULTS.parent.parent
    name = str(script.relative_to(root)) if script.is_relative_to(root) else script.name
    record = {
        "command": command or shlex.join(["python", name, *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device_name(device),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tables": [asdict(table) for table in tables],
        "aims": aims,
        **figures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n")


def device_name(device: str = "cpu") -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return platform.machine()

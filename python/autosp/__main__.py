"""The command line: `autosp check script.py:make --sp 8`, or `python -m autosp check …`."""

import argparse
import importlib.util
import pathlib
import sys

from .check import check
from .errors import AutoSPError


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="autosp")
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser(
        "check",
        help="run a training step as P simulated ranks and compare it with one device",
        description="Runs a training step of a model as P simulated ranks would, in this process,"
        " and compares the loss, every output and every gradient with one device.",
    )
    checking.add_argument(
        "make",
        metavar="SCRIPT:FUNCTION",
        help="a function without arguments that returns (model, inputs); inputs are a dict of"
        " keyword arguments, a tuple or list of positional ones, or one tensor",
    )
    checking.add_argument("--sp", type=int, default=4, help="number of ranks (default 4)")
    options = parser.parse_args(arguments)
    try:
        model, inputs = _load(options.make)()
        check(model, inputs, sp=options.sp)
    except AutoSPError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _load(name):
    path, _, function = name.rpartition(":")
    if not path or not pathlib.Path(path).is_file():
        raise AutoSPError(f"{name!r} names no function of a script; write path/to/script.py:make")
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise AutoSPError(f"{path} has no function {function!r} that makes a model and its inputs")
    return getattr(module, function)


if __name__ == "__main__":
    sys.exit(main())

"""Checks the include structure and the sizes of the tree.

Includes point down the list of layers: a file may include its own layer and those below, never one
above; includes form no cycle, and each names an existing file from the include root. The package's
Python stays under a fifth of the C++, and no source grows beyond its limit.
"""

import pathlib
import re
import sys

# A layer and the layers right below it; what those may include, it may include too.
BELOW = {
    "support": [],
    "ir": ["support"],
    "ops": ["ir"],
    "flow": ["support"],
    "cost": ["ops"],
    "sharding": ["ops", "cost", "flow"],
    "remat": ["sharding"],
    "passes": ["remat"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
MAX_LINES = {"src/**/*.cc": 600, "src/**/*.h": 600, "python/**/*.py": 600, "python/src/*.cc": 600}
PYTHON_SHARE = 5


def reachable(layer: str) -> set[str]:
    return {layer}.union(*(reachable(below) for below in BELOW[layer]))


def layer_errors(root: pathlib.Path) -> list[str]:
    source = root / "src"
    errors, graph = [], {}
    for path in sorted([*source.rglob("*.h"), *source.rglob("*.cc")]):
        name = path.relative_to(source).as_posix()
        layer = name.split("/")[0]
        if layer not in BELOW:
            errors.append(f"src/{name}: {layer} is no layer (see {pathlib.Path(__file__).name})")
            continue
        graph[name] = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not (match := INCLUDE.match(line)):
                continue
            target = match.group(1)
            where = f"src/{name}:{number}: "
            if (root / "include" / target).is_file():
                continue
            if not (source / target).is_file():
                errors.append(where + f'"{target}" is not a file under src or include')
            elif target.split("/")[0] not in reachable(layer):
                errors.append(where + f'{layer} must not include "{target}"')
            else:
                graph[name].append(target)
    return errors + cycle_errors(graph)


def cycle_errors(graph: dict[str, list[str]]) -> list[str]:
    done: set[str] = set()
    errors = []

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            errors.append("include cycle: " + " -> ".join([*trail[trail.index(name) :], name]))
        elif name not in done:
            for target in graph.get(name, []):
                visit(target, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return errors


def count_lines(path: pathlib.Path) -> int:
    return len(path.read_text().splitlines())


def size_errors(root: pathlib.Path) -> list[str]:
    errors = []
    for glob, limit in MAX_LINES.items():
        for path in sorted(root.glob(glob)):
            if (lines := count_lines(path)) > limit:
                errors.append(f"{path.relative_to(root)}: {lines} lines, more than {limit}")
    folders = ("src", "include", "python/src")
    files = [p for f in folders for p in (root / f).rglob("*") if p.suffix in (".cc", ".h")]
    engine = sum(map(count_lines, files))
    package = sum(map(count_lines, (root / "python/autosp").rglob("*.py")))
    print(f"{engine} lines of C++, {package} of Python in the package")
    if package * PYTHON_SHARE >= engine:
        errors.append(f"the package's Python is not under 1/{PYTHON_SHARE} of the C++")
    return errors


def main() -> int:
    root = pathlib.Path(__file__).resolve().parents[2]
    errors = layer_errors(root) + size_errors(root)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

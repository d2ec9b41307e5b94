"""Runs every static check and says at the end which failed. `--no-tidy` leaves out the slow one."""

import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tracked(*patterns: str) -> list[str]:
    """Files of the working tree that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in names.splitlines() if (ROOT / name).is_file()]


def main() -> int:
    checks = {
        "clang-format": ["clang-format", "--dry-run", "-Werror", *tracked("*.cc", "*.h")],
        "ruff": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "layers and sizes": [sys.executable, "tools/lint/check_layers.py"],
    }
    if "--no-tidy" not in sys.argv:
        # A build in which clang-tidy runs beside the compiler: again only over what changed.
        checks["configure"] = ["cmake", "--preset", "tidy", "--log-level=WARNING"]
        checks["clang-tidy"] = ["ninja", "-C", "build/tidy", "-k", "0"]
    failed = []
    for name, command in checks.items():
        start = time.monotonic()
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        verdict = "failed" if status else "ok"
        print(f"{name}: {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
        failed += [name] if status else []
    print("lint: " + (f"failed: {', '.join(failed)}" if failed else "ok"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

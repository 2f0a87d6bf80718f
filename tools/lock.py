"""Writes the files in `constraints/`: the exact versions that the workspace is tested with.

Rules of this part:

- `latest.txt` pins every tool and dependency, for all supported Pythons at once; every environment
  of `run.py` and the noxfile is made with it. `lowest.txt` pins the oldest direct dependencies that
  the packages claim to work with.
- No line names a registry, a path or one of our own packages.

Called as `python -m tools.lock` where uv is installed, after a dependency has changed.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "constraints"
PROJECTS = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "agent-saga-core/pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")]
)


def main() -> int:
    """Write both files; return 0, or raise when uv finds no solution."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    own = [name for name in groups if name.startswith("agent-saga-")]
    _write("latest.txt", "highest", list(groups))
    _write("lowest.txt", "lowest-direct", ["test", *own])
    return 0


def _write(name: str, resolution: str, groups: list[str]) -> None:
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--no-annotate", "--no-header", "--resolution", resolution, *PROJECTS]
    for group in groups:
        command += ["--group", group]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    pins = [line for line in done.stdout.splitlines() if "==" in line]
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / name).write_text("\n".join([f"# {_MADE_BY}", *pins]) + "\n", "utf-8")


_MADE_BY = "Written by python -m tools.lock; do not edit."


if __name__ == "__main__":
    sys.exit(main())

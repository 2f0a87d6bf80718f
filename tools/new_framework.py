"""Writes a package for another agent framework, in a working state.

    python -m tools.new_framework acme --title "Acme Agents" --requires acme --from 1.2 --below 2

Rules of this part:

- What is written runs and passes its tests before anybody has changed it: it puts agents of one
  plain form under care, and says so; cases of the kit that such agents cannot pass are named, each
  with its reason. What it knows of the framework stands in one module, `seams`: begin there.
- The template lies in `packages/_template`; its files end in `.template`, so that they are nobody's
  code, and hold «words» in the place of names.
- Nothing that exists is written over.
- What all framework packages have in common is not in the template: it is in
  `agent_saga.kit.frameworks`, and in the kit for their tests.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools import tree

TEMPLATE = tree.ROOT / "packages" / "_template"
SUFFIX = ".template"
_COPIED = {"LICENSE": "LICENSE", "changes/README.md": "agent-saga-core/changes/README.md"}


class Framework(NamedTuple):
    """The framework that a package is for.

    Attributes:
        name: what the package is called behind `agent-saga-`.
        title: what people call the framework.
        requires: the distribution that it comes with.
        imports: the name by which it is imported.
        lowest: the first version that works.
        below: the first version that does not.
    """

    name: str
    title: str
    requires: str
    imports: str
    lowest: str
    below: str

    @property
    def module(self) -> str:
        """The package's import name behind `agent_saga_`."""
        return self.name.replace("-", "_")

    @property
    def package(self) -> str:
        """The package's folder."""
        return f"packages/agent-saga-{self.name}"

    def words(self) -> dict[str, str]:
        """Return what stands in the template's places."""
        return {
            **self._asdict(),
            "module": self.module,
            "lowest_numbers": _numbers(self.lowest),
            "below_numbers": _numbers(self.below),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a package as it is asked for on the command line; say what comes next."""
    framework = _asked(arguments)
    for path in written(framework, tree.ROOT):
        print(f"Wrote {path.relative_to(tree.ROOT)}")
    print(
        f"\nInstall it, and run its tests:\n"
        f"  pip install -e agent-saga-core -e packages/agent-saga-testing -e {framework.package}\n"
        f"  python -m tools.public_door\n"
        f"  pytest {framework.package}/tests tests/frameworks\n"
        f"Pin what it is tested with: nox -s lock -- {framework.package}\n"
        "Then teach it the framework, from seams.py on."
    )
    return 0


def _asked(arguments: Sequence[str] | None) -> Framework:
    parser = argparse.ArgumentParser(prog="python -m tools.new_framework", description=__doc__)
    parser.add_argument("name", help="the package is called agent-saga-NAME")
    parser.add_argument("--title", help="what people call the framework; NAME when not given")
    parser.add_argument("--requires", help="its distribution; NAME when not given")
    parser.add_argument("--imports", help="its import name; that of the distribution if not given")
    parser.add_argument("--from", dest="lowest", required=True, help="the first version that works")
    parser.add_argument("--below", required=True, help="the first version that does not")
    given = parser.parse_args(arguments)
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", given.name):
        parser.error("NAME is made of small letters, digits and hyphens.")
    for version in (given.lowest, given.below):
        if not re.fullmatch(r"\d+(\.\d+)*", version):
            parser.error(f"{version!r} is no version: give numbers with dots between them.")
    requires = given.requires or given.name
    return Framework(
        given.name,
        given.title or given.name,
        requires,
        given.imports or requires.replace("-", "_"),
        given.lowest,
        given.below,
    )


def written(framework: Framework, root: Path) -> list[Path]:
    """Write a package, its door in the core, and an example.

    Args:
        framework: what it is for.
        root: the workspace's folder.

    Raises:
        FileExistsError: something of it is there already; nothing was written.
    """
    files = {root / path: text for path, text in rendered(framework)}
    there = sorted(str(path) for path in files if path.exists())
    if there:
        raise FileExistsError(f"Nothing was written: there is {', '.join(there)} already.")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return list(files)


def rendered(framework: Framework) -> Iterator[tuple[str, str]]:
    """Give each file of a package: where it lies in the workspace, and its text."""
    words = framework.words()
    for path in sorted(TEMPLATE.rglob(f"*{SUFFIX}")):
        inside = path.relative_to(TEMPLATE).as_posix().removesuffix(SUFFIX)
        yield _put(_place(inside, framework), words), _put(path.read_text("utf-8"), words)
    for there, here in _COPIED.items():
        yield f"{framework.package}/{there}", (tree.ROOT / here).read_text("utf-8")


def _place(inside: str, framework: Framework) -> str:
    """Return where a file of the template comes to lie."""
    outside = {
        "door.py": f"agent-saga-core/src/agent_saga/adapters/{framework.module}.py",
        "example.py": f"examples/{framework.module}_agent.py",
    }
    sources = f"{framework.package}/src/agent_saga_{framework.module}/"
    return outside.get(inside) or re.sub(
        r"^package/(src/)?", lambda found: sources if found[1] else f"{framework.package}/", inside
    )


def _put(text: str, words: dict[str, str]) -> str:
    return re.sub(r"«(\w+)»", lambda found: words[found[1]], text)


def _numbers(version: str) -> str:
    parts = version.split(".")
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


if __name__ == "__main__":
    sys.exit(main())

"""Where the program `agent-saga` starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from agent_saga.cli import ending
from agent_saga.cli.exits import MEANINGS
from agent_saga.cli.group import CommandGroup
from agent_saga.cli.installation import core_version

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_EXITS = ", ".join(f"{code.value} {words}" for code, (words, _) in MEANINGS.items())


@click.group(
    cls=CommandGroup,
    invoke_without_command=False,
    help="Look after the sagas of agents: what happened, what was undone, what stands.\n\n"
    f"Exit codes: {_EXITS}.",
)
@click.version_option(core_version(), prog_name="agent-saga", message="%(prog)s %(version)s")
def program() -> None:
    """Run one of the commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: the words after `agent-saga`; those of the process when not given.
    """
    return ending.run(program, "agent-saga", sys.argv[1:] if arguments is None else arguments)

"""Where the program `agent-saga` starts.

Every error of ours ends with its own text and exit code, never with a traceback; a reader that goes
away (`| head`) ends the program quietly.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit, exit_of
from agent_saga.cli.group import CommandGroup
from agent_saga.cli.installation import core_version
from agent_saga.cli.output import note
from agent_saga.errors import AgentSagaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


@click.group(cls=CommandGroup, invoke_without_command=False)
@click.version_option(core_version(), prog_name="agent-saga", message="%(prog)s %(version)s")
def program() -> None:
    """Look after the sagas of agents: what happened, what was undone, what stands.

    Exit codes: 0 clean, 1 not clean, 2 usage, 3 nothing could be verified, 4 refused.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: the words after `agent-saga`; those of the process when not given.
    """
    try:
        answer = program.main(
            args=None if arguments is None else list(arguments),
            prog_name="agent-saga",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AgentSagaError as error:
        note(f"Error: {error}")
        return exit_of(error)
    except (click.Abort, KeyboardInterrupt):
        note("Interrupted.")
        return Exit.NOTHING_VERIFIABLE
    except BrokenPipeError:
        _be_quiet()
        return Exit.NOTHING_VERIFIABLE
    return int(answer or Exit.CLEAN)


def _be_quiet() -> None:
    # The interpreter flushes once more at exit and would print the same error again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

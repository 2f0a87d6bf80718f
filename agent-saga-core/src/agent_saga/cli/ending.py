"""How a program of the command line ends, whatever happens: its exit code, and what is said.

Rules of this part:

- Every error ends with its own text and exit code, never with a traceback; what it says to do next
  names the log. It is said on the error
  stream, one line for each of its own; what does not print is written as an escape.
- With `--json` the standard output is one JSON document all the same: `{"error": …}`, with the
  class, the code, the message, the next thing to do, and the exit code. With `--json-logs` that
  document is a line of the error stream, like every line of the logs, and nothing else is said.
- A signal that came while sagas were acted on decides the exit code, and what was done is told all
  the same (see `stopping`).
- A reader that goes away (`| head`) ends the program quietly.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from agent_saga.cli.exits import Exit, exit_of
from agent_saga.cli.output import note, printable, say_json
from agent_saga.cli.place import log_looked_at
from agent_saga.cli.stopping import stopped_by
from agent_saga.cli.streams import complete_streams
from agent_saga.domain.commands import completed
from agent_saga.errors import AgentSagaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

_AS_JSON: Final = "--json"
_JSON_LOGS: Final = "--json-logs"


class _Ending(NamedTuple):
    """Why a program ended before it had an answer; `told` is what people read."""

    exit: int
    kind: str
    message: str
    fix: str = ""
    code: str = ""
    told: str = ""


def run(command: click.Command, name: str, words: Sequence[str]) -> int:
    """Run a command and return its exit code.

    Args:
        command: what was called.
        name: how it was called.
        words: what stood behind the name.

    Crash: whatever was begun is in the log.
    """
    complete_streams()
    try:
        answer = command.main(args=list(words), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _be_quiet()
        return Exit.NOTHING_VERIFIABLE
    except (click.ClickException, click.Abort, AgentSagaError, KeyboardInterrupt, OSError) as error:
        return _told(_ending(error, name), words)
    return _stopped(stopped_by()) or int(answer or Exit.CLEAN)


def _stopped(number: int | None) -> int:
    """Say that a signal ended a command which has told what it did; 0 without one."""
    if number is None:
        return 0
    note("Interrupted. Above stands what was done; if something is left, the same command goes on.")
    return 128 + number


def _ending(error: BaseException, name: str) -> _Ending:
    kind = type(error).__name__
    if isinstance(error, AgentSagaError):
        log = log_looked_at()
        fix = completed(error.fix, log) if log else error.fix
        return _Ending(exit_of(error), kind, error.message, fix, error.code)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        message = "Interrupted. What was begun is in the log; the same command goes on with it."
        return _Ending(Exit.INTERRUPTED, "Interrupted", message)
    if isinstance(error, click.ClickException):
        shown = io.StringIO()
        error.show(shown)
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else name
        fix = f"{path} --help"
        told = shown.getvalue()
        return _Ending(error.exit_code, "UsageError", error.format_message(), fix, told=told)
    return _Ending(Exit.NOTHING_VERIFIABLE, kind, str(error))


def _told(ending: _Ending, words: Sequence[str]) -> int:
    document = {**ending._asdict(), "exit": int(ending.exit)}
    del document["told"]
    if _JSON_LOGS in words:
        click.echo(json.dumps({"error": document}), err=True)
        return ending.exit
    for line in (ending.told or _text(ending)).splitlines():
        note(printable(line))
    if _AS_JSON in words:
        say_json({"error": document})
    return ending.exit


def _text(ending: _Ending) -> str:
    code = f" [{ending.code}]" if ending.code else ""
    head, newline, rest = ending.message.partition("\n")
    text = f"Error: {head}{code}{newline}{rest}"
    known = not ending.fix or ending.fix in ending.message
    return text if known else f"{text}\n  To do: {ending.fix}"


def _be_quiet() -> None:
    # The interpreter flushes once more at exit and would print the same error again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

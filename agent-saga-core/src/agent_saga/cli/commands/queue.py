"""`agent-saga queue`: what needs a human, and how a person deals with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import import_option, log_options, named
from agent_saga.cli.output import counted, printable, say, say_json
from agent_saga.cli.place import log_path, wal_option
from agent_saga.cli.recovering import as_document, opened, result_lines, saga_of
from agent_saga.recovery.queue import case_of, cases

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.recovery.survey import Found

__all__ = ["command"]


@click.group("queue")
def command() -> None:
    """Show and settle what recovery must not decide."""


@command.command("list")
@log_options
def list_cases(wal_path: str | None, *, as_json: bool) -> Exit:
    """List the sagas that need a human.

    Exits with 1 while there is one, and with 3 if there is no log.
    """
    path = log_path(wal_path)
    found = cases(str(path))
    if as_json:
        say_json([_document(case) for case in found])
    else:
        say(f"Log: {printable(path)}")
        say(*[f"{case.id} {printable(case.view.name)!r} {_reason(case)}" for case in found])
        say(_summary(path, len(found)))
    if found:
        return Exit.NOT_CLEAN
    return Exit.CLEAN if path.exists() else Exit.NOTHING_VERIFIABLE


def _summary(path: Path, found: int) -> str:
    if found:
        return f"{counted(found, 'case')}. Next: agent-saga queue show SAGA {wal_option(path)}"
    return "Nothing needs a human." if path.exists() else "There is no log here yet."


@command.command("show", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@log_options
def show_case(saga: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Show one case: what may stand, and how it can be settled."""
    path = log_path(wal_path)
    found = cases(str(path))
    wanted = saga_of(found, saga)
    case = next(one for one in found if one.id == wanted)
    if as_json:
        say_json(_document(case))
        return Exit.NOT_CLEAN
    say(f"{case.id} {printable(case.view.name)!r} is {case.view.state.value}.")
    say(*[f"  {printable(problem)}" for problem in case.problems])
    for step in case.view.standing:
        say(f"  may stand: {printable(step.tool)} ({step.state.value}) {printable(step.detail)}")
    place = wal_option(path)
    say(
        "Look at the world. Then either",
        f"  agent-saga queue retry {case.id} {place} --by NAME --import MODULE",
        "or, when it is put right by hand,",
        f"  agent-saga queue close {case.id} {place} --by NAME --reason '…'",
    )
    return Exit.NOT_CLEAN


@command.command("retry", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@import_option
@click.option("--by", required=True, help="Who asks for it; recorded.")
@log_options
def retry(
    saga: str, wal_path: str | None, modules: tuple[str, ...], by: str, *, as_json: bool
) -> Exit:
    """Undo what is left of a case; exits with 0 if all of it was undone."""
    with opened(wal_path, modules, by) as daemon:
        done = daemon.retry(saga_of(daemon.cases(), saga), by=by)
    if as_json:
        say_json(as_document([done]))
    else:
        say(*result_lines([done]))
    return Exit.NOT_CLEAN if done.needs_human else Exit.CLEAN


@command.command("close", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@click.option("--by", required=True, help="Who says so; recorded.")
@click.option("--reason", required=True, help="What was done about it; recorded.")
@log_options
def close(saga: str, wal_path: str | None, by: str, reason: str, *, as_json: bool) -> Exit:
    """Record that a person has dealt with a case; nothing is run."""
    with opened(wal_path, (), by) as daemon:
        wanted = saga_of(daemon.cases(), saga)
        daemon.close_case(wanted, by=by, reason=reason)
    if as_json:
        say_json({"saga": wanted, "closed_by": by, "reason": reason})
    else:
        say(f"{wanted} is closed by {printable(by)}: {printable(reason)}")
    return Exit.CLEAN


def _reason(case: Found) -> str:
    return printable(case_of(case))


def _document(case: Found) -> dict[str, object]:
    return {
        "saga": case.id,
        "name": case.view.name,
        "state": case.view.state.value,
        "reason": case_of(case),
        "problems": case.problems,
        "standing": [
            {"step": step.id, "tool": step.tool, "state": step.state.value, "detail": step.detail}
            for step in case.view.standing
        ],
    }

"""`agent-saga queue`: what needs a human, and how a person deals with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.naming import saga_meant
from agent_saga.cli.options import by_option, import_option, log_options, named, reason_option
from agent_saga.cli.output import counted, printable, say, say_json
from agent_saga.cli.place import NO_LOG, existing_log, is_there, log_path, wal_option
from agent_saga.cli.reading import read_log
from agent_saga.cli.recovering import as_document, opened, result_lines
from agent_saga.cli.vanished import meant
from agent_saga.cli.verdict import done_lines, headline, standing_lines
from agent_saga.domain.commands import queue_command, quoted
from agent_saga.errors import RecoveryError
from agent_saga.recovery.next_step import where_to_look
from agent_saga.recovery.queue import RETRIED, case_of, cases_in, untold_in
from agent_saga.recovery.suspended import awaits_human

if TYPE_CHECKING:
    from pathlib import Path

    from agent_saga.domain.views import SagaView
    from agent_saga.recovery.survey import Found

__all__ = ["command"]


@click.group("queue")
def command() -> None:
    """Show and settle what recovery must not decide."""


@command.command("list")
@log_options
def list_cases(wal_path: str | None, *, as_json: bool) -> Exit:
    """List the sagas that need a human.

    Sagas that recovery does not take over, since nobody can tell whether their process lives or
    since they are quarantined, are told too. Exits with 1 while there is anything, and with 3 if
    there is no log.
    """
    path = log_path(wal_path)
    found, untold = cases_in(str(path)), untold_in(str(path))
    if as_json:
        cases = [_document(case) for case in found]
        waits = [{"saga": s.id, "name": s.view.name, "reason": str(e)} for s, e in untold]
        say_json({"log": str(path), "cases": cases, "untold": waits})
    else:
        say(f"Log: {printable(path)}")
        say(*[f"{_named(case.view)} {_reason(case)}" for case in found])
        for saga, error in untold:
            say(f"{_named(saga.view)} is open: {printable(error.message)}")
            say(f"  To do: {printable(error.fix)}")
        if found or not untold:
            say(_summary(path, len(found)))
    if found or untold:
        return Exit.NOT_CLEAN
    return Exit.CLEAN if is_there(path) else Exit.NOTHING_VERIFIABLE


def _summary(path: Path, found: int) -> str:
    if found:
        return f"{counted(found, 'case')}. Next: agent-saga queue show SAGA {wal_option(path)}"
    return "Nothing needs a human." if is_there(path) else NO_LOG


@command.command("show", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@log_options
def show_case(saga: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Show one case: what may stand, and how it can be settled.

    SAGA is an id, the saga_id that the program gave, a name, or the beginning of an id. Exits with
    1, and with 4 if this saga is no case.
    """
    path = existing_log(wal_path)
    case = _case_meant(path, saga)
    if as_json:
        say_json({"log": str(path), **_document(case)})
        return Exit.NOT_CLEAN
    say(f"Log: {printable(path)}", headline(case.view))
    say(*[f"  {printable(one)}" for one in case.problems if one not in case.view.faults])
    if not case.vanished:
        say(*standing_lines(case.view), *done_lines(case.view))
    say(*_ways_out(case, path))
    return Exit.NOT_CLEAN


def _case_meant(path: Path, wanted: str) -> Found:
    """Return the case that a person means by the name of its saga.

    Raises:
        NotFound, Ambiguous: the log has no such saga, or several.
        RecoveryError: the saga is no case.
    """
    cases, log = cases_in(str(path)), read_log(path)
    gone = None if log.find(wanted) else meant(cases, wanted)
    if gone is not None:
        return gone
    view = saga_meant(log, wanted)
    for case in cases:
        if case.id == view.id:
            return case
    for saga, why in untold_in(str(path)):
        if saga.id == view.id:
            raise why
    raise RecoveryError(
        f"Saga {view.id} is {view.state.value} and no case: it does not need a human now.",
        fix=where_to_look(view, str(path)),
    )


def _ways_out(case: Found, path: Path) -> list[str]:
    """Return how a case can be settled, by what its state allows."""
    place, saga = wal_option(path), quoted(case.id)
    retry = f"  agent-saga queue retry {saga} {place} --by NAME --import MODULE"
    close = f"  agent-saga queue close {saga} {place} --by NAME --reason WHY"
    if awaits_human(case) and not case.problems:
        resume = "  transaction(saga_id=…, resume=True)"
        return ["Either its program goes on with it,", resume, "or undo what it did:", retry]
    if case.problems or case.view.state not in RETRIED:
        return ["Look at the world. When it is put right by hand:", close]
    head = "Look at the world. Then either undo what is left,"
    again = (
        "  (an inverse that failed is repeated only if it is idempotent and was so then, or if its "
        "reconciler sees that it does not hold)"
    )
    return [head, retry, again, "or, when it is put right by hand,", close]


@command.command("retry", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@import_option
@by_option()
@log_options
def retry(
    saga: str, wal_path: str | None, modules: tuple[str, ...], by: str, *, as_json: bool
) -> Exit:
    """Undo what is left of a case.

    SAGA is an id, the saga_id that the program gave, a name, or the beginning of an id. Exits with
    0 if all of it was undone, with 1 if something stands, and with 4 if it was refused.
    """
    path = existing_log(wal_path)
    with opened(path, modules, by) as daemon:
        done = daemon.retry(_case_meant(path, saga).id, by=by)
    if as_json:
        say_json({"log": str(path), "sagas": as_document([done])})
    else:
        say(f"Log: {printable(path)}", *result_lines([done]))
        if done.needs_human:
            say(f"Next: {queue_command(done.saga, str(path))}")
    return Exit.NOT_CLEAN if done.needs_human or done.stands else Exit.CLEAN


@command.command("close", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@by_option(about="Who says so; recorded.")
@reason_option("What was done about it; recorded.")
@log_options
def close(saga: str, wal_path: str | None, by: str, reason: str, *, as_json: bool) -> Exit:
    """Record that a person has dealt with a case; nothing is run.

    SAGA is an id, the saga_id that the program gave, a name, or the beginning of an id. Exits with
    4 if it was refused: the saga is no case, or somebody else acts on it.
    """
    path = existing_log(wal_path)
    with opened(path, (), by) as daemon:
        wanted = _case_meant(path, saga).id
        daemon.close_case(wanted, by=by, reason=reason)
    if as_json:
        say_json({"log": str(path), "saga": wanted, "closed_by": by, "reason": reason})
    else:
        told = f"The case {printable(wanted)} is closed by {printable(by)}: {printable(reason)}"
        say(f"Log: {printable(path)}", told)
    return Exit.CLEAN


def _named(saga: SagaView) -> str:
    """Return how people know a saga: its id, the one that its program gave, and its name."""
    key = f" ({printable(saga.key)})" if saga.key else ""
    name = f" {printable(saga.name)!r}" if saga.name else ""
    return f"{printable(saga.id)}{key}{name}"


def _reason(case: Found) -> str:
    return printable(case_of(case))


def _document(case: Found) -> dict[str, object]:
    return {
        "saga": case.id,
        "saga_id": case.view.key,
        "name": case.view.name,
        "state": case.view.state.value,
        "reason": case_of(case),
        "problems": case.problems,
        "standing": [
            {"step": step.id, "tool": step.tool, "state": step.state.value, "detail": step.detail}
            for step in case.view.standing
        ],
    }

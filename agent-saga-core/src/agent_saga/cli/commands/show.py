"""`agent-saga show SAGA`: the story of one saga, what stands, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.holding import holds
from agent_saga.cli.naming import saga_meant
from agent_saga.cli.options import log_options, named
from agent_saga.cli.output import printable, say, say_json
from agent_saga.cli.owners import Owners
from agent_saga.cli.place import existing_log
from agent_saga.cli.reading import LogView, damage_text, read_log, records_of
from agent_saga.cli.story import moment, stored, told
from agent_saga.cli.vanished import lost_of
from agent_saga.cli.verdict import headline, standing_lines
from agent_saga.recovery.hold import hold_text
from agent_saga.recovery.next_step import next_step
from agent_saga.recovery.quarantine import quarantined_in

if TYPE_CHECKING:
    from agent_saga.domain.views import SagaView

__all__ = ["command"]


@click.command("show", context_settings={"ignore_unknown_options": True})
@click.argument("saga", callback=named)
@log_options
def command(saga: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Tell the story of one saga: its steps, their inverses, what stands.

    SAGA is an id, the saga_id that the program gave, a name, or the beginning of an id. Exits with
    0 if the saga is clean and the log is whole, and with 1 if not, or if the state store knows that
    records of the saga are lost.
    """
    log = read_log(existing_log(wal_path))
    view = saga_meant(log, saga)
    lost = lost_of(log.path, view.id)
    if as_json:
        say_json(_document(log, view) | {"lost": lost})
    else:
        _print(log, view)
        say(*([f"LOST: {printable(lost)}."] if lost else []))
    return Exit.CLEAN if view.clean and not (log.broken or lost) else Exit.NOT_CLEAN


def _print(log: LogView, view: SagaView) -> None:
    say(
        f"Log: {printable(log.path)}",
        *damage_text(log.damages),
        headline(view, Owners(log.path).of(view)),
    )
    say("", "  (times are in UTC)")
    for record, sentence in told(records_of(log.path, view.id)):
        say(f"  {moment(record.time)}  {sentence}")
    say("", *standing_lines(view))
    held = holds(log.path, [view]).get(view.id)
    if held is not None:
        say(f"Held: {hold_text(held)}.")
    step = _next(log, view, held=held is not None)
    if step:
        say(f"Next: {printable(step)}")


def _next(log: LogView, view: SagaView, *, held: bool) -> str:
    path = str(log.path)
    return next_step(view, path, held=held, quarantine=quarantined_in(path).get(view.id))


def _document(log: LogView, view: SagaView) -> dict[str, Any]:
    held = holds(log.path, [view]).get(view.id)
    return {
        "log": str(log.path),
        "whole": not log.broken,
        "damages": damage_text(log.damages),
        "saga": view.id,
        "saga_id": view.key,
        "name": view.name,
        "state": view.state.value,
        "process": Owners(log.path).of(view),
        "clean": view.clean,
        "held": held is not None,
        "held_until_us": held.until if held is not None else None,
        "faults": view.faults,
        "steps": [_step(view, step) for step in view.steps.values()],
        "next": _next(log, view, held=held is not None),
        "records": [
            {
                "writer": record.writer,
                "seq": record.seq,
                "epoch": record.epoch,
                "time_us": record.time,
                "event": record.event,
                "step": record.step,
                "generation": record.generation,
                "data": stored(record),
                "told": sentence,
            }
            for record, sentence in told(records_of(log.path, view.id))
        ],
    }


def _step(view: SagaView, step: Any) -> dict[str, Any]:
    return {
        "step": step.id,
        "tool": step.tool,
        "semantics": step.semantics,
        "generation": step.generation,
        "state": step.state.value,
        "stands": step.stands_after(view.state),
        "inverse": step.inverse,
        "detail": step.detail,
    }

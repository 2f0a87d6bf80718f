"""`agent-saga list`: the sagas of a log, and where each stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.holding import holds
from agent_saga.cli.options import log_options
from agent_saga.cli.output import counted, printable, say, say_json, table
from agent_saga.cli.owners import DEAD, UNTOLD, Owners
from agent_saga.cli.place import NO_LOG, is_there, log_path
from agent_saga.cli.reading import LogView, damage_text, read_log
from agent_saga.cli.story import moment
from agent_saga.cli.vanished import vanished
from agent_saga.domain.lifecycle import SagaState
from agent_saga.recovery.hold import hold_text

if TYPE_CHECKING:
    from agent_saga.domain.views import SagaView
    from agent_saga.recovery.hold import Hold

__all__ = ["command"]

_PROCESS: Final = {DEAD: " (its process died)", UNTOLD: " (its process: nobody can tell)"}
_STATES = [state.value for state in SagaState if state is not SagaState.NEW]


@click.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only sagas in this state; may be repeated.",
)
@click.option("--not-clean", is_flag=True, help="Only sagas that are not clean.")
@click.option("--name", help="Only sagas of this name.")
@log_options
def command(
    wal_path: str | None,
    states: tuple[str, ...],
    name: str | None,
    *,
    not_clean: bool,
    as_json: bool,
) -> Exit:
    """List the sagas of a log and where each stands.

    Exits with 0 if every listed saga is clean and the log is whole, with 1 if not, and with 3 if
    the log has no saga. Sagas that the log has lost are told too, whatever was asked for.
    """
    log = read_log(log_path(wal_path))
    owners = Owners(log.path)
    shown = [
        saga
        for saga in log.sagas.values()
        if (not states or saga.state.value in states)
        and (name is None or saga.name == name)
        and not (not_clean and saga.clean)
    ]
    held = holds(log.path, shown)
    lost = vanished(log.path, log.sagas) if is_there(log.path) else []
    if as_json:
        told = {"lost": [{"saga": one.id, "reason": one.lost} for one in lost]}
        say_json(_document(log, shown, held, owners) | told)
    else:
        _print(log, shown, owners)
        say(*[f"{saga} is held: {hold_text(held[saga])}" for saga in held])
        say(*[f"{printable(one.id)} is lost: {printable(one.lost)}." for one in lost])
    return Exit.NOT_CLEAN if lost else _exit(log, shown)


def _exit(log: LogView, shown: list[SagaView]) -> Exit:
    if log.broken or not all(saga.clean for saga in shown):
        return Exit.NOT_CLEAN
    return Exit.CLEAN if log.sagas else Exit.NOTHING_VERIFIABLE


def _print(log: LogView, shown: list[SagaView], owners: Owners) -> None:
    say(f"Log: {printable(log.path)}", *damage_text(log.damages))
    if not log.sagas:
        say("There is no saga in this log." if is_there(log.path) else NO_LOG)
        return
    head: tuple[str, ...] = ("SAGA", "SAGA_ID", "NAME", "STATE", "CLEAN", "STEPS", "BEGAN (UTC)")
    rows: list[tuple[object, ...]] = [
        (saga.id, saga.key, saga.name, *_stand(saga, owners)) for saga in shown
    ]
    if not any(saga.key for saga in shown):
        head = (head[0], *head[2:])
        rows = [(row[0], *row[2:]) for row in rows]
    say(*table(head, rows))
    say("", f"{len(shown)} of {counted(len(log.sagas), 'saga')}; {_unclean(shown)} not clean.")


def _stand(saga: SagaView, owners: Owners) -> tuple[object, ...]:
    clean = "yes" if saga.clean else "NO"
    state = f"{saga.state.value}{_PROCESS.get(owners.of(saga), '')}"
    return state, clean, len(saga.steps), moment(saga.began)


def _unclean(shown: list[SagaView]) -> int:
    return sum(not saga.clean for saga in shown)


def _document(
    log: LogView, shown: list[SagaView], held: dict[str, Hold], owners: Owners
) -> dict[str, Any]:
    return {
        "log": str(log.path),
        "whole": not log.broken,
        "damages": damage_text(log.damages),
        "sagas": [
            {
                "saga": saga.id,
                "saga_id": saga.key,
                "name": saga.name,
                "state": saga.state.value,
                "process": owners.of(saga),
                "clean": saga.clean,
                "steps": len(saga.steps),
                "began_us": saga.began,
                "last_us": saga.last,
                "held": saga.id in held,
                "held_until_us": held[saga.id].until if saga.id in held else None,
            }
            for saga in shown
        ],
    }

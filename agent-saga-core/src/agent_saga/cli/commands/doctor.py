"""`agent-saga doctor`: is this installation fit to protect an agent?

Looks and changes nothing. Exits with 1 if there is a problem, with 0 if there are only hints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.diagnosis import (
    PROBLEM,
    Finding,
    clock_finding,
    handler_findings,
    held_findings,
    lost_findings,
)
from agent_saga.cli.exits import Exit
from agent_saga.cli.holding import holds
from agent_saga.cli.installation import (
    installation,
    log_findings,
    plugin_findings,
    plugins_of,
    read_settings,
    store_finding,
    stranger,
)
from agent_saga.cli.options import import_option, log_options
from agent_saga.cli.output import printable, say, say_json, table
from agent_saga.cli.owners import Owners
from agent_saga.cli.place import log_path
from agent_saga.cli.reading import LogView, damage_text, handlers_needed, read_log
from agent_saga.cli.vanished import vanished
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.commands import completed
from agent_saga.errors import AgentSagaError, StateError
from agent_saga.plugins.importing import import_modules
from agent_saga.plugins.process import process_plugins
from agent_saga.runtime.settings import Settings, defaults_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent_saga.plugins.registry import HandlerRegistry

__all__ = ["command"]


@click.command("doctor")
@import_option
@log_options
def command(wal_path: str | None, modules: Sequence[str], *, as_json: bool) -> Exit:
    """Check Python, plugins, settings, the log's folder and the handlers that its sagas need."""
    manager = process_plugins()
    settings, findings = read_settings()
    path = log_path(settings.wal if wal_path is None else wal_path)
    findings = [stranger(), *findings, *plugin_findings(manager)]
    import_modules(modules)
    findings += [*log_findings(path), *_contents(path, manager.handlers.compensators)]
    told = {
        **installation(),
        "log": str(path),
        **plugins_of(manager),
        "settings": _settings(settings),
        "findings": [finding.as_dict() for finding in findings],
    }
    if as_json:
        say_json(told)
    else:
        _print(told, settings, findings)
    return Exit.NOT_CLEAN if any(f.level == PROBLEM for f in findings) else Exit.CLEAN


def _contents(path: Path, registered: HandlerRegistry) -> list[Finding]:
    """Judge what stands in the log: can it be read, and can its sagas be undone here."""
    if not path.is_dir():
        return []
    try:
        log = read_log(path)
    except AgentSagaError as error:
        return [Finding(PROBLEM, error.message, error.fix)]
    needed = handlers_needed(log.sagas.values())
    missing = {name: ids for name, ids in needed.items() if name not in registered}
    held = held_findings(holds(path, log.sagas.values()).values(), str(path))
    damages = [Finding(PROBLEM, line) for line in damage_text(log.damages)] if log.broken else []
    last = max((saga.last for saga in log.sagas.values()), default=0)
    told = [store_finding(path), clock_finding(SYSTEM_CLOCK.now_us(), last)]
    untold = Owners(path).writers.untold.values()
    told += [Finding(PROBLEM, error.message, error.fix) for error in untold]
    return [*damages, *told, *_lost(log), *held, *handler_findings(missing)]


def _lost(log: LogView) -> list[Finding]:
    """Name the sagas of which the log has lost everything; `store_finding` tells of the store."""
    try:
        lost = vanished(log.path, log.sagas)
    except StateError:
        return []
    return lost_findings([(one.id, one.lost) for one in lost], str(log.path))


def _settings(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "variable": row.variable,
            "value": row.value,
            "default": row.default,
            "meaning": row.meaning,
        }
        for row in defaults_table(settings)
    ]


def _print(told: dict[str, Any], settings: Settings, findings: Sequence[Finding]) -> None:
    say(f"Log: {printable(told['log'])}")
    say(*[f"{name}: {told[name]}" for name in ("agent-saga-core", "python", "system")])
    say("", *table(("PLUGIN", "FROM", "VERSION"), _plugin_rows(told)))
    say("", *table(("VARIABLE", "VALUE", "DEFAULT", "MEANING"), _setting_rows(settings)), "")
    for finding in findings:
        say(f"{finding.level}: {printable(finding.text)}")
        if finding.fix:
            fix = completed(finding.fix, str(told["log"]))
            say(*[f"  To do: {printable(line)}" for line in fix.splitlines()])


def _plugin_rows(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    rows = [(p["name"], p["distribution"] or "built in", p["version"]) for p in told["plugins"]]
    return rows + [(f"for {i['name']}", i["package"], i["supports"]) for i in told["integrations"]]


def _setting_rows(settings: Settings) -> list[tuple[str, str, str, str]]:
    return [(r.variable, r.value, r.default, r.meaning) for r in defaults_table(settings)]

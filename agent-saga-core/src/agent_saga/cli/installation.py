"""What `doctor` looks at: Python, distributions, plugins, variables, the log's folder."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from agent_saga.cli.diagnosis import (
    HINT,
    OK,
    PROBLEM,
    Finding,
    folder_finding,
    stranger_finding,
    variable_findings,
)
from agent_saga.domain.commands import quoted
from agent_saga.errors import AgentSagaError
from agent_saga.plugins.discovery import ALLOW, DENY
from agent_saga.plugins.manager import TRACE, PluginManager
from agent_saga.runtime.settings import PREFIX, Settings, defaults_table
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "core_version",
    "installation",
    "log_findings",
    "plugin_findings",
    "plugins_of",
    "read_settings",
    "store_finding",
    "stranger",
]

_STATES: Final[dict[bool | None, str]] = {
    True: "is ready",
    False: "is not ready",
    None: "cannot tell whether it is ready",
}
PLUGIN_VARIABLES: Final = (ALLOW, DENY, TRACE)


def core_version() -> str:
    """Return the version of agent-saga-core, or "unknown" when it runs without being installed."""
    try:
        return metadata.version("agent-saga-core")
    except metadata.PackageNotFoundError:
        return "unknown"


def installation() -> dict[str, str]:
    """Return what runs here, and where."""
    return {
        "agent-saga-core": core_version(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
    }


def stranger() -> Finding:
    """Look for the distribution `agent-saga`, which is not ours."""
    try:
        return stranger_finding(metadata.version("agent-saga"))
    except metadata.PackageNotFoundError:
        return stranger_finding(None)


def plugin_findings(manager: PluginManager) -> list[Finding]:
    """Load the plugins and ask each for its health."""
    try:
        manager.load()
    except AgentSagaError as error:
        return [Finding(PROBLEM, f"The plugins cannot be loaded: {error.message}", error.fix)]
    findings = [Finding(OK, f"Plugins loaded: {len(manager.plugins())}.")]
    for signal in manager.health():
        level = OK if signal.ready else PROBLEM
        text = f"The plugin {signal.plugin} {_STATES[signal.ready]}. {signal.detail}".rstrip()
        findings.append(Finding(level, text))
    return findings


def read_settings() -> tuple[Settings, list[Finding]]:
    """Return the settings, and what is wrong with the variables."""
    known = [row.variable for row in defaults_table()] + list(PLUGIN_VARIABLES)
    present = [name for name in os.environ if name.startswith(PREFIX.rstrip("_"))]
    findings = variable_findings(present, known)
    try:
        return Settings.from_environ(), findings
    except AgentSagaError as error:
        return Settings(), [Finding(PROBLEM, error.message, error.fix), *findings]


def log_findings(path: Path) -> list[Finding]:
    """Look at the folder of a log, without making anything."""
    if not path.exists():
        return [_not_yet(path)]
    if not path.is_dir():
        return [
            Finding(
                PROBLEM,
                f"There is a plain file where the log's folder should be: {path}",
                "Name another path for the log. If that file is an old log, and nobody else's: "
                f"mv {quoted(str(path))} {quoted(f'{path}.old')}",
            )
        ]
    found = path.stat()
    begun = any(path.iterdir()) if os.access(path, os.R_OK) else True
    writable = "can be written" if begun else "is empty: no log has begun there"
    findings = [Finding(OK, f"The log's folder {writable}.")]
    if not os.access(path, os.W_OK | os.X_OK):
        findings = [Finding(PROBLEM, "This user cannot write to the log's folder.")]
    if hasattr(os, "getuid"):
        findings.append(folder_finding(found.st_mode, found.st_uid, os.getuid()))
    return findings


def store_finding(path: Path) -> Finding:
    """Read the state store of a log, if it has one, without making anything."""
    try:
        with open_state(f"file:{path}") as store:
            count = len(store.scan())
    except AgentSagaError as error:
        return Finding(PROBLEM, f"The state store cannot be read: {error.message}", error.fix)
    return Finding(OK, f"The state store can be read; it holds {count} documents.")


def _not_yet(path: Path) -> Finding:
    parent = next(folder for folder in path.parents if folder.exists())
    if os.access(parent, os.W_OK | os.X_OK):
        return Finding(OK, "There is no log yet; it is made with the first record.")
    return Finding(
        HINT,
        f"There is no log yet, and this user cannot make one in {parent}.",
        "Name another place with AGENT_SAGA_WAL.",
    )


def plugins_of(manager: PluginManager) -> dict[str, Any]:
    """Return the plugins and integrations in use, as plain data; empty when they cannot load."""
    try:
        plugins, found = manager.plugins(), manager.integrations.as_mapping()
    except AgentSagaError:
        return {"plugins": [], "integrations": []}
    return {
        "plugins": [
            {"name": p.name, "distribution": p.distribution, "version": p.version} for p in plugins
        ],
        "integrations": [
            {"name": name, "package": found[name].package, "supports": found[name].supports}
            for name in sorted(found)
        ],
    }

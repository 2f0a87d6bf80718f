"""The manifest of guarantees: what holds, and what is expressly not claimed.

Rules of this part:

- The core's entries are those of `guarantees.toml`, each bound to its tests; plugins add theirs.
- The manifest says which version it speaks for. A file that cannot be read stops it: what cannot
  be read is not claimed.
"""

from __future__ import annotations

import tomllib
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["core_version", "manifest", "own_guarantees"]

_TOLD: Final = ("id", "sentence", "level", "where")


def core_version() -> str:
    """Return the version of agent-saga-core, or "unknown" when it runs without being installed."""
    try:
        return metadata.version("agent-saga-core")
    except metadata.PackageNotFoundError:
        return "unknown"


def own_guarantees() -> list[dict[str, str]]:
    """Return the core's guarantees, without what only their tests need.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return [
        {name: entry[name] for name in _TOLD if name in entry} | {"package": "agent-saga-core"}
        for entry in _file().get("guarantee", [])
    ]


def manifest(guarantees: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest as plain data.

    Args:
        guarantees: the entries of all plugins, the core's among them.

    Returns:
        `version` of the form, `agent_saga_core` version, `guarantees` and `not_claimed`.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return {
        "version": _file().get("version", 1),
        "agent_saga_core": core_version(),
        "guarantees": [dict(entry) for entry in guarantees],
        "not_claimed": [dict(entry) for entry in _file().get("not_claimed", [])],
    }


def _file() -> dict[str, Any]:
    source = resources.files("agent_saga").joinpath("guarantees.toml")
    try:
        return tomllib.loads(source.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The file of guarantees cannot be read: {error}",
            fix="Install agent-saga-core again.",
        ) from error

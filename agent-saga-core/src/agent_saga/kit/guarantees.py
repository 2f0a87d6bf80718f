"""The manifest of guarantees: `guarantees.toml`, which the tests are bound to, as data."""

from __future__ import annotations

from importlib import metadata, resources
from typing import Any

from agent_saga.plugins.process import process_plugins

_SHOWN = ("id", "sentence", "level", "where")


def manifest() -> dict[str, Any]:
    """Return the guarantees of the core and of installed plugins, and what is not claimed.

    Raises:
        PluginError: a plugin's guarantees cannot be read; what cannot be read is not claimed.
    """
    data, plugins = _read("agent_saga"), process_plugins().guarantees()
    return {
        "version": data["version"],
        "package": metadata.version("agent-saga-core"),
        "guarantees": [*stated("agent_saga"), *map(dict, plugins)],
        "not_claimed": [dict(entry) for entry in data["not_claimed"]],
    }


def stated(package: str) -> list[dict[str, Any]]:
    """Return the guarantees that a package states in its own `guarantees.toml`.

    Args:
        package: its import name.

    Raises:
        OSError, ValueError, KeyError: there is no such file, or it cannot be read.
    """
    entries = _read(package)["guarantee"]
    return [{key: entry[key] for key in _SHOWN if key in entry} for entry in entries]


def _read(package: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - slow to load, seldom needed

    return tomllib.loads(resources.files(package).joinpath("guarantees.toml").read_text("utf-8"))

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
    import tomllib  # noqa: PLC0415 - slow to load, seldom needed

    text = resources.files("agent_saga").joinpath("guarantees.toml").read_text("utf-8")
    data = tomllib.loads(text)
    own = [{key: entry[key] for key in _SHOWN if key in entry} for entry in data["guarantee"]]
    return {
        "version": data["version"],
        "package": metadata.version("agent-saga-core"),
        "guarantees": [*own, *[dict(entry) for entry in process_plugins().guarantees()]],
        "not_claimed": [dict(entry) for entry in data["not_claimed"]],
    }

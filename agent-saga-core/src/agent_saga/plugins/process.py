"""The one plugin manager of this process, made and loaded at the first question.

Built-in features are plugins like any other; the layers above put theirs into `BUILTINS` when they
are imported, before anything is asked.
"""

from __future__ import annotations

import threading
from typing import Final

from agent_saga.plugins.manager import PluginManager
from agent_saga.plugins.registry import Handler, process_handlers

BUILTINS: Final[dict[str, object]] = {}
"""The plugins that come with the core, by name."""

_lock = threading.Lock()
_made: list[PluginManager] = []


def process_plugins() -> PluginManager:
    """Return the plugin manager of this process."""
    with _lock:
        if not _made:
            _made.append(PluginManager(BUILTINS))
        return _made[0]


def compensator_named(name: str) -> Handler:
    """Return a registered inverse, asking installed plugins if the program has none of this name.

    Raises:
        UnknownHandler: nobody has it.
        PluginError: an installed plugin cannot be loaded.
    """
    handler = process_handlers().compensators.find(name)
    if handler is not None:
        return handler
    process_plugins().load()
    return process_handlers().compensators.get(name)

"""The core's own features as a plugin, like any other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from agent_saga.controls.notifiers.console import ConsoleNotifier
from agent_saga.plugins.markers import hookimpl
from agent_saga.plugins.process import BUILTINS
from agent_saga.state.address import BUILT_IN as STATE_SCHEMES
from agent_saga.wal.address import BUILT_IN as WAL_SCHEMES

if TYPE_CHECKING:
    from agent_saga.plugins.backends import BackendRegistry
    from agent_saga.plugins.tellers import TellerRegistry


@hookimpl
def saga_register_backends(registry: BackendRegistry) -> None:
    """Register the backends of the core: files and memory."""
    for scheme, opener in WAL_SCHEMES.items():
        registry.add_wal(scheme, opener)
    for scheme, factory in STATE_SCHEMES.items():
        registry.add_state(scheme, factory)


@hookimpl
def saga_register_approval_notifiers(registry: TellerRegistry) -> None:
    """Register the notifiers of the core that need no address."""
    registry.add("console", ConsoleNotifier)


def register() -> None:
    """Put this plugin among those that come with the core."""
    BUILTINS.setdefault("agent-saga-core", sys.modules[__name__])


register()

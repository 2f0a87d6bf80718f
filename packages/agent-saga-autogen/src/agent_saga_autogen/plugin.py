"""Says that this package is here; found through the entry point group `agent_saga`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.kit.frameworks.versions import text
from agent_saga.plugins.markers import hookimpl
from agent_saga_autogen.versions import RANGES

if TYPE_CHECKING:
    from agent_saga.plugins.integrations import IntegrationRegistry


@hookimpl
def saga_register_integrations(registry: IntegrationRegistry) -> None:
    """Register AutoGen and the range of its versions, without importing it."""
    registry.add(
        "autogen",
        package="agent_saga_autogen",
        supports=f"autogen-core{text(RANGES['autogen-core'])}",
    )

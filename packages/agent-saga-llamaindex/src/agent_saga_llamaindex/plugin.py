"""Says that this package is here; found through the entry point group `agent_saga`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.kit.frameworks.versions import text
from agent_saga.plugins.markers import hookimpl
from agent_saga_llamaindex.versions import RANGES

if TYPE_CHECKING:
    from agent_saga.plugins.integrations import IntegrationRegistry


@hookimpl
def saga_register_integrations(registry: IntegrationRegistry) -> None:
    """Register LlamaIndex and the range of its versions, without importing it."""
    registry.add(
        "llamaindex",
        package="agent_saga_llamaindex",
        supports=f"llama-index-core{text(RANGES['llama-index-core'])}",
    )


@hookimpl
def saga_guarantees() -> list[dict[str, Any]]:
    """Return what this package guarantees; its `guarantees.toml` says what keeps it."""
    from agent_saga.kit.guarantees import stated  # noqa: PLC0415 - seldom needed

    return stated("agent_saga_llamaindex")

"""The door to `agent_saga_autogen`, the package for AutoGen."""

from __future__ import annotations

from agent_saga.plugins.door import open_door

__getattr__, __dir__, __all__ = open_door(__name__)

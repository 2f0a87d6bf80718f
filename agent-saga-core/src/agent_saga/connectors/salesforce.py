"""The door to a connector for Salesforce, which is not released yet; see `plugins.door`."""

from __future__ import annotations

from agent_saga.plugins.door import open_door

__getattr__, __dir__, __all__ = open_door(__name__, unreleased="Salesforce")

"""Errors that the author of a program mends: a tool, kit, gate, log or plugin set up wrongly."""

from __future__ import annotations

from agent_saga.errors.root import AgentSagaError

__all__ = [
    "ConfigurationError",
    "DuplicateName",
    "NotRecordable",
    "PluginError",
    "SecretLeak",
    "ToolNotAwaited",
    "UndeclaredSemantics",
    "UndeclaredTool",
    "UnknownHandler",
]


class ConfigurationError(AgentSagaError):
    """A tool, kit, gate or log is set up in a way that cannot work."""

    code = "SAGA-100"


class UndeclaredSemantics(ConfigurationError):
    """A tool was wrapped without saying what its effect is."""

    code = "SAGA-101"


class UndeclaredTool(ConfigurationError):
    """An agent has tools that nobody declared to agent-saga."""

    code = "SAGA-102"


class UnknownHandler(ConfigurationError):
    """An inverse names a handler that is not registered in this process."""

    code = "SAGA-103"


class DuplicateName(ConfigurationError):
    """Two parts of the program registered the same name."""

    code = "SAGA-104"


class PluginError(ConfigurationError):
    """A plugin cannot be loaded, or misuses a hook."""

    code = "SAGA-105"


class SecretLeak(ConfigurationError):
    """Something that looks like a secret was about to be written to the log."""

    code = "SAGA-106"


class NotRecordable(ConfigurationError):
    """A value cannot be carried by the log exactly."""

    code = "SAGA-107"


class ToolNotAwaited(ConfigurationError):
    """A tool call in an async boundary was created and never awaited, so it did not run."""

    code = "SAGA-108"

"""The commands that come with the core, registered as a plugin like any other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from agent_saga.plugins.markers import hookimpl
from agent_saga.plugins.process import BUILTINS
from agent_saga.runtime import builtin as _core  # noqa: F401 - registers the core's own features

if TYPE_CHECKING:
    from agent_saga.plugins.commands import CommandRegistry

COMMANDS: Final = {
    "doctor": "Check this installation: Python, plugins, settings, the log's folder.",
    "verify": "Check that the log is as it was written.",
    "guarantees": "Print what agent-saga guarantees, and what it does not claim.",
    "recover": "Undo what dead processes left, once.",
    "undo": "Undo a saga that was committed.",
    "queue": "Show and settle what needs a human.",
    "approvals": "Show what waits for a human's approval, and answer it.",
    "halt": "Stop forward steps: everything, one tool, a family of tools, or a tag.",
    "resume": "Lift a halt, or take a saga out of quarantine.",
    "quarantine": "Stop one saga: its steps, its inverses, and recovery of it.",
    "limits": "Show how much of each budget and rate is used.",
    "breaker": "Show the breakers of tools that keep failing, and close one by hand.",
    "list": "List the sagas of a log and where each stands.",
    "status": "Tell how the log, its writers, its sagas and their recovery stand now.",
    "show": "Tell the story of one saga: its steps, their inverses, what stands.",
}
"""Each command, in a module of its name, with its line of help."""


@hookimpl
def saga_register_commands(registry: CommandRegistry) -> None:
    """Register the commands that come with the core."""
    for name, summary in COMMANDS.items():
        registry.add(name, f"agent_saga.cli.commands.{name}:command", summary=summary)


BUILTINS["agent-saga-commands"] = sys.modules[__name__]

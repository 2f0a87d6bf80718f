"""The group of commands, each loaded when somebody types it.

Rules of this part:

- The commands of the core are found without loading any plugin, so that a broken plugin cannot keep
  a person from looking at the log. For every other command the plugins are loaded first.
- The list of commands is printed from the registry alone; no command's module is imported for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from agent_saga.cli.builtin import saga_register_commands
from agent_saga.errors import AgentSagaError, PluginError
from agent_saga.plugins.commands import CommandRegistry
from agent_saga.plugins.process import process_plugins

if TYPE_CHECKING:
    from agent_saga.plugins.commands import CommandAddress

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """A click group whose commands come from the plugins."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(_all_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None when there is none of this name.

        Raises:
            PluginError: a plugin cannot be loaded, or its command is not where it said.
        """
        address = _own_commands().find(cmd_name)
        if address is None:
            manager = process_plugins()
            manager.load()
            address = manager.commands.find(cmd_name)
        return None if address is None else _imported(cmd_name, address)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands with one line about each."""
        registry = _all_commands()
        rows = [(name, registry.as_mapping()[name].summary) for name in registry]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _own_commands() -> CommandRegistry:
    registry = CommandRegistry()
    saga_register_commands(registry)
    return registry


def _all_commands() -> CommandRegistry:
    manager = process_plugins()
    try:
        manager.load()
    except AgentSagaError as error:
        click.echo(f"Only the core's commands are listed: {error}", err=True)
        return _own_commands()
    return manager.commands


def _imported(name: str, address: CommandAddress) -> click.Command:
    try:
        command = getattr(importlib.import_module(address.module), address.attribute)
    except (ImportError, AttributeError) as error:
        raise PluginError(
            f"The command {name!r} cannot be loaded from {address}: {error}"
        ) from error
    if not isinstance(command, click.Command):
        raise PluginError(f"{address} is no click command.")
    return command

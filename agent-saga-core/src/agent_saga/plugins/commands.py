"""Commands of the `agent-saga` program that plugins bring, loaded when they are run.

A command is registered by the address of its click command, "package.module:attribute", so that no
plugin imports click, or its own heavy parts, before somebody types the command.
"""

from __future__ import annotations

from agent_saga.errors import ConfigurationError
from agent_saga.plugins.named import NamedRegistry
from agent_saga.plugins.ownership import Owner

__all__ = ["CommandAddress", "CommandRegistry"]


class CommandAddress:
    """Where a command is found, and one line about it.

    Attributes:
        module: the module to import.
        attribute: the name of the click command in it.
        summary: one line for the help text.
    """

    __slots__ = ("attribute", "module", "summary")

    def __init__(self, module: str, attribute: str, summary: str) -> None:
        self.module = module
        self.attribute = attribute
        self.summary = summary

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandAddress) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


class CommandRegistry(NamedRegistry[CommandAddress]):
    """The commands by the name that a person types."""

    def __init__(self) -> None:
        super().__init__("command")

    def add(self, name: str, address: str, *, summary: str) -> None:
        """Register a command.

        Args:
            name: the word after `agent-saga`.
            address: "package.module:attribute" of a click command.
            summary: one line for the help text.

        Raises:
            ConfigurationError: the address has another form.
            DuplicateName: another command has this name; the message names both owners.
        """
        module, colon, attribute = address.partition(":")
        if not (colon and attribute.isidentifier() and module):
            raise ConfigurationError(
                f"{address!r} is no address of a command.", fix='Use "package.module:attribute".'
            )
        self.put(name, CommandAddress(module, attribute, summary), Owner(module))

"""Framework integrations and connectors that are installed, for `agent-saga doctor`."""

from __future__ import annotations

from agent_saga.plugins.named import NamedRegistry
from agent_saga.plugins.ownership import Owner

__all__ = ["Integration", "IntegrationRegistry"]


class Integration:
    """What a package integrates with.

    Attributes:
        name: the framework's or vendor's name, for example "langgraph".
        package: the integration's import name.
        supports: the supported range of the framework's versions, as text.
    """

    __slots__ = ("name", "package", "supports")

    def __init__(self, name: str, package: str, supports: str) -> None:
        self.name = name
        self.package = package
        self.supports = supports

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Integration) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, str]:
        return self.name, self.package, self.supports


class IntegrationRegistry(NamedRegistry[Integration]):
    """The installed integrations, by name."""

    def __init__(self) -> None:
        super().__init__("integration")

    def add(self, name: str, *, package: str, supports: str = "") -> None:
        """Register an integration.

        Args:
            name: the framework's or vendor's name.
            package: the integration's import name.
            supports: the supported range of the framework's versions, as text.

        Raises:
            DuplicateName: another package integrates the same name.
        """
        self.put(name, Integration(name, package, supports), Owner(package))

"""Ways to tell people of a request for approval, by name."""

from __future__ import annotations

from typing import Any

from agent_saga.errors import ConfigurationError
from agent_saga.plugins.named import NamedRegistry
from agent_saga.plugins.ownership import owner_of

__all__ = ["TellerRegistry"]


class TellerRegistry(NamedRegistry[Any]):
    """Notifiers by the name that `ApprovalGateway(notifier="…")` gives."""

    def __init__(self) -> None:
        super().__init__("approval notifier")

    def add(self, name: str, notifier: Any) -> None:
        """Register a notifier: an object with `notify(notice)`, or a function that makes one.

        Raises:
            ConfigurationError: it is neither, or the name cannot be used.
            DuplicateName: another notifier has this name; the message names both owners.
        """
        if not callable(notifier) and not callable(getattr(notifier, "notify", None)):
            raise ConfigurationError(f"The notifier {name!r} has no `notify` method.")
        made = notifier if callable(notifier) else type(notifier)
        self.put(name, notifier, owner_of(made))

    def made(self, name: str) -> Any:
        """Return the notifier of a name.

        Raises:
            ConfigurationError: there is none, or what was registered makes none.
        """
        found = self.find(name)
        if found is None:
            known = ", ".join(self) or "none"
            raise ConfigurationError(
                f"No notifier is named {name!r}.",
                fix=f"Registered are: {known}. Install the plugin that brings it.",
            )
        ready = not isinstance(found, type) and callable(getattr(found, "notify", None))
        notifier = found if ready else found()
        if not callable(getattr(notifier, "notify", None)):
            raise ConfigurationError(f"What is registered as {name!r} makes no notifier.")
        return notifier

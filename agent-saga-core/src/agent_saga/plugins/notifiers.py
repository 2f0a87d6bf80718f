"""Notifiers: who is told when a saga becomes a human's case.

A notifier is a plain function that takes one `Case`. It is called after the case is in the log,
on a thread of its own and for a bounded time, once for each case as far as can be told: if it
raises, does not end in time, or the process dies before that is noted, it is called again later.
What it does changes nothing about the case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from agent_saga.errors import ConfigurationError
from agent_saga.plugins.callables import is_async_callable
from agent_saga.plugins.named import NamedRegistry
from agent_saga.plugins.ownership import owner_of

__all__ = ["Case", "Notifier", "NotifierRegistry", "check_notifier"]


class Case(NamedTuple):
    """A saga that needs a human.

    Attributes:
        saga, name: which saga.
        state: where it stands, for example "STUCK".
        reason: why it needs a human, in words.
        began, last: times of its first and last record, in microseconds since the epoch.
        log: the path of its log.
        next: the command that shows what to do.
    """

    saga: str
    name: str
    state: str
    reason: str
    began: int
    last: int
    log: str
    next: str


Notifier = Callable[[Case], object]

_FIX: Final = "Give a plain function; it runs on a thread of its own and may wait."


def check_notifier(name: str, notifier: Notifier) -> None:
    """Refuse what tells nobody when it is called.

    Raises:
        ConfigurationError: it cannot be called, or is asynchronous.
    """
    if not callable(notifier):
        raise ConfigurationError(f"A notifier is a function, not {notifier!r}.")
    if is_async_callable(notifier):
        raise ConfigurationError(
            f"The notifier {name!r} is asynchronous, and nothing would await it.", fix=_FIX
        )


class NotifierRegistry(NamedRegistry[Notifier]):
    """The notifiers of this process, by name."""

    def __init__(self) -> None:
        super().__init__("notifier")

    def add(self, name: str, notifier: Notifier) -> None:
        """Register a notifier.

        Args:
            name: its name; what was told to whom is kept under it, so do not change it.
            notifier: a plain function that takes a `Case`.

        Raises:
            ConfigurationError: it cannot be called, or is asynchronous.
            DuplicateName: another notifier has this name; the message names both owners.
        """
        check_notifier(name, notifier)
        self.put(name, notifier, owner_of(notifier))

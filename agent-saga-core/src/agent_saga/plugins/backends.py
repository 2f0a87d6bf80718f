"""Backends of the log and of the state store, by the scheme of their address."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent_saga.errors import ConfigurationError
from agent_saga.plugins.named import NamedRegistry
from agent_saga.plugins.ownership import owner_of

__all__ = ["BackendRegistry"]

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+")
Factory = Callable[..., Any]


class BackendRegistry:
    """For each scheme (`file`, `memory`, …) the factory that opens an address.

    A factory gets the whole address and returns an open backend, which states itself what it can
    do.
    """

    def __init__(self) -> None:
        self._wal: NamedRegistry[Factory] = NamedRegistry("WAL backend")
        self._state: NamedRegistry[Factory] = NamedRegistry("state backend")

    def add_wal(self, scheme: str, factory: Factory) -> None:
        """Register the factory of a log under a scheme.

        Raises:
            DuplicateName: another factory has this scheme; the message names both owners.
            ConfigurationError: the scheme is not one.
        """
        self._wal.put(_scheme(scheme), factory, owner_of(factory))

    def add_state(self, scheme: str, factory: Factory) -> None:
        """Register the factory of a state store under a scheme.

        Raises:
            DuplicateName: another factory has this scheme; the message names both owners.
            ConfigurationError: the scheme is not one.
        """
        self._state.put(_scheme(scheme), factory, owner_of(factory))

    @property
    def wal(self) -> Mapping[str, Factory]:
        """The factories of logs by scheme, read-only."""
        return self._wal.as_mapping()

    @property
    def state(self) -> Mapping[str, Factory]:
        """The factories of state stores by scheme, read-only."""
        return self._state.as_mapping()


def _scheme(scheme: str) -> str:
    if not _SCHEME.fullmatch(scheme):
        raise ConfigurationError(
            f"{scheme!r} cannot be a scheme.",
            fix="Use two or more lower-case letters, without the colon.",
        )
    return scheme

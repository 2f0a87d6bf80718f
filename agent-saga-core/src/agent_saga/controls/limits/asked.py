"""What a call asks of one shared count, and what it took of it.

Rules of this part:

- A scope is told by its digest, as long as it may be; people read it without secrets.
"""

from __future__ import annotations

import functools
from hashlib import sha256
from typing import Final

from msgspec import Struct

from agent_saga.controls.amounts import Number, text_of
from agent_saga.controls.limits.limit import Limit
from agent_saga.wal.encoding import Fragment, decode, listed, masked

__all__ = ["PREFIX", "Asked", "SharedTaken", "asking", "name_of", "told"]

PREFIX: Final = "limit/"
"""How the keys of counts begin."""


class SharedTaken(Struct, frozen=True):
    """What a call took from one count; None is an amount that may have been taken."""

    key: str
    amount: Number | None
    window: float
    scope: str


class Asked(Struct, frozen=True):
    """What a call asks of one count; `label` is its scope as people may read it."""

    key: str
    limit: Limit
    scope: str
    amount: Number
    label: str

    @property
    def taken(self) -> SharedTaken:
        """What the call holds once it was taken."""
        return SharedTaken(self.key, self.amount, self.limit.window, self.label)


def asking(limit: Limit, scope: str, amount: Number) -> Asked:
    """Return what a call asks of the count that a limit has for a scope."""
    return Asked(_key(limit.name, scope), limit, scope, amount, _label(scope))


@functools.lru_cache(maxsize=1024)
def told(taken: tuple[SharedTaken, ...]) -> Fragment:
    """Return what was taken as an announcement carries it; kept, since many calls take the same."""
    return listed([_as_record(one) for one in taken])


@functools.lru_cache(maxsize=1024)
def _as_record(one: SharedTaken) -> Fragment:
    amount = "" if one.amount is None else text_of(one.amount)
    return masked([one.key, amount, one.window, one.scope])[0]


def name_of(saga: str, step: str, generation: int) -> str:
    """Return the name under which a call holds what it took."""
    return f"{saga}:{step}:{generation}"


@functools.lru_cache(maxsize=4096)
def _label(scope: str) -> str:
    """Return a scope as people may read it: without secrets."""
    return str(decode(masked(scope)[0])) if scope else ""


@functools.lru_cache(maxsize=4096)
def _key(limit: str, scope: str) -> str:
    digest = sha256(scope.encode("utf-8", "surrogatepass")).hexdigest()[:32] if scope else ""
    return f"{PREFIX}{limit}/{digest}"

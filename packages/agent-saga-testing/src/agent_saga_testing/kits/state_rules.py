"""The rules and processes that the state kit runs; importable, so that other processes can."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agent_saga.state import claims
from agent_saga.state.base import Change, Doc, Docs, StateStore, one

__all__ = [
    "EXACT",
    "Opener",
    "claim_in_turn",
    "count_up",
    "count_up_often",
    "hold_a_rule",
    "move",
    "put",
    "raise_often",
    "store_then_wait",
]

Opener = Callable[[], StateStore]

EXACT = {
    "text": 'naïve ☃ \U0001f600 \x00 \n " \\ ',
    "numbers": [0, -1, 2**53, -(2**53), 0.1, 1e300, -0.5],
    "nested": {"a": [{"b": None}, [], {}], "": True, "false": False},
}
"""A document that holds whatever a document may hold."""


def put(_docs: Docs, **values: Doc | None) -> Change[None]:
    """Store the given documents, whatever stood there."""
    return Change(None, values)


def count_up(docs: Docs) -> Change[int]:
    """Add one to the counter and answer with it."""
    count = (docs["counter"] or {"n": 0})["n"] + 1
    return Change(count, {"counter": {"n": count}})


def move(docs: Docs) -> Change[bool]:
    """Move one from `left` to `right`, unless `left` is empty."""
    left, right = docs["left"], docs["right"]
    if not left or not right or left["n"] == 0:
        return Change(False)
    return Change(True, {"left": {"n": left["n"] - 1}, "right": {"n": right["n"] + 1}})


def count_up_often(opener: Opener, times: int, durable: bool) -> list[int]:
    """Count up in this process and return the answers."""
    with opener() as store:
        return [store.transact(["counter"], count_up, durable=durable) for _ in range(times)]


def raise_often(opener: Opener, owner: str, until: int) -> list[int]:
    """Raise the epoch of one saga, against whoever else does, up to `until`; return those won."""
    won = []
    seen = claims.FIRST_EPOCH
    with opener() as store:
        while seen < until:
            claim = claim_in_turn(store, owner, seen)
            if claim.granted:
                won.append(claim.epoch)
            seen = claim.epoch
    return won


def claim_in_turn(store: StateStore, owner: str, seen: int) -> claims.Claim:
    """Try once to raise the epoch of the saga that the kit races for."""
    key = claims.claim_key("raced")
    return store.transact([key], one(key, partial(claims.raise_epoch, owner=owner, seen=seen)))


def store_then_wait(opener: Opener, marker: str, durable: bool) -> None:
    """Store a document, say so with a marker file, and wait to be killed."""
    store = opener()
    store.transact(["kept"], partial(put, kept={"by": os.getpid()}), durable=durable)
    Path(marker).touch()
    threading.Event().wait()


def hold_a_rule(opener: Opener, marker: str) -> None:
    """Begin a transaction whose rule never ends, and say so with a marker file."""

    def never_ends(_docs: Docs) -> Change[Any]:
        Path(marker).touch()
        threading.Event().wait()
        return Change(None, {"counter": {"n": -1}})

    opener().transact(["counter"], never_ends, timeout=3600)

"""Who is who: saga ids, step keys, step ids and idempotency keys.

Rules of this part:

- A saga id is 12 random bytes; a step id is the first 16 bytes of SHA-256 over (saga id, step key):
  the same in every process, found in the log, never minted anew.
- An idempotency key is SHA-256, in hex, over saga id, step id, generation and purpose. It is the
  same across retries, processes, hosts and restarts, and differs between forward, inverse and
  fallback.
- All parts are length-prefixed before they are hashed: joining with a separator, or with nothing,
  lets two different steps collide.
- A derived step key is (scope path, tool, ordinal of this tool in this scope); a given one is
  marked as such, so that the two never meet.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from binascii import b2a_base64
from hashlib import sha256
from typing import Final

FORWARD: Final = "forward"
INVERSE: Final = "inverse"
FALLBACK: Final = "fallback"

_TO_URL: Final = bytes.maketrans(b"+/", b"-_")

StepKey = tuple[str, ...]


def new_saga_id() -> str:
    """Return a new saga id: 16 characters, safe in file names, addresses and on command lines."""
    while True:
        saga = urlsafe_b64encode(os.urandom(12)).decode("ascii")
        if not saga.startswith("-"):  # it would read as an option
            return saga


def derived_key(path: tuple[str, ...], tool: str, ordinal: int) -> StepKey:
    """Return the key of the ordinal-th call of a tool in a scope (counted from 1)."""
    return ("derived", *path, tool, str(ordinal))


def given_key(path: tuple[str, ...], tool: str, key: str) -> StepKey:
    """Return the key of a step that its caller named."""
    return ("given", *path, tool, key)


def joined(parts: tuple[str, ...]) -> bytes:
    """Return the parts as bytes, each behind its length: no two tuples give the same bytes."""
    chunks = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join([b"%d:%b" % (len(chunk), chunk) for chunk in chunks])


def step_id(saga: str, key: StepKey) -> str:
    """Return the step id: 22 characters, the same wherever it is computed."""
    return _short(joined((saga, *key)))


def _short(data: bytes) -> str:
    text = b2a_base64(sha256(data).digest()[:16], newline=False)
    return text[:22].translate(_TO_URL).decode()


def saga_id_of(key: str) -> str:
    """Return the saga id that belongs to an id of the user's own: always the same one."""
    text = urlsafe_b64encode(sha256(joined(("saga", key))).digest()[:12]).decode("ascii")
    return f"0{text[1:]}" if text.startswith("-") else text


class Ordinals:
    """The derived keys of one tool in one scope, one after the other.

    Args:
        saga, path, tool: what they share; it is worked out once.
    """

    __slots__ = ("_count", "_joined", "_shared")

    def __init__(self, saga: str, path: tuple[str, ...], tool: str) -> None:
        self._shared = derived_key(path, tool, 0)[:-1]
        self._joined = joined((saga, *self._shared))
        self._count = 0

    def go_on_after(self, ordinal: int) -> None:
        """Skip the ordinals that a recorded run has used."""
        self._count = max(self._count, ordinal)

    @property
    def count(self) -> int:
        """How many calls were counted, or skipped."""
        return self._count

    def take(self, number: int | None = None) -> tuple[StepKey, str]:
        """Return the `derived_key` of the call of this number, else of the next; its `step_id`."""
        if number is None:
            self._count = number = self._count + 1
        ordinal = str(number)
        digest = sha256(b"%b%d:%d" % (self._joined, len(ordinal), number)).digest()
        text = b2a_base64(digest[:16], newline=False)  # as `step_id` does, once for each step
        return (*self._shared, ordinal), text[:22].translate(_TO_URL).decode()


def idempotency_key(saga: str, step: str, generation: int, purpose: str) -> str:
    """Return the key that a provider is given: 64 hexadecimal characters."""
    number = str(generation)
    text = f"{len(saga)}:{saga}{len(step)}:{step}{len(number)}:{number}{len(purpose)}:{purpose}"
    data = text.encode() if text.isascii() else joined((saga, step, number, purpose))
    return sha256(data).hexdigest()  # ids are ASCII: as many characters as bytes

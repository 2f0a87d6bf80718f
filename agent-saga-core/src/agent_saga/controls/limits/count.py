"""One shared count as a document: the window, its time axis, and what is held by name.

Rules of this part:

- What a call takes stands in the window at once, and is *held* under the call's name until its
  announcement is known to be out. Only what is held can be handed back, and taking it again under
  the same name takes nothing: so a repetition is harmless.
- Limits of one name share a count, also when their windows differ, as those of a new policy and of
  processes that still have the old one. What is kept is kept for the longest of them, until nobody
  has asked with that one for as long as it is; each adds up what lies within its own.
- What is held by a dead process without an announcement is handed back; see `upkeep`. A read has no
  announcement, so what it took stays; and so does a lease, of which nobody knows what was spent.
- Amounts beyond what every reader of JSON carries are texts. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_saga.controls.amounts import Number, number_of, text_of
from agent_saga.controls.limits.moments import Axis, Moment
from agent_saga.controls.limits.window import Packed, Window
from agent_saga.errors import StateError
from agent_saga.state.document import Doc

__all__ = ["LEASE", "Count"]

LEASE: Final = "lease/"
"""How the names of leases begin; those of calls begin with the id of a saga."""

_EXACT: Final = 2**53


class Count:
    """One count of a state store.

    Args:
        doc: the stored document; None where nothing was counted yet.
        now: what the clocks say.
        length: the window in seconds of the limit that asks; the stored one when not given.

    Raises:
        StateError: the document cannot be understood.

    Attributes:
        window: the counting.
        length: the seconds for which an amount is kept. wanted: when that was last asked for.
        axis: where its time stands.
        held: by a call's name: the entry, the amount, the writer, and whether it stays in any case.
        about: what people are told: limit, scope, most.
    """

    __slots__ = ("_own", "about", "axis", "held", "length", "wanted", "window")

    def __init__(self, doc: Doc | None, now: Moment, length: float | None = None) -> None:
        if doc is None:
            self.window = Window()
            self.axis = Axis(0.0, *now)
            self.held: dict[str, list[Any]] = {}
            self.about: dict[str, Any] = {}
            self.length = self._own = length or 0.0
            self.wanted = 0.0
            return
        try:
            self._read(doc, now, length)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise StateError(
                f"A count of a limit cannot be understood ({error!r}).",
                fix="Its calls are refused; look who can write the state store.",
            ) from error

    def _read(self, doc: Doc, now: Moment, length: float | None) -> None:
        self.window = Window(
            _number(doc["total"]),
            doc["base"],
            doc["start"],
            doc["ends"],
            [_number(amount) for amount in doc["amounts"]],
            Packed(*doc["packed"]),
        )
        self.axis = Axis(*doc["axis"]).advanced(now)
        self.held = dict(doc["held"])
        self.about = dict(doc["about"])
        self.length, self.wanted = float(doc["window"]), float(doc["wanted"])
        self._own = length or self.length
        over = self.axis.now - self.wanted >= self.length
        if length is not None and (length >= self.length or over):
            self.length, self.wanted = length, self.axis.now
        self.window.prune(self.length, self.axis.now)

    @property
    def used(self) -> Number:
        """What lies within the window of the limit that asks."""
        whole = self._own == self.length
        return self.window.total if whole else self.window.within(self._own, self.axis.now)

    def take(self, name: str, amount: Number, writer: str, *, stays: bool) -> None:
        """Count an amount for a call, once; who asks again is who holds it from then on."""
        held = self.held.get(name)
        if held is not None:
            held[2] = writer
            return
        entry = self.window.take(amount, self.length, self.axis.now)
        self.held[name] = [entry, _plain(amount), writer, stays]

    def add(self, amount: Number, age: float) -> None:
        """Count an amount that was let through so many seconds ago."""
        self.window.take(amount, self.length, self.axis.now - age)

    def give_back(self, name: str) -> None:
        """Hand back what a call took, if it is held."""
        held = self.held.pop(name, None)
        if held is not None:
            self.window.give_back(held[0], _number(held[1]))

    def settle(self, name: str) -> None:
        """Let what a call took be counted without its name."""
        self.held.pop(name, None)

    def lease(self, name: str, amount: int, writer: str, lasts: float) -> None:
        """Count an amount that may be spent during so many seconds, as if it were at their end."""
        entry = self.window.take(amount, self.length, self.axis.now + lasts)
        self.held[name] = [entry, _plain(amount), writer, True]

    def end_lease(self, name: str, left: Number, named: Mapping[str, tuple[Number, bool]]) -> None:
        """Hand back what is left of a lease, once; what calls took of it is held by their names."""
        held = self.held.pop(name, None)
        if held is not None:
            entry, _, writer, _ = held
            self.window.give_back(entry, left)
            for call, (amount, stays) in named.items():
                self.held[call] = [entry, _plain(amount), writer, stays]

    def forget_old_names(self) -> None:
        """Drop the names of what has left the window."""
        if self.held:
            base = self.window.base
            self.held = {name: held for name, held in self.held.items() if held[0] >= base}

    def document(self) -> Doc | None:
        """Return what to store; None when there is nothing left to count."""
        self.forget_old_names()
        window = self.window
        if not window.ends:
            return None
        window.pack()
        return {
            "about": self.about,
            "window": self.length,
            "wanted": self.wanted,
            "axis": list(self.axis),
            "total": _plain(window.total),
            "base": window.base,
            "start": window.start,
            "ends": window.ends,
            "amounts": [_plain(amount) for amount in window.amounts],
            "packed": list(window.packed),
            "held": self.held,
        }


def _plain(number: Number) -> int | str:
    if type(number) is int and -_EXACT <= number <= _EXACT:
        return number
    return text_of(number)


def _number(value: int | str) -> Number:
    return value if type(value) is int else number_of(value)

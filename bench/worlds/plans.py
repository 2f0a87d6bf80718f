"""How the tools of a world are declared: one readable row for each.

Rules of this part:

- A row uses only the world's own tools, as whoever integrates it could. Nothing here reads a
  snapshot.
- `Read` changes nothing. `Left` changes something that nobody would miss or mind, and says what.
  `Write` can be undone. `Final` cannot: a human is asked before it.
- What an inverse leaves behind is declared as `traces`, one for each difference, with the arguments
  and the result of its own step in it. A difference outside of it is a fault of ours.
- `look` reads what a call will change. `effect` compares two looks and says whether the call
  happened, and with what result: that is the prober, of a call that can be undone and of one that
  cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from typing import Final as Constant

from bench.worlds.traces import Traces
from bench.worlds.world import Args, Tools


class Missing:
    """No effect can be seen."""


class Unclear:
    """The world does not show whether there was an effect."""


MISSING: Constant = Missing()
UNCLEAR: Constant = Unclear()


@dataclass(frozen=True)
class Read:
    """The tool changes nothing."""


@dataclass(frozen=True)
class Left:
    """The tool changes something that nobody would miss.

    Attributes:
        trace: says what.
        named: only where the user named it; a human is asked about any other.
    """

    trace: Callable[[Args], Traces]
    named: bool = False


def _changed(args: Args, before: Any, now: Any) -> Any:
    return MISSING if before == now else None


def _nothing(args: Args, before: Any, result: Any) -> Traces:
    return ()


def _can(args: Args, before: Any) -> str:
    return ""


def _nowhere(args: Args, before: Any, now: Any) -> str:
    return ""


def leave(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Do nothing: no tool takes it back, and what is left is declared and harms nobody."""


@dataclass(frozen=True)
class Final:
    """Nothing can take the tool's effect back.

    Attributes:
        reason: why not.
        look: reads what the call will change; None if no tool shows it.
        effect: compares the look before with one of now: the result, MISSING or UNCLEAR.
        guarded: where the look's error says this, the call is refused, too: both ask the same.
    """

    reason: str
    look: Callable[[Tools, Args], Any] | None = None
    effect: Callable[[Args, Any, Any], Any] = _changed
    guarded: str = ""

    def now(self, tools: Tools, args: Args, before: Any) -> Any:
        """Look at what a look before saw."""
        del before
        assert self.look is not None
        return self.look(tools, args)

    def refuses(self, error: str) -> bool:
        """Say whether a call is refused, as the look before it was."""
        return bool(self.guarded) and self.guarded in error


@dataclass(frozen=True)
class Write:
    """The tool's effect can be taken back.

    Attributes:
        look: reads what the call will change.
        undo: takes the effect back; gets the tools, the arguments, the look before and the result.
        effect: compares the look before with one of now: the result, MISSING or UNCLEAR.
        trace: what the inverse leaves behind.
        needs: says from the look why the call could not be undone now; "" when it could.
        restores: after the inverse a look shows what it showed before; it is looked at.
        visible: some tool shows the effect, so that a lost answer can be settled.
        unshown: says from two looks why no tool shows it this time; "" when one does.
        harmless: the inverse needs no result and does no harm where nothing happened.
        again: the call itself does no harm when it is repeated.
        later: looks again, at what the first look saw, wherever the session has gone since.
        guarded: where the look's error says this, the call is refused, too: both ask the same.
    """

    look: Callable[[Tools, Args], Any]
    undo: Callable[[Tools, Args, Any, Any], None]
    effect: Callable[[Args, Any, Any], Any] = _changed
    trace: Callable[[Args, Any, Any], Traces] = _nothing
    needs: Callable[[Args, Any], str] = _can
    restores: bool = True
    visible: bool = True
    unshown: Callable[[Args, Any, Any], str] = _nowhere
    harmless: bool = False
    again: bool = False
    later: Callable[[Tools, Args, Any], Any] | None = None
    guarded: str = ""

    def now(self, tools: Tools, args: Args, before: Any) -> Any:
        """Look at what a look before saw."""
        return self.look(tools, args) if self.later is None else self.later(tools, args, before)

    def refuses(self, error: str) -> bool:
        """Say whether a call is refused, as the look before it was."""
        return bool(self.guarded) and self.guarded in error

    @property
    def always(self) -> bool:
        """It can always be undone."""
        return self.needs is _can


Plan = Read | Left | Final | Write


def row(table: Mapping[str, Plan], tool: str) -> Plan:
    """Return the row of a tool; what nobody looked at may do anything, and a human is asked."""
    return table.get(tool, UNKNOWN)


UNKNOWN: Constant = Final("nobody has declared what it does")

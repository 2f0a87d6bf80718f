"""How the tools of a world are declared: one readable row for each.

Rules of this part:

- A row uses only the world's own tools, as whoever integrates it could. Nothing here reads a
  snapshot.
- `Read` changes nothing. `Left` changes something that nobody would miss or mind, and says what.
  `Write` can be undone. `Final` cannot: a human is asked before it, and here nobody answers.
- What an inverse leaves behind is declared before the run, as paths into the state. A difference
  outside of it is a fault of ours.
- `look` reads what a call will change. `effect` compares two looks and says whether the call
  happened, and with what result: that is the prober.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Final as Constant

from bench.worlds.world import Args, Tools

Trace = Sequence[str]
"""Paths into the state, as `judging` names differences: parts joined by "/".

"*" stands for any one part, "**" for any rest; "+" and "-" come before what was added and removed.
"?field=value" at the end says what an added thing must look like.
"""


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
    """The tool changes something that nobody would miss; `trace` says what."""

    trace: Callable[[Args], Trace]


@dataclass(frozen=True)
class Final:
    """Nothing can take the tool's effect back."""

    reason: str


def _changed(args: Args, before: Any, now: Any) -> Any:
    return MISSING if before == now else None


def _nothing(args: Args, before: Any, result: Any) -> Trace:
    return ()


def _can(args: Args, before: Any) -> str:
    return ""


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
        harmless: the inverse needs no result and does no harm where nothing happened; so does the
            call itself when it is repeated.
    """

    look: Callable[[Tools, Args], Any]
    undo: Callable[[Tools, Args, Any, Any], None]
    effect: Callable[[Args, Any, Any], Any] = _changed
    trace: Callable[[Args, Any, Any], Trace] = _nothing
    needs: Callable[[Args, Any], str] = _can
    restores: bool = True
    visible: bool = True
    harmless: bool = False


Plan = Read | Left | Final | Write

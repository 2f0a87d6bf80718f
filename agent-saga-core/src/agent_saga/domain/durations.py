"""Spans of time that programs and people give, checked where they are given: one rule for all.

Rules of this part:

- A span is a finite number of seconds, above zero, or of zero where that has a meaning, and no
  longer than a clock, a timer and a record can hold. Anything else is refused by an error that
  names it and shows it shortened: what is refused may have thousands of digits.
- True is no number, and neither is a text.
"""

from __future__ import annotations

import math
from typing import Final

from agent_saga.errors import ConfigurationError

__all__ = ["ANSWER_WITHIN", "CENTURY", "YEAR", "at_most", "seconds", "shown"]

YEAR: Final = 366 * 86_400.0
CENTURY: Final = 100 * YEAR
"""The longest span anywhere: no timer overflows, and the log can tell the moment of its end."""

ANSWER_WITHIN: Final = 300.0
"""How long a human has to answer, where nobody says otherwise."""

_LEAST: Final = 1e-6
_SHOWN: Final = 60


def seconds(what: str, value: object, *, longest: float = YEAR, zero: bool = False) -> float:
    """Return a number of seconds above zero, or of zero where that has a meaning.

    Args:
        what: how the one who gave it calls it.
        value: what was given.
        longest: the longest span that has a meaning.
        zero: whether zero has one.

    Raises:
        ConfigurationError: it is no finite number, is out of range, or is too small to be told.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        least = 0 if zero and value == 0 else _LEAST
        if least <= value <= longest:  # no NaN, and no infinity
            return float(value)
    bound = "of zero or more" if zero else "above zero"
    raise ConfigurationError(
        f"{what} is a number of seconds {bound}, up to {longest:.0f}, not {shown(value)}."
    )


def at_most(what: str, value: object, longest: float = CENTURY) -> float:
    """Return a number of seconds above zero; what is longer is taken for the longest.

    Raises:
        ConfigurationError: it is no finite number above zero.
    """
    endless = isinstance(value, float) and not math.isfinite(value)
    beyond = isinstance(value, int | float) and value > longest
    return longest if beyond and not endless else seconds(what, value, longest=longest)


def shown(value: object) -> str:
    """Return a value as messages show it: short, whatever it is."""
    try:
        text = ascii(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"

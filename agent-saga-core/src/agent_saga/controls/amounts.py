"""Numbers as limits and rules read them: exact, finite, and of a size that can be carried.

Rules of this part:

- Whole numbers, decimals, fractions that are decimals, and texts that write one are read exactly; a
  float counts as the shortest decimal that stands for it. A bool, bytes, NaN, an infinity and
  whatever else are no number.
- Nothing is rounded. A number of more digits than `DIGITS` before or behind the point is refused,
  so that one value from a model cannot cost more than another.
- A whole number is an int, so that sums of whole amounts are quick.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Underflow
from typing import Final, TypeAlias

__all__ = ["DIGITS", "SMALL", "Number", "add", "amount_of", "number_of", "text_of"]

Number: TypeAlias = "int | Decimal"

DIGITS: Final = 40
"""The most digits on either side of the point."""

SMALL: Final = 2**53
"""Whole numbers below this, on either side of zero, are taken as they are."""

_BOUND: Final = 10**DIGITS
_WRITTEN: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_EXACT: Final = Context(
    prec=4 * DIGITS, traps=[Inexact, InvalidOperation, Overflow, Underflow], Emin=-999, Emax=999
)


def number_of(value: object) -> Number:
    """Return a value as an exact number.

    Raises:
        TypeError: it is of no kind that is a number.
        ValueError: it is not finite, writes no number, or has too many digits.
    """
    kind = type(value)
    if kind is int:
        whole: int = value  # type: ignore[assignment]
        return whole if -SMALL < whole < SMALL else _bounded(whole)
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is no number")
    if isinstance(value, int):
        return _bounded(int(value))
    if isinstance(value, float):
        return _decimal(Decimal(repr(float(value))))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, str):
        return _read(value)
    return _fraction(value)


def amount_of(value: object) -> Number:
    """Return a value as an exact number that is not below zero.

    Raises:
        TypeError, ValueError: as for `number_of`, or it is below zero.
    """
    number = number_of(value)
    if number < 0:
        raise ValueError(f"{_shown(value)} is below zero")
    return number


def add(one: Number, other: Number) -> Number:
    """Return the exact sum.

    Raises:
        ArithmeticError: it has more digits than can be carried.
    """
    if type(one) is int and type(other) is int:
        return one + other
    return _EXACT.add(Decimal(one), Decimal(other))


def text_of(number: Number) -> str:
    """Return a number as plain digits, which `number_of` reads back."""
    return str(number) if type(number) is int else format(number, "f")


def _read(text: str) -> Number:
    stripped = text.strip()
    if len(stripped) > 3 * DIGITS or not _WRITTEN.fullmatch(stripped):
        raise ValueError(f"{_shown(text)} is no number")
    return _decimal(Decimal(stripped))


def _decimal(value: Decimal) -> Number:
    if not value.is_finite():
        raise ValueError(f"{value} is not finite")
    if value and not (-DIGITS <= value.adjusted() < DIGITS):
        raise ValueError(f"{_shown(value)} has too many digits")
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -2 * DIGITS:
        raise ValueError(f"{_shown(value)} has too many digits")
    if value == value.to_integral_value(context=_EXACT):
        return int(value)
    return value.normalize(_EXACT)


def _fraction(value: object) -> Number:
    from fractions import Fraction  # noqa: PLC0415 - only whoever uses one has loaded it

    if not isinstance(value, Fraction):
        raise TypeError(f"a {type(value).__name__} is no number")
    try:
        return _decimal(_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)))
    except ArithmeticError as error:
        raise ValueError(f"{value} is no decimal number") from error


def _bounded(value: int) -> int:
    if not -_BOUND < value < _BOUND:
        raise ValueError("the number has too many digits")
    return value


def _shown(value: object) -> str:
    return repr(value)[:60]

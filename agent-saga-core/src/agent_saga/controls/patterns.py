"""Regular expressions that cannot stall the gate: what matching may cost is known beforehand.

Rules of this part:

- Python's `re` tries one way after another, holds the interpreter meanwhile, and cannot be stopped.
  So a pattern is weighed when it is given: how many steps a text of so many characters may take at
  most. One that may take too many for a short text is refused.
- A text that is longer than the pattern can be matched against in time is not matched: that raises,
  and what cannot be judged is refused.
- A text of several lines is not matched where the answer hangs on whether `.` takes a line break,
  which people seldom have in mind: a line break before a word must not hide it from `.*word.*`.
- The weight is an upper bound. Where the next character alone decides how to go on, there is one
  way; elsewhere the ways of a repeat, an alternative and what follows are multiplied. A repeat with
  several ways inside a repeat has as many as there are parts of the text, which is always too many;
  `++`, `*+` and `(?>…)` go one way only.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from agent_saga.controls import given
from agent_saga.errors import ConfigurationError

__all__ = ["Bounded", "Pattern", "bounded_schema"]

MOST_STEPS: Final = 10_000_000
"""How many steps one match may take: some tenths of a second."""

SHORTEST: Final = 64
"""A pattern that cannot be matched against so many characters in time is refused."""

_LONGEST: Final = 1 << 18
_LONGEST_PATTERN: Final = 10_000
_CAP: Final = 1 << 62
_ASCII: Final = "".join(map(chr, range(128)))
_DIGITS, _LETTERS, _SPACES, _REST = (1 << bit for bit in range(128, 132))
_BEYOND: Final = _DIGITS | _LETTERS | _SPACES | _REST
"""Characters beyond ASCII, one bit for each kind of them."""

_ALL: Final = (1 << 132) - 1
_LOWER: Final = sum(1 << ord(c) for c in "abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = _LOWER >> 32
_FOLDED: Final = sum(1 << ord(c) for c in "iIkKsS") | _LETTERS
"""Letters that equal another one beyond ASCII when case is ignored."""

_CATEGORIES: Final = {
    "CATEGORY_DIGIT": (r"\d", _DIGITS),
    "CATEGORY_NOT_DIGIT": (r"\D", _BEYOND & ~_DIGITS),
    "CATEGORY_SPACE": (r"\s", _SPACES),
    "CATEGORY_NOT_SPACE": (r"\S", _BEYOND & ~_SPACES),
    "CATEGORY_WORD": (r"\w", _DIGITS | _LETTERS),
    "CATEGORY_NOT_WORD": (r"\W", _SPACES | _REST),
}


class _Weight(Struct, frozen=True):
    """What a part of a pattern may do at one place of a text.

    Attributes:
        ways: in how many ways it may match so that what follows can begin.
        steps: how many steps all of them take together.
        first: the characters with which it may begin, one bit each; those beyond ASCII by kind.
        empty: it may match nothing.
        plain: each of its steps takes a character of the text.
    """

    ways: int
    steps: int
    first: int
    empty: bool
    plain: bool = True


_NOTHING: Final = _Weight(1, 1, 0, True)


class Pattern:
    """A regular expression whose cost is bounded.

    Args:
        text: the expression.

    Raises:
        ConfigurationError: it is none, or may take too long.
    """

    def __init__(self, text: str) -> None:
        given.words("A pattern", text, longest=_LONGEST_PATTERN)
        try:
            self._compiled = re.compile(text)
            self._across = re.compile(text, re.DOTALL)
            self.bound = Bounded.of([text], whole=True)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigurationError(
                f"{given.shown(text)} is no regular expression: {error}."
            ) from None

    def matches(self, text: str) -> bool:
        """Say whether it matches a text as a whole.

        Raises:
            ValueError: the text is longer than it can be matched against in time, or has several
                lines and the pattern does not say whether it goes across them.
        """
        self.bound.check(text)
        found = self._compiled.fullmatch(text) is not None
        if "\n" in text and self.hangs_on_lines(text, found=found):
            raise ValueError(
                "it has several lines, and the pattern does not say whether . goes across them: "
                "write (?s) before it, or (?-s:.) for one that does not"
            )
        return found

    def hangs_on_lines(self, text: str, *, found: bool) -> bool:
        """Say whether the answer about a text hangs on whether `.` takes a line break."""
        return found is not (self._across.fullmatch(text) is not None)


class Bounded(Struct, frozen=True):
    """Up to which length texts can be matched in time.

    Attributes:
        longest: how many characters.
    """

    longest: int

    @classmethod
    def of(cls, patterns: Sequence[str], *, whole: bool) -> Bounded:
        """Return up to which length a text can be matched against all of these.

        Args:
            patterns: the expressions.
            whole: they match the text as a whole; otherwise a part of it, wherever it begins.

        Raises:
            ConfigurationError: one may take too long.
            re.error, OverflowError, RecursionError: one is no regular expression.
        """
        longest = _LONGEST
        for pattern in patterns:
            parsed = _parsed(pattern)
            most = MOST_STEPS // len(patterns)
            while longest >= SHORTEST and _steps(parsed, longest, whole=whole) > most:
                longest //= 2
            if longest < SHORTEST:
                raise _endless(pattern)
        return cls(longest)

    def check(self, value: object) -> None:
        """Look through plain data for texts that are too long.

        Raises:
            ValueError: one is.
        """
        if isinstance(value, str):
            if len(value) > self.longest:
                raise ValueError(
                    f"a text of {len(value)} characters is too long for its pattern, which may "
                    f"take too many steps beyond {self.longest}"
                )
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self.check(key)
                self.check(item)
        elif isinstance(value, list | tuple | set | frozenset):
            for item in value:
                self.check(item)


def _endless(pattern: str) -> ConfigurationError:
    return ConfigurationError(
        f"The pattern {given.shown(pattern)} may take too long: it can go too many ways through a "
        f"text of {SHORTEST} characters, and nothing could stop it.",
        fix="Let a repeat inside a repeat, or two that take the same characters, go one way only: "
        "write a++ or (?>a+) for a+, or give the repeat a small bound.",
    )


def bounded_schema(schema: Mapping[str, Any]) -> Bounded | None:
    """Return up to which length texts can be checked by a JSON Schema; None without a pattern.

    Raises:
        ConfigurationError: one of them may take too long, or is no regular expression.
    """
    patterns = sorted(set(_patterns_in(schema)))
    try:
        return Bounded.of(patterns, whole=False) if patterns else None
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"A pattern of the schema cannot be used: {error}.") from None


def _patterns_in(schema: object) -> Iterable[str]:
    if isinstance(schema, Mapping):
        own, keyed = schema.get("pattern"), schema.get("patternProperties")
        if isinstance(own, str):
            yield own
        if isinstance(keyed, Mapping):
            yield from map(str, keyed)
        for part in schema.values():
            yield from _patterns_in(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _patterns_in(part)


# --- weighing ------------------------------------------------------------------------------------


def _parsed(pattern: str) -> tuple[Any, int]:
    """Return the parts of a pattern, and its flags.

    Raises:
        ConfigurationError: this Python does not tell them.
    """
    try:
        parser = importlib.import_module("re._parser")
        found = parser.parse(pattern)
        return found, int(found.state.flags)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"This Python does not tell what a pattern is made of ({error}), so what matching it "
            "costs is unknown."
        ) from error


def _steps(parsed: tuple[Any, int], length: int, *, whole: bool) -> int:
    parts, flags = parsed
    steps = _Scale(length).sequence(parts, 0 if whole else _ALL, flags).steps
    return steps if whole else steps * (length + 1)


class _Scale:
    """Weighs the parts of a pattern against texts of a length.

    Args:
        length: of the texts.
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def sequence(self, parts: Iterable[Any], follow: int, flags: int) -> _Weight:
        """Weigh parts that come one after another; `follow`: what may begin behind them."""
        whole = _NOTHING
        for operation, about in reversed(list(parts)):
            behind = whole.first | (follow if whole.empty else 0)
            one = self._part(str(operation), about, behind, flags)
            whole = _Weight(
                min(_CAP, one.ways * whole.ways),
                min(_CAP, one.steps + one.ways * whole.steps),
                one.first | (whole.first if one.empty else 0),
                one.empty and whole.empty,
                one.plain and whole.plain,
            )
        return whole

    def _part(self, operation: str, about: Any, follow: int, flags: int) -> _Weight:
        if operation in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return _Weight(1, 1, _characters(operation, about, flags), False)
        if operation == "AT":
            return _NOTHING
        inner = self._composed(operation, about, follow, flags)
        return inner or self._looking(operation, about, flags)

    def _composed(self, operation: str, about: Any, follow: int, flags: int) -> _Weight | None:
        if operation == "SUBPATTERN":
            _, more, less, inner = about
            return self.sequence(inner, follow, (flags | more) & ~less)
        if operation == "BRANCH":
            return self._either([self.sequence(one, follow, flags) for one in about[1]], follow)
        if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = about
            found = self._repeat(least, most, inner, follow, flags)
            return replace(found, ways=1) if operation == "POSSESSIVE_REPEAT" else found
        if operation == "ATOMIC_GROUP":
            return replace(self.sequence(about, follow, flags), ways=1)
        return None

    def _looking(self, operation: str, about: Any, flags: int) -> _Weight:
        """Weigh what looks elsewhere in the text: nothing can be told of what follows it."""
        if operation in ("ASSERT", "ASSERT_NOT"):
            steps = self.sequence(about[1], _ALL, flags).steps
        elif operation == "GROUPREF_EXISTS":
            parts = [self.sequence(one or (), _ALL, flags) for one in about[1:]]
            return replace(self._either(parts, _ALL), first=_ALL, empty=True, plain=False)
        else:
            steps = self._length  # a reference to a group, or what a later Python knows
        return _Weight(1, steps, _ALL, True, plain=False)

    def _either(self, parts: list[_Weight], follow: int) -> _Weight:
        first, decided = 0, True
        for part in parts:
            begins = part.first | (follow if part.empty else 0)
            decided = decided and not first & begins
            first |= begins
        ways = [part.ways for part in parts]
        return _Weight(
            max(ways) if decided else min(_CAP, sum(ways)),
            min(_CAP, sum(part.steps for part in parts) + len(parts)),
            first,
            any(part.empty for part in parts),
            all(part.plain for part in parts),
        )

    def _repeat(self, least: int, most: int, inner: Any, follow: int, flags: int) -> _Weight:
        begins = self.sequence(inner, _ALL, flags).first
        one = self.sequence(inner, begins | follow, flags)
        times = min(int(most), self._length + 1)
        if one.ways > 1 or one.empty:
            tried = _power(max(2, one.ways), times)
            steps = min(_CAP, tried * one.steps)
            return _Weight(tried, steps, one.first, least == 0 or one.empty, one.plain)
        decided = not one.first & follow or int(most) == int(least)
        # Where every step takes a character, all times together take the text once.
        once = self._length * len(inner) + one.steps if one.plain else times * (one.steps + 1)
        ways = 1 if decided else max(1, times - min(int(least), times) + 1)
        return _Weight(ways, min(_CAP, once), one.first, least == 0, one.plain)


def _power(base: int, exponent: int) -> int:
    return _CAP if exponent * base.bit_length() > 80 else min(_CAP, int(base**exponent))


def _characters(operation: str, about: Any, flags: int) -> int:
    """Return the characters that a part may take; see `_Weight.first`."""
    if operation == "ANY":
        return _ALL
    items = about if operation == "IN" else [(operation, about)]
    kinds = [str(kind) for kind, _ in items]
    negated = operation == "NOT_LITERAL" or "NEGATE" in kinds
    some = whole = 0
    for kind, (_, what) in zip(kinds, items, strict=True):
        if kind != "NEGATE":
            may, all_of_it = _members(kind, what, ascii_only=bool(flags & re.ASCII))
            some, whole = some | may, whole | all_of_it
    if flags & re.IGNORECASE:
        return _ALL if negated else _folded(some)
    return _ALL & ~whole if negated else some


def _members(kind: str, what: Any, *, ascii_only: bool) -> tuple[int, int]:
    """Return which characters may be among those of an item, and which are for certain."""
    if kind == "CATEGORY":
        found = _CATEGORIES.get(str(what))
        if found is None:
            return _ALL, 0
        shown, beyond = found
        bits = _bits(c for c in _ASCII if re.match(shown, c)) | (0 if ascii_only else beyond)
        bits |= _BEYOND if ascii_only and shown.isupper() else 0
        return bits, bits
    low, high = what if kind == "RANGE" else (what, what)
    exact = _bits(_ASCII[low : high + 1])
    if high < len(_ASCII):
        return exact, exact
    return exact | (_kind_of(chr(high)) if low == high else _BEYOND), exact


def _bits(characters: Iterable[str]) -> int:
    return sum(1 << ord(c) for c in characters)


def _kind_of(c: str) -> int:
    if c.isdecimal():
        return _DIGITS
    if c.isalnum():
        return _LETTERS
    return _SPACES if c.isspace() else _REST


def _folded(bits: int) -> int:
    """Return the characters that are the same as these when case is ignored."""
    both = bits | (bits & _UPPER) << 32 | (bits & _LOWER) >> 32
    return both | _FOLDED if both & _FOLDED else both

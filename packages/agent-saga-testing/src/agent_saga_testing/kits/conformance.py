"""What the kits have in common: cases that a backend's capabilities select, and a guard over them.

Rules of this part:

- A backend's test class subclasses a kit, declares `capabilities`, and gives a fixture that opens
  the backend. It adds cases freely; it does not take standard ones away.
- A case that needs a capability which the backend does not declare is not collected at all. Any
  other standard case that was removed or replaced needs an entry in `deviations` with the reason,
  or the guard fails.
"""

# ruff: noqa: S101 - the guard is a test

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pytest

__all__ = ["Conformance", "needs"]

F = TypeVar("F", bound=Callable[..., Any])

_GUARD = "test_every_standard_case_stands"


def needs(**capabilities: object) -> Callable[[F], F]:
    """Mark a case as applying only to backends with these capabilities.

    Args:
        capabilities: names and values, for example `multi_process=True`.
    """

    def mark(case: F) -> F:
        case.__dict__["needs"] = capabilities
        return case

    return mark


class Conformance:
    """The base of every kit.

    Attributes:
        capabilities: what the backend promises; a case that needs more does not apply.
        deviations: reasons by case name, for standard cases that this class removes or replaces.
    """

    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.conformance]
    capabilities: ClassVar[Any]
    deviations: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Leave out the cases that do not apply, and refuse to lose the guard."""
        super().__init_subclass__()
        if _GUARD in vars(cls):
            raise TypeError(f"{cls.__qualname__} replaces the guard over its kit's cases.")
        if hasattr(cls, "capabilities"):
            for name, case in standard_cases(cls).items():
                if name not in vars(cls) and not _applies(case, cls.capabilities):
                    setattr(cls, name, None)

    def test_every_standard_case_stands(self) -> None:
        """Fail if a standard case was removed or replaced without a reason."""
        lost = lost_cases(type(self))
        assert not lost, (
            f"{type(self).__qualname__} changes standard cases without a reason: {lost}"
        )

    def test_every_deviation_is_one(self) -> None:
        """Fail if a reason is given for a case that stands, does not exist, or gives no reason."""
        cls = type(self)
        idle = {
            name
            for name, reason in cls.deviations.items()
            if not reason.strip() or not _changed(cls, name, standard_cases(cls).get(name))
        }
        assert not idle, f"{cls.__qualname__} names deviations that are none: {sorted(idle)}"


def standard_cases(cls: type) -> dict[str, Callable[..., Any]]:
    """Return the cases of the kit that a test class is made of, by name."""
    ours = (__package__ or "").rpartition(".")[0] + "."
    found: dict[str, Callable[..., Any]] = {}
    for part in reversed(cls.__mro__):
        if part.__module__.startswith(ours):
            found.update((n, c) for n, c in vars(part).items() if n.startswith("test_"))
    return found


def lost_cases(cls: type[Conformance]) -> list[str]:
    """Return the names of standard cases that a class changes without giving a reason."""
    return sorted(
        name
        for name, case in standard_cases(cls).items()
        if name not in cls.deviations and _changed(cls, name, case)
    )


def _changed(cls: type[Conformance], name: str, case: Callable[..., Any] | None) -> bool:
    if case is None or not _applies(case, cls.capabilities):
        return False
    return getattr(cls, name, None) is not case


def _applies(case: Callable[..., Any], capabilities: object) -> bool:
    wanted: dict[str, object] = getattr(case, "needs", {})
    return all(getattr(capabilities, name) == value for name, value in wanted.items())

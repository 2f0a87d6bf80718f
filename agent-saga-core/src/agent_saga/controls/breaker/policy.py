"""When a breaker opens, and how it closes again: `BreakerPolicy`."""

from __future__ import annotations

from typing import Any

from agent_saga.controls import given
from agent_saga.errors import ConfigurationError

__all__ = ["BreakerPolicy"]


class BreakerPolicy:
    """When the breaker of a tool opens, and how it closes again.

    Args:
        failure_threshold: so many failures one after the other open it; None never does.
        failure_rate: this share of failures opens it, from 0 (not included) to 1; None never does.
        min_volume: so many calls within the window are needed before the rate counts.
        window: seconds that the rate looks back.
        cool_down: seconds that it stays open.
        probes: so many calls at a time try it after that.
        success_threshold: so many of them must succeed one after the other to close it.
        ignore: exceptions that say nothing about the tool's health.

    Raises:
        ConfigurationError: a number is out of range, or neither threshold nor rate is given.
    """

    __slots__ = (
        "cool_down",
        "failure_rate",
        "failure_threshold",
        "ignore",
        "min_volume",
        "probes",
        "success_threshold",
        "window",
    )

    def __init__(
        self,
        failure_threshold: int | None = 5,
        failure_rate: float | None = None,
        min_volume: int = 10,
        window: float = 60.0,
        cool_down: float = 30.0,
        probes: int = 1,
        success_threshold: int = 1,
        ignore: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> None:
        if failure_threshold is None and failure_rate is None:
            raise ConfigurationError(
                "A breaker without a threshold and without a rate never opens.",
                fix="Give failure_threshold= or failure_rate=.",
            )
        self.failure_threshold = (
            None if failure_threshold is None else _count("failure_threshold", failure_threshold)
        )
        self.failure_rate = None if failure_rate is None else _share(failure_rate)
        self.min_volume = _count("min_volume", min_volume)
        self.window = given.seconds("window", window)
        self.cool_down = given.seconds("cool_down", cool_down)
        self.probes = _count("probes", probes)
        self.success_threshold = _count("success_threshold", success_threshold)
        self.ignore = _errors(ignore)


def _count(what: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise ConfigurationError(f"{what} is a whole number from 1, not {value!r}.")
    return value


def _share(value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise ConfigurationError(f"failure_rate is a share above 0 and up to 1, not {value!r}.")
    return float(value)


def _errors(given: Any) -> tuple[type[BaseException], ...]:
    found = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in found):
        raise ConfigurationError("ignore= takes exception classes.")
    return found

"""Retries inside one step: how often, after what, and how long to wait.

The attempts of one step share its idempotency key and its approval. Whether an error may be
retried at all is judged in `endings`: an effect that is not idempotent is repeated only after an
ending that is known to be harmless, or after an error that its author listed in `retry_on`.
"""

from __future__ import annotations

from typing import Final

from agent_saga.domain import durations
from agent_saga.errors import ConfigurationError

_BACKOFFS: Final = ("linear", "exponential")
Errors = tuple[type[BaseException], ...]


def error_types(value: object, what: str) -> Errors:
    """Return exception classes as a tuple.

    Raises:
        ConfigurationError: something else was given.
    """
    types = value if isinstance(value, (tuple, list, set, frozenset)) else (value,)
    if all(isinstance(t, type) and issubclass(t, BaseException) for t in types):
        return tuple(types)
    raise ConfigurationError(f"{what} takes exception classes, not {value!r}.")


class RetryPolicy:
    """How often a step is tried, and with what pauses.

    Args:
        max_retries: further attempts after the first; 0 or more.
        backoff_type: "linear" (base, 2 x base, …) or "exponential" (base, 2 x base, 4 x base, …).
        base_delay: seconds before the first retry.
        max_delay: no pause is longer, in seconds.
        retry_on: exception classes after which the call may be repeated although its ending is not
            known to be harmless.
        exclude_exceptions: exception classes that are never retried.

    Raises:
        ConfigurationError: a value is out of range.
    """

    __slots__ = (
        "backoff_type",
        "base_delay",
        "exclude_exceptions",
        "max_delay",
        "max_retries",
        "retry_on",
    )

    def __init__(
        self,
        max_retries: int = 3,
        backoff_type: str = "exponential",
        base_delay: float = 0.5,
        max_delay: float = 30.0,
        retry_on: object = (),
        exclude_exceptions: object = (),
    ) -> None:
        if type(max_retries) is not int or max_retries < 0:
            raise ConfigurationError(f"max_retries is a whole number >= 0, not {max_retries!r}.")
        if backoff_type not in _BACKOFFS:
            raise ConfigurationError(
                f"backoff_type is one of {', '.join(_BACKOFFS)}, not {backoff_type!r}."
            )
        for name, value in (("base_delay", base_delay), ("max_delay", max_delay)):
            durations.seconds(name, value, zero=True)
        self.max_retries = max_retries
        self.backoff_type = backoff_type
        self.base_delay = base_delay
        self.max_delay = max_delay
        self.retry_on = error_types(retry_on, "retry_on")
        self.exclude_exceptions = error_types(exclude_exceptions, "exclude_exceptions")

    def delay(self, retry: int) -> float:
        """Return the pause in seconds before the retry of this number, counted from 1."""
        if self.backoff_type == "linear":
            return min(self.max_delay, self.base_delay * retry)
        return min(self.max_delay, self.base_delay * 2.0 ** min(retry - 1, 60))

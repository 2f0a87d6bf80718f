"""Every default in one table, and how the environment changes it.

Rules of this part:

- One frozen `Settings`; each field has its default, its unit and its meaning here and nowhere else.
  `agent-saga doctor` and the documentation print this table.
- The variable of a setting is `AGENT_SAGA_` and its name in capitals. A variable that is set and
  empty counts as not set.
- A value that cannot be read stops the start with `ConfigurationError`; nothing falls back to a
  default in silence. Fails closed.
- Durations are seconds, at most a year.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from agent_saga.domain.durations import ANSWER_WITHIN, YEAR, shown
from agent_saga.domain.leaving import UNDO_WINDOW
from agent_saga.errors import ConfigurationError

__all__ = ["PREFIX", "SettingRow", "Settings", "defaults_table", "given_settings"]

PREFIX: Final = "AGENT_SAGA_"

Reader = Callable[[Any], Any]


def _seconds_or_zero(value: object) -> float:
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if not 0 <= value <= YEAR:  # no NaN, and no infinity
        raise ValueError
    return float(value)


def _seconds(value: object) -> float:
    seconds = _seconds_or_zero(value)
    if not seconds:
        raise ValueError
    return seconds


def _seconds_or_none(value: object) -> float | None:
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return None
    return _seconds(value)


def _count(value: object) -> int:
    if isinstance(value, str):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    if not 1 <= value <= 10_000:
        raise ValueError
    return value


def _address(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not value.strip() or "\0" in value:
        raise ValueError
    return value


def _one_of(*words: str) -> Reader:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    read.__doc__ = "one of " + ", ".join(words)
    return read


_WANTED: Final[dict[Reader, str]] = {
    _seconds: f"a number of seconds above 0, up to {YEAR:.0f}",
    _seconds_or_zero: f"a number of seconds from 0 to {YEAR:.0f}",
    _seconds_or_none: f"a number of seconds above 0, up to {YEAR:.0f}, or none",
    _count: "a whole number from 1 to 10000",
    _address: "a path or an address such as memory:",
}


def _setting(default: Any, read: Reader, meaning: str, *, unit: str = "") -> Any:
    wanted = _WANTED.get(read) or read.__doc__
    metadata = {"read": read, "meaning": meaning, "unit": unit, "wanted": wanted}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this process runs; immutable.

    A relative path in `wal` is meant from the working directory at the moment the log is opened.

    Raises:
        ConfigurationError: a value cannot be used; the message names the setting and what it takes.
    """

    wal: str = _setting("./agent-saga.wal", _address, "where the log is")
    settle: float = _setting(
        30.0, _seconds_or_zero, "how long unwinding waits for calls that are in flight", unit="s"
    )
    inverse_timeout: float = _setting(60.0, _seconds, "how long one inverse may take", unit="s")
    inverse_attempts: int = _setting(3, _count, "how often an inverse is tried")
    inverse_delay: float = _setting(
        0.2, _seconds_or_zero, "the wait before an inverse's second attempt; it doubles", unit="s"
    )
    settle_after: float = _setting(
        60.0,
        _seconds_or_zero,
        "after how long a call without an answer can no longer arrive (per tool)",
        unit="s",
    )
    settle_unknown: Literal["wait", "release"] = _setting(
        "wait",
        _one_of("wait", "release"),
        "whether unwinding waits settle_after out, or leaves the saga to recovery",
    )
    cancel_grace: float = _setting(
        5.0, _seconds_or_zero, "how long a cancelled call is given to end", unit="s"
    )
    step_timeout: float | None = _setting(
        None, _seconds_or_none, "how long a tool may take (per tool)", unit="s"
    )
    approval_timeout: float = _setting(
        ANSWER_WITHIN, _seconds, "how long a human may take; then the answer is no", unit="s"
    )
    kill_switch_grace: float = _setting(
        30.0,
        _seconds_or_zero,
        "how long the last known halts count when they cannot be read; then every step is refused",
        unit="s",
    )
    on_unsettled: Literal["raise", "warn"] = _setting(
        "raise",
        _one_of("raise", "warn"),
        "what leaving a committed boundary does when an outcome stayed unknown",
    )
    outside: Literal["run", "warn", "refuse"] = _setting(
        "warn",
        _one_of("run", "warn", "refuse"),
        "what a tool does outside a boundary (IRREVERSIBLE: always refuse)",
    )
    after_stuck: Literal["halt", "continue"] = _setting(
        "halt",
        _one_of("halt", "continue"),
        "what unwinding does after an inverse that failed for good or is not registered",
    )
    on_crash: Literal["undo", "hold"] = _setting(
        "undo",
        _one_of("undo", "hold"),
        "what recovery does first with a saga whose process died (per boundary)",
    )
    resume_grace: float = _setting(
        900.0,
        _seconds_or_zero,
        "how long a held saga waits for its program to go on with it; then it is undone",
        unit="s",
    )
    tool_threads: int = _setting(32, _count, "how many sync tools run at the same time")
    undo_window: float = _setting(
        UNDO_WINDOW,
        _seconds_or_zero,
        "how long a saga that ended well stays in the log before compaction may take it out",
        unit="s",
    )
    stall_after: float = _setting(
        30.0, _seconds, "after how long a disk that does not confirm is an error", unit="s"
    )

    def __post_init__(self) -> None:
        """Read every value through its rule."""
        for field in dataclasses.fields(self):
            value = _read(field, getattr(self, field.name), f"The setting {field.name}")
            object.__setattr__(self, field.name, value)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Return the settings that the environment gives, with the defaults for the rest.

        Args:
            environ: the variables; those of the process when not given.

        Raises:
            ConfigurationError: a variable's value cannot be used.
        """
        variables = os.environ if environ is None else environ
        given: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = variables.get(_variable(field.name), "")
            if text:
                given[field.name] = _read(field, text, f"The variable {_variable(field.name)}")
        return cls(**given)

    def replace(self, **changes: Any) -> Settings:
        """Return these settings with some changed.

        Raises:
            ConfigurationError: a name is no setting, or a value cannot be used.
        """
        names = {field.name for field in dataclasses.fields(self)}
        unknown = sorted(set(changes) - names)
        if unknown:
            raise ConfigurationError(
                f"{unknown[0]!r} is no setting.",
                fix=f"The settings are {', '.join(sorted(names))}.",
            )
        return dataclasses.replace(self, **changes)


class SettingRow(Struct, frozen=True):
    """One line of the table of defaults.

    Attributes:
        name: the setting's name.
        variable: the environment variable that sets it.
        default: its default, with its unit, as text.
        value: what holds now, with its unit, as text.
        changed: whether the value differs from the default.
        meaning: what it decides.
    """

    name: str
    variable: str
    default: str
    value: str
    changed: bool
    meaning: str


def defaults_table(settings: Settings | None = None) -> list[SettingRow]:
    """Return every setting with its default, what holds now, and what it decides.

    Args:
        settings: what holds now; the defaults when not given.
    """
    now = Settings() if settings is None else settings
    rows = []
    for field in dataclasses.fields(Settings):
        default, value, unit = field.default, getattr(now, field.name), field.metadata["unit"]
        rows.append(
            SettingRow(
                name=field.name,
                variable=_variable(field.name),
                default=_shown(default, unit),
                value=_shown(value, unit),
                changed=value != default,
                meaning=field.metadata["meaning"],
            )
        )
    return rows


def given_settings(settings: object) -> Settings:
    """Return settings that were given.

    Raises:
        ConfigurationError: they are none.
    """
    if not isinstance(settings, Settings):
        raise ConfigurationError(
            f"settings= takes a Settings, not {shown(settings)}.",
            fix="Leave it out to read them from the environment.",
        )
    return settings


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _shown(value: object, unit: str) -> str:
    if value is None:
        return "none"
    whole = isinstance(value, float) and value.is_integer()
    text = f"{value:.0f}" if whole else f"{value:g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}".rstrip()


def _read(field: dataclasses.Field[Any], value: object, what: str) -> Any:
    try:
        return field.metadata["read"](value)
    except (TypeError, ValueError):
        wanted = field.metadata["wanted"]
        raise ConfigurationError(
            f"{what} cannot be {shown(value)}.", fix=f"Give it {wanted}."
        ) from None

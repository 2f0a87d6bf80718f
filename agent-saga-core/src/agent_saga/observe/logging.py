"""Log records of the library, opt-in: `configure_logging()`.

Rules of this part:

- Without it the library adds no handler anywhere. In a program that configures no logging at all
  Python itself then shows warnings on the error stream, and that is wanted: that a tool ran outside
  a boundary, or that an outcome stayed unknown, must not be swallowed. So there is no NullHandler.
- With it, one handler on the named loggers; never the root logger.
- Every record carries `saga_id` and `step_id`. In text form a record is one line, however many
  lines its message has, so that a name from outside cannot forge a record; a traceback follows it.
- Calling it again replaces what the earlier call had set up.
- Fails open: a record that cannot be formatted is said on the error stream and changes nothing
  else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from agent_saga.domain.durations import shown
from agent_saga.errors import ConfigurationError
from agent_saga.observe.correlation import CorrelationFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LIBRARY_LOGGER", "JsonFormatter", "TextFormatter", "configure_logging"]

LIBRARY_LOGGER: Final = "agent_saga"
_FORMATS: Final = ("text", "json")
_LOGGERS: Final = f"Give a list: loggers=('{LIBRARY_LOGGER}', 'my_agent')."


class _OurHandler(logging.StreamHandler[Any]):
    """The handler that `configure_logging` adds, so that the next call can find it."""


def configure_logging(
    level: int | str = logging.INFO,
    *,
    format: Literal["text", "json"] = "text",  # noqa: A002
    stream: TextIO | None = None,
    loggers: Sequence[str] = (LIBRARY_LOGGER,),
) -> logging.Handler:
    """Write the library's log records, with the ids of saga and step on every one.

    Args:
        level: the lowest level that is written.
        format: "text" for people, "json" for one JSON object per line.
        stream: where to; the error stream when not given.
        loggers: which loggers get the handler; add your own package's name to have the ids there.

    Returns:
        The handler, so that it can be removed again.

    Raises:
        ConfigurationError: the format or level is unknown, the root logger was named, or something
            else that was given cannot be used.
    """
    if format not in _FORMATS:
        raise ConfigurationError(f"{format!r} is no log format.", fix="Use 'text' or 'json'.")
    if isinstance(loggers, str) or not isinstance(loggers, Collection):
        raise ConfigurationError(
            f"loggers= takes names of loggers, not {shown(loggers)}.", fix=_LOGGERS
        )
    if not all(isinstance(name, str) for name in loggers):
        raise ConfigurationError(f"{shown(loggers)} are no names of loggers.", fix=_LOGGERS)
    if not all(loggers) or "root" in loggers:
        raise ConfigurationError(
            "The root logger belongs to the program; configure_logging leaves it alone.",
            fix="Name the loggers that should carry the ids.",
        )
    if stream is not None and not callable(getattr(stream, "write", None)):
        raise ConfigurationError(
            f"stream= takes an open text file, not {shown(stream)}.",
            fix="Leave it out for the error stream.",
        )
    handler = _OurHandler(stream)
    handler.addFilter(CorrelationFilter())
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    for name in loggers:
        _attach(logging.getLogger(name), handler, level)
    return handler


def _attach(logger: logging.Logger, handler: logging.Handler, level: int | str) -> None:
    try:
        logger.setLevel(level)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{level!r} is no log level.") from error
    for present in list(logger.handlers):
        if isinstance(present, _OurHandler):
            logger.removeHandler(present)
    logger.addHandler(handler)
    # The program's own handlers on the root logger would write every record a second time.
    logger.propagate = False


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text: time, level, logger, ids, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback if there is one."""
        ids = " ".join(
            f"{label}={value}"
            for label, value in (("saga", _id(record, "saga_id")), ("step", _id(record, "step_id")))
            if value
        )
        head = f"{_time(record)} {record.levelname} {record.name}"
        line = f"{head} [{ids}] " if ids else f"{head} "
        return line + _one_line(record.getMessage()) + _traceback(self, record)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as text; what JSON cannot carry is written as its `str`."""
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "saga_id": _id(record, "saga_id"),
            "step_id": _id(record, "step_id"),
        }
        trace = _traceback(self, record).strip()
        if trace:
            told["traceback"] = trace
        return json.dumps(told, default=str)


def _id(record: logging.LogRecord, name: str) -> str:
    return str(getattr(record, name, ""))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _one_line(message: str) -> str:
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "".join(f"\n{part}" for part in parts)

"""The loggers that the parts of agent-saga write to.

Rules of this part:

- What a program hangs on a logger never harms a saga: a handler or filter that raises has its error
  told on the standard error stream, as logging itself does where it can, and the saga goes on.
- What must end a program (KeyboardInterrupt, SystemExit) passes.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import MutableMapping
from typing import Any

__all__ = ["Logger", "logger"]


class Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose handlers and filters may fail."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Return message and options as they are."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; what a handler or filter raises harms nobody."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller, not this line
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:
            if logging.raiseExceptions:
                with contextlib.suppress(Exception):
                    traceback.print_exc()


def logger(name: str) -> Logger:
    """Return the logger of this name, as the parts of agent-saga use it."""
    return Logger(logging.getLogger(name), None)

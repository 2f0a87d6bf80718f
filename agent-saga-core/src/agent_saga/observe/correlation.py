"""Which saga and step the running code belongs to, for log records.

Rules of this part:

- The ids travel in context variables: a task and a copied context inherit them, a bare thread does
  not. They serve display only; the engine binds its saga explicitly.
- A record outside any boundary carries empty ids, so that a format string never fails.
"""

from __future__ import annotations

import contextlib
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SAGA_ID", "STEP_ID", "CorrelationFilter", "correlated"]

SAGA_ID: Final[ContextVar[str]] = ContextVar("agent_saga_saga_id", default="")
"""The id of the saga that the running code belongs to, or an empty string."""

STEP_ID: Final[ContextVar[str]] = ContextVar("agent_saga_step_id", default="")
"""The id of the step that the running code belongs to, or an empty string."""


@contextlib.contextmanager
def correlated(saga: str, step: str = "") -> Iterator[None]:
    """Put these ids on every log record that the block writes.

    Args:
        saga: the saga's id.
        step: the step's id, if one is running.
    """
    saga_before = SAGA_ID.set(saga)
    step_before = STEP_ID.set(step)
    try:
        yield
    finally:
        STEP_ID.reset(step_before)
        SAGA_ID.reset(saga_before)


class CorrelationFilter(logging.Filter):
    """Puts `saga_id` and `step_id` on every record that passes; it drops none.

    Add it to a handler of your own to have the ids in your own format. Ids that a record carries
    already are kept.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Complete the record and let it pass."""
        if not hasattr(record, "saga_id"):
            record.saga_id = SAGA_ID.get()
        if not hasattr(record, "step_id"):
            record.step_id = STEP_ID.get()
        return True

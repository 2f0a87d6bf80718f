"""Waiting in a test for something that other threads or processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(condition: Callable[[], object], *, patience: float = 300.0) -> None:
    """Wait until a condition holds.

    Args:
        condition: asked again and again; it should be cheap.
        patience: seconds after which the test has failed.

    Raises:
        TimeoutError: the condition did not come to hold.
    """
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() >= end:
            raise TimeoutError(f"This did not come to hold: {condition}")
        time.sleep(0.002)

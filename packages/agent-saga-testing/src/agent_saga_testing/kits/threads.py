"""Running functions in threads at once, where no error goes unseen."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["in_threads"]


def in_threads(work: list[Callable[[], object]]) -> None:
    """Run the functions at once, wait for all, and raise the first error.

    Raises:
        BaseException: whatever one of them raised.
    """
    errors: list[BaseException] = []

    def guarded(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]

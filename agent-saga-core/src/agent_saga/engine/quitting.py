"""What ends the program, where raising it at once would end everything else with it.

Rules of this part:

- `KeyboardInterrupt` and `SystemExit` that leave a task end the event loop at once: whoever waits
  for the task never hears of it, and nothing is undone any more.
- So where code of others calls tools in tasks of its own, as frameworks do, a tool leaves with
  `ProgramEnds` in their place. The run has failed then, whoever makes text of it on the way.
- The boundary of a saga that fails with it, or with what was made from it, undoes everything and
  then raises what it stands for. A savepoint passes it on: it is left in such a task itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import Any, Final

from agent_saga.engine.calls import run
from agent_saga.engine.endings import origins
from agent_saga.engine.requests import Ending

ENDS_THE_PROGRAM: Final = (KeyboardInterrupt, SystemExit)
LEAVES_A_TOOL: Final = (Exception, *ENDS_THE_PROGRAM)
"""What whoever calls a tool for a framework takes in; what is raised in its place is `held`."""


class ProgramEnds(Exception):
    """Something raised what ends the program; that comes when everything was undone.

    Args:
        ending: what was raised.
    """

    def __init__(self, ending: BaseException) -> None:
        super().__init__(f"{type(ending).__name__}: {ending}")
        self.ending = ending
        self.__cause__ = ending


def held(error: BaseException) -> Exception:
    """Return what leaves a tool in an error's place: the error itself, if no program ends by it.

    Args:
        error: one of `LEAVES_A_TOOL`.
    """
    ending = error if isinstance(error, ENDS_THE_PROGRAM) else ending_behind(error)
    if isinstance(error, Exception) and (ending is None or isinstance(error, ProgramEnds)):
        return error
    made = ProgramEnds(error if ending is None else ending)
    with contextlib.suppress(AttributeError):
        made.agent_saga_step = error.agent_saga_step  # type: ignore[attr-defined]
    return made


def ending_behind(error: BaseException) -> BaseException | None:
    """Return what ends the program, if an error was made from it; None if nothing does."""
    found = (one.ending for one in origins(error) if isinstance(one, ProgramEnds))
    return next(found, None)


async def kept(awaitable: Awaitable[Any], *, unrun: bool = True) -> Any:
    """Await what runs in a task of its own; what would end the program is its `Ending`.

    Args:
        awaitable: what runs.
        unrun: what comes of it may still be to be run; else it is run too.
    """
    try:
        value = await awaitable
        return value if unrun else await run(value)
    except ENDS_THE_PROGRAM as error:
        return Ending(error=error)

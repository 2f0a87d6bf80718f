"""The inverse of one effect, as data.

Rules of this part:

- A `Compensation` names a registered handler (which any process can find again), or holds a
  function (which only this process can run), or both; a registered handler wins, in process too.
- A factory may answer with a `Compensation`, with a mapping of `handler` and `kwargs`, or with
  `Compensation.none(reason)`: nothing needs undoing. Anything else leaves the step without an
  inverse.
- A step has a compensation of its own: a factory may give the same object for every step, changed
  or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_saga.errors import CompensationError

_FIELDS = frozenset({"handler", "kwargs", "description", "fn"})


class Compensation:
    """What undoes one effect.

    Args:
        fn: the function that undoes it; found only in this process.
        handler: the name of a registered handler; found in every process that imports its module.
        kwargs: the keyword arguments of the inverse; plain data, recorded exactly.
        description: one line for the report.

    Attributes:
        nothing: why nothing needs undoing; empty otherwise.
        recorded: the arguments as the log holds them; these are what the inverse is called with, so
            that a program that changes its result afterwards changes nothing here.
        encoded: the whole of it as its first record says; None when there is none.
        bound: the registered handler that the tool was declared with, where it is known; a function
            that is defined again meanwhile, under the same name, does not take its place.
        origin: the package and version that registered the handler, where the log tells it.
    """

    __slots__ = (
        "bound",
        "description",
        "encoded",
        "fn",
        "handler",
        "kwargs",
        "nothing",
        "origin",
        "recorded",
    )

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        handler: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        description: str = "",
    ) -> None:
        if fn is None and not handler:
            raise CompensationError(
                "A Compensation needs a handler's name or a function.",
                fix="Give handler='name' (registered with @compensator) or fn=….",
            )
        if fn is not None and not callable(fn):
            raise CompensationError(f"The compensation's fn is not callable: {fn!r}.")
        if handler is not None and not isinstance(handler, str):
            raise CompensationError(f"The compensation's handler is not a name: {handler!r}.")
        self.fn = fn
        self.handler = handler or None
        self.kwargs: dict[str, Any] = dict(kwargs or {})
        self.description = description
        self.nothing = ""
        self.recorded: bytes | None = None
        self.encoded: bytes | None = None
        self.bound: Any = None
        self.origin = ""

    @classmethod
    def none(cls, reason: str) -> Compensation:
        """Say that this effect needs no undoing, and why."""
        answer = cls.__new__(cls)
        answer.fn = answer.handler = None
        answer.kwargs = {}
        answer.description = ""
        answer.recorded = answer.encoded = None
        answer.bound = None
        answer.origin = ""
        answer.nothing = reason or "nothing to undo"
        return answer

    def __repr__(self) -> str:
        if self.nothing:
            return f"Compensation.none({self.nothing!r})"
        name = self.handler or getattr(self.fn, "__qualname__", repr(self.fn))
        return f"Compensation({name}, {self.kwargs!r})"

    @property
    def label(self) -> str:
        """How a report names this inverse."""
        return self.description or self.handler or str(getattr(self.fn, "__qualname__", "inverse"))


def from_answer(answer: object) -> Compensation:
    """Return the compensation that a factory's answer means.

    Raises:
        CompensationError: the answer is None or something else that is no compensation.
    """
    if isinstance(answer, Compensation):
        if answer.nothing:
            return answer
        return Compensation(answer.fn, answer.handler, answer.kwargs, answer.description)
    if isinstance(answer, Mapping) and "handler" in answer and set(answer) <= _FIELDS:
        return Compensation(
            fn=answer.get("fn"),
            handler=answer["handler"],
            kwargs=answer.get("kwargs"),
            description=answer.get("description", ""),
        )
    raise CompensationError(
        f"The factory answered {type(answer).__name__}, which is no compensation.",
        fix="Return a Compensation, a dict with 'handler' and 'kwargs', or "
        "Compensation.none(reason).",
    )

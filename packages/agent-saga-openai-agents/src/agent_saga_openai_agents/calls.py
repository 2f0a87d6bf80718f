"""What is known of the run that is going on here, and of the tool call that is about to be made.

Rules of this part:

- A step key is made of the calls that lead to the call (an agent that is a tool runs inside one),
  the model's call id, its turn, and the arguments' MAC. Call ids alone are not unique: how often
  the id was answered in earlier turns is a part of the key.
- A turn begins with a call of the model; the run's configuration tells of each.
- Tools that run in threads see the same objects.
"""

from __future__ import annotations

import contextvars
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

Path = tuple[str, ...]


class Run:
    """One run that is a boundary, as its tools see it.

    Args:
        on_tool_failure: "continue", "rollback" or "ask".
        history: how often each call id was answered before the run began.

    Attributes:
        stop: why the run must not ask its model again; None while nothing stops it.
        waits: it can be suspended and gone on with.
        asks: the gate may ask about its calls by suspending it.
        questions: what the gate asks about calls of the run, by request id.
        before_turn: what is awaited before a model is asked; None for nothing.
    """

    __slots__ = (
        "_lock",
        "_seen",
        "_turns",
        "asks",
        "before_turn",
        "history",
        "on_tool_failure",
        "questions",
        "stop",
        "waits",
    )

    def __init__(
        self, on_tool_failure: str = "continue", history: Mapping[str, int] | None = None
    ) -> None:
        self.on_tool_failure = on_tool_failure
        self.history = Counter(history or {})
        self.stop: Exception | None = None
        self.waits = False
        self.asks = False
        self.questions: dict[str, dict[str, Any]] = {}
        self.before_turn: Callable[[], Awaitable[None]] | None = None
        self._lock = threading.Lock()
        self._turns: Counter[Path] = Counter()
        self._seen: dict[tuple[Path, str], list[int]] = {}

    def turn(self, path: Path) -> None:
        """Note that a model is asked again."""
        with self._lock:
            self._turns[path] += 1

    def number(self, path: Path, call: str) -> int:
        """Return in how many earlier turns a call id was used."""
        with self._lock:
            turns = self._seen.setdefault((path, call), [])
            now = self._turns[path]
            if now not in turns:
                turns.append(now)
            before = self.history[call] if not path else 0
            return before + turns.index(now)


class Call:
    """A call that a model made.

    Args:
        id: the model's id of it.
        path: the ids of the calls that it is made inside of, the outermost first.
        arguments: what the model chose, by name; None where that is no JSON object.

    Attributes:
        left: what ends the call whatever the framework makes of its error: a refusal for the model
            to read, or what leaves the run.
        result: what the effect returned, where the model is shown something else; see `servers`.
        failed: what the effect says itself of how it failed, where nothing is raised.
        released: the framework's own approval, if it needs one, was given.
    """

    __slots__ = ("arguments", "failed", "id", "left", "path", "released", "result")

    def __init__(self, id: str, path: Path, arguments: dict[str, Any] | None) -> None:  # noqa: A002
        self.id = id
        self.path = path
        self.arguments = arguments
        self.left: Exception | None = None
        self.result: Any = None
        self.failed: Exception | None = None
        self.released = False

    @staticmethod
    def around(path: Path, outer: Call | None) -> Call:
        """Return what the calls of a run are made inside of, where that is no call of a model.

        Args:
            path: the place of the run.
            outer: the call that it is made inside of, or None.
        """
        made = Call("", path, None)
        made.released = outer is not None and outer.released
        return made

    @property
    def inside(self) -> Path:
        """The path of calls that are made inside this one."""
        return (*self.path, self.id) if self.id else self.path


running: contextvars.ContextVar[Run | None] = contextvars.ContextVar(
    "agent_saga_openai_agents_run", default=None
)
"""The run that is going on here."""

calling: contextvars.ContextVar[Call | None] = contextvars.ContextVar(
    "agent_saga_openai_agents_call", default=None
)
"""The call that is being made."""


def call_of(id: str, text: str | None, defaults: Mapping[str, Any]) -> Call:  # noqa: A002
    """Return a call that is made here.

    Args:
        id: the model's id of it.
        text: its arguments as the model wrote them.
        defaults: what the tool's schema says of arguments that are left out.
    """
    outer = calling.get()
    chosen = parsed(text)
    arguments = None if chosen is None else {**defaults, **chosen}
    return Call(id, outer.inside if outer is not None else (), arguments)


def parsed(text: str | None) -> dict[str, Any] | None:
    """Return arguments by name; None where the text is no JSON object."""
    if text is None or not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def defaults_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default values that a tool's schema declares."""
    properties = schema.get("properties") or {}
    return {name: one["default"] for name, one in properties.items() if "default" in one}


class Mark(NamedTuple):
    """What a step key tells about the call.

    Attributes:
        path, call: see `Call`; number: see `Run.number`.
    """

    path: Path
    call: str
    number: int

    @property
    def outermost(self) -> str:
        """The id of the call that a run's own model made."""
        return self.path[0] if self.path else self.call


def key_of(call: Call, run: Run, mac: bytes) -> str:
    """Return the step key of a call."""
    return json.dumps([*call.path, call.id, run.number(call.path, call.id), mac.hex()])


def read(key: str) -> Mark | None:
    """Return what a step key tells; None when it is not one of this package."""
    try:
        *path, call, number, _ = json.loads(key)
    except (ValueError, TypeError):
        return None
    is_ours = isinstance(number, int) and all(isinstance(one, str) for one in (*path, call))
    return Mark(tuple(path), call, number) if is_ours else None


def answered(items: Iterable[Any]) -> Counter[str]:
    """Return how often each call id is answered in a history of the framework."""
    given = [item for item in items if isinstance(item, Mapping)]
    ids = [i.get("call_id") for i in given if str(i.get("type")).endswith("_output")]
    return Counter(id_ for id_ in ids if isinstance(id_, str))

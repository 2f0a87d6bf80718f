"""`AgentKit`: tools, a gate and a log under one name; the front door for bare scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from agent_saga.controls.gate import PreFlightGate
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.handle import SagaScope
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import ConfigurationError
from agent_saga.kit.status import Status, status_of
from agent_saga.kit.tools import wrapped
from agent_saga.observe.living import living
from agent_saga.runtime.composition import Runtime, on_crash_options
from agent_saga.runtime.settings import Settings
from agent_saga.wal.base import BaseWAL

P = ParamSpec("P")
R = TypeVar("R")


class AgentKit:
    """Wraps an agent's tools and opens boundaries round its runs.

    Args:
        name: the agent's name; it stands in logs and reports.
        gate: judges every call before its effect; only IRREVERSIBLE ones are asked about when not
            given.
        wal: a log, an address or a path; the default log (durable) when not given.
        settings: how to run; read from the environment when not given.

    Nothing is created and no plugin is loaded before the first boundary.
    """

    def __init__(
        self,
        name: str = "agent",
        *,
        gate: PreFlightGate | None = None,
        wal: BaseWAL | str | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise ConfigurationError(f"A kit's name is a text, not {name!r}.")
        self.name = name
        self.runtime = Runtime(wal=wal, gate=gate, settings=settings)
        self._tools: WeakSet[SagaTool[Any, Any]] = WeakSet()

    def safe_tool(
        self,
        fn: Callable[P, R],
        semantics: ActionSemantics | str | None = None,
        compensate: object = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> SagaTool[P, R]:
        """Wrap a function as a tool of this kit.

        Args:
            fn: a function, coroutine function, partial, bound method or object with `__call__`.
            semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE; `compensate=` alone means
                COMPENSABLE.
            compensate: a template (`refund.using(id="$.id")`), a dict of `handler` and `kwargs`,
                or a factory that gets the result and answers with either or a `Compensation`.
            name: how log, rules and reports name it; the function's name when not given.
            options: further options of `agent_saga.engine.tool.declare`, among them `timeout`,
                `retry`, `fallback_action`, `prepare`, `provisional`, `prober`, `not_applied_on`,
                `idempotent`, `commit` and `outside`.

        Raises:
            UndeclaredSemantics: nothing says what the tool does to the world.
            UnknownHandler: the inverse names a handler that is not registered.
            ConfigurationError: an option does not fit.
        """
        given = {"semantics": semantics, "compensate": compensate, "name": name, **options}
        tool = wrapped(fn, self.runtime, self, given)
        self._tools.add(tool)
        return tool

    def tool(
        self,
        semantics: ActionSemantics | str | None = None,
        *,
        compensate: object = None,
        name: str | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, R]], SagaTool[P, R]]:
        """Declare the decorated function as a tool of this kit; arguments as for `safe_tool`."""
        if callable(semantics):
            raise ConfigurationError(
                "@kit.tool was used without saying what the tool does to the world.",
                fix='Write @kit.tool("REVERSIBLE"), ("COMPENSABLE") or ("IRREVERSIBLE").',
            )

        def decorate(fn: Callable[P, R]) -> SagaTool[P, R]:
            return self.safe_tool(fn, semantics, compensate, name=name, **options)

        return decorate

    def transaction(
        self,
        name: str = "",
        *,
        labels: Mapping[str, Any] | None = None,
        reraise: bool = False,
        on_unsettled: str | None = None,
        detached: bool = False,
        commit: str = "pipelined",
        saga_id: str | None = None,
        resume: bool = False,
        suspendable: bool = False,
        on_crash: str | None = None,
        resume_grace: float | None = None,
        fork_at: str | None = None,
        abandoned: str | None = None,
    ) -> SagaScope:
        """Return a boundary of this kit; enter it with `with` or `async with`.

        Arguments as for `saga_scope`; the name is the kit's when not given.
        """
        options = BoundaryOptions(
            name=name or self.name,
            labels=labels,
            reraise=reraise,
            on_unsettled=on_unsettled or self.runtime.settings.on_unsettled,
            detached=detached,
            commit=commit,
            kit=self,
            saga_id=saga_id,
            resume=resume,
            suspendable=suspendable,
            fork_at=fork_at,
            abandoned=abandoned,
            **on_crash_options(self.runtime.settings, on_crash, resume_grace),
        )
        origin = self.runtime.origin if saga_id is not None else None
        return SagaScope(self.runtime.engine, options, origin=origin)

    def guarantees(self) -> dict[str, Any]:
        """Return what agent-saga promises and what it does not, as data."""
        from agent_saga.kit.guarantees import manifest  # noqa: PLC0415 - reads TOML

        return manifest()

    def status(self) -> Status:
        """Return the live posture of this kit: ready or not, blockers, warnings."""
        return status_of(self.runtime, sorted(living(self._tools), key=lambda tool: tool.tool.name))

    def observe(self, observer: Callable[[Any], object], *, name: str = "") -> Callable[[], None]:
        """Have an observer told every event of this kit's log, after it is durable.

        Returns:
            A function that ends it.
        """
        return self.runtime.observe(observer, name=name)

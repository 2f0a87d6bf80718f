"""The live posture of a kit: can it keep its promises right now?

Rules of this part:

- A signal that cannot be read is a blocker: not ready. Nothing is assumed to be well.
- Blockers keep effects from being protected; warnings tell what a careful person would change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_saga.controls.gate import PreFlightGate
from agent_saga.controls.limits.control import MemoryLimits, SharedLimits
from agent_saga.controls.limits.limit import LIMITS
from agent_saga.controls.switch.acting import here
from agent_saga.controls.switch.store import SwitchStore
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.wrap import SagaTool
from agent_saga.errors import AgentSagaError
from agent_saga.observe.metrics import process_metrics
from agent_saga.plugins.process import process_plugins
from agent_saga.plugins.registry import process_handlers
from agent_saga.runtime.composition import Runtime
from agent_saga.wal.lock import WHOLE_WRITER


class Status:
    """What `kit.status()` returns.

    Attributes:
        ready: nothing keeps effects from being protected.
        blockers: what does, each with what to do.
        warnings: what a careful person would change.
        facts: where the log is, what it survives, how many tools there are, what was measured.
    """

    __slots__ = ("blockers", "facts", "warnings")

    def __init__(self) -> None:
        self.blockers: list[str] = []
        self.warnings: list[str] = []
        self.facts: dict[str, Any] = {}

    @property
    def ready(self) -> bool:
        """True when there is no blocker."""
        return not self.blockers

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "ready": self.ready,
            "blockers": list(self.blockers),
            "warnings": list(self.warnings),
            "facts": dict(self.facts),
        }

    def __str__(self) -> str:
        lines = ["ready" if self.ready else "NOT ready"]
        lines += [f"  blocker: {text}" for text in self.blockers]
        lines += [f"  warning: {text}" for text in self.warnings]
        lines += [f"  {name}: {value}" for name, value in self.facts.items()]
        return "\n".join(lines)

    __repr__ = __str__


def status_of(runtime: Runtime, tools: Iterable[SagaTool[Any, Any]]) -> Status:
    """Return the posture of a runtime and of the tools that are wrapped for it."""
    status = Status()
    tools = list(tools)
    for look in (_log, _switch, _plugins, _limits):
        try:
            look(runtime, status)
        except AgentSagaError as error:
            status.blockers.append(f"{look.__name__.strip('_')}: {error}")
        except Exception as error:
            status.blockers.append(
                f"{look.__name__.strip('_')} cannot be read: {type(error).__name__}: {error}"
            )
    for tool in tools:
        _tool(runtime, tool, status)
    status.facts["tools"] = len(tools)
    status.facts["metrics"] = process_metrics().snapshot()
    return status


def _log(runtime: Runtime, status: Status) -> None:
    wal = runtime.wal
    capabilities = wal.capabilities
    status.facts["log"] = wal.address
    status.facts["durability"] = capabilities.durability
    wal.probe()
    if wal.is_fenced(WHOLE_WRITER, 1):
        status.blockers.append(
            "the lock of this process on its log was removed or replaced, so every step is "
            "refused: start this program again, and leave the files in the log's folder alone"
        )
    if not capabilities.survives_kill:
        status.warnings.append(
            f"the log ({wal.address}) is in memory: nothing can be undone after a crash"
        )


def _switch(runtime: Runtime, status: Status) -> None:
    """Tell what is halted; while that cannot be read, every step is refused."""
    if not runtime.wal.capabilities.survives_kill:
        return
    switches = SwitchStore(runtime.store).read()
    entries = switches.holding(SYSTEM_CLOCK.now_us(), here())
    status.facts["halted"] = [entry.scope for entry in entries]
    status.warnings += [f"{e.scope}: {e.mode} set by {e.by}: {e.reason}" for e in entries]


def _plugins(_: Runtime, status: Status) -> None:
    plugins = process_plugins()
    status.facts["plugins"] = [str(plugin) for plugin in plugins.plugins()]
    for health in plugins.health():
        if not health.ready:
            status.blockers.append(str(health))


def _limits(runtime: Runtime, status: Status) -> None:
    """Say how many limits hold; a store of them that cannot be read refuses every call."""
    found = [c for c in runtime.engine().gate.controls if c.name == LIMITS]
    for control in found:
        if isinstance(control, SharedLimits):
            control.store.usage()
        if isinstance(control, (SharedLimits, MemoryLimits)):
            status.facts["limits"] = [limit.name for limit in control.limits]
            if isinstance(control, MemoryLimits) and runtime.wal.capabilities.survives_kill:
                status.warnings.append(
                    "limits are counted in this process only; other processes have their own"
                )


def _tool(runtime: Runtime, wrapped: SagaTool[Any, Any], status: Status) -> None:
    tool = wrapped.tool
    gate = runtime.gate
    if tool.semantics is ActionSemantics.IRREVERSIBLE and not _can_ask(gate):
        status.warnings.append(
            f"{tool.name} is IRREVERSIBLE and nobody can be asked; its calls are refused "
            "(PreFlightGate(approval_provider=…))"
        )
    if tool.semantics is not ActionSemantics.COMPENSABLE:
        return
    if tool.inverse is None:
        status.warnings.append(f"{tool.name} has no inverse; if the run fails it stands")
    elif tool.inverse.handler is None:
        status.warnings.append(
            f"{tool.name} can't be undone after a crash unless its factory names a registered "
            "handler"
        )
    elif tool.inverse.handler not in process_handlers().compensators:
        status.blockers.append(f"the handler {tool.inverse.handler!r} is not registered")
    elif "<locals>" in process_handlers().compensators.get(tool.inverse.handler).owner.name:
        status.warnings.append(
            f"{tool.name} can't be undone after a crash: its inverse is defined inside a function, "
            "and another process does not find it"
        )
    if tool.prober is None and not tool.idempotent:
        status.warnings.append(f"{tool.name} has no prober; a lost answer needs a human")


def _can_ask(gate: PreFlightGate) -> bool:
    return gate.approval_provider is not None

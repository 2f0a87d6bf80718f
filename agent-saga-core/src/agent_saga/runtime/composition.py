"""The composition root: settings, plugins, log, gate and pool become one engine.

An engine is put together at the first boundary that needs it, since that loads the plugins and
fixes the log; importing agent-saga and making a kit does neither.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from agent_saga.controls.control import Control, Surroundings
from agent_saga.controls.gate import Gate, PreFlightGate
from agent_saga.controls.installed import INSTALLED
from agent_saga.controls.limits.chosen import limit_store_for
from agent_saga.controls.switch.kill_switch import KillSwitch
from agent_saga.domain.clock import SYSTEM_CLOCK
from agent_saga.engine.options import BoundaryOptions
from agent_saga.engine.pool import ToolPool
from agent_saga.engine.ports import Engine
from agent_saga.engine.saga import Saga
from agent_saga.engine.timing import Timing
from agent_saga.observe.metrics import process_metrics
from agent_saga.plugins.process import process_plugins
from agent_saga.plugins.registry import process_handlers
from agent_saga.runtime import builtin
from agent_saga.runtime.claims import StoredClaims
from agent_saga.runtime.feed import feed_of
from agent_saga.runtime.identified import identified
from agent_saga.runtime.left import say_what_is_left
from agent_saga.runtime.logs import default_wal, wal_at
from agent_saga.runtime.settings import Settings, given_settings
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from collections.abc import Callable

from agent_saga.state.base import StateStore
from agent_saga.wal.base import BaseWAL
from agent_saga.wal.file import FileWAL


class Runtime:
    """What a kit, or the process as a whole, runs on.

    Args:
        wal: a log, an address or a path; the default log when not given.
        gate: judges calls; one that lets through all but IRREVERSIBLE calls when not given.
        settings: how to run; read from the environment when not given.
        recovers: it is recovery's own, which needs nobody to tell it what was left.

    Raises:
        ConfigurationError: the settings are none.
    """

    def __init__(
        self,
        *,
        wal: BaseWAL | str | None = None,
        gate: PreFlightGate | None = None,
        settings: Settings | None = None,
        recovers: bool = False,
    ) -> None:
        self._recovers = recovers
        self._wal = wal
        self._gate = gate
        self._given = None if settings is None else given_settings(settings)
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._engine: Engine | None = None
        self._controls = -1
        self._opened: BaseWAL | None = None

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings, fixed when they are first read."""
        return self._given if self._given is not None else Settings.from_environ()

    @property
    def wal(self) -> BaseWAL:
        """The log that boundaries of this runtime write to."""
        if self._wal is None:
            return default_wal(self.settings)
        with self._opening:
            opened = self._opened
            if opened is None or opened.closed:
                self._opened = opened = wal_at(self._wal, self.settings)
        return opened

    @functools.cached_property
    def gate(self) -> PreFlightGate:
        """The gate that was given, or the one that lets through all but IRREVERSIBLE calls."""
        return self._gate if self._gate is not None else PreFlightGate()

    def engine(self) -> Engine:
        """Return the engine, putting it together if the log or an installed control has changed.

        Raises:
            PluginError: a plugin cannot be loaded, or its rules cannot be read.
            ConfigurationError: a setting or the log's address cannot be used.
        """
        wal = self.wal
        engine = self._engine
        if engine is not None and engine.wal is wal and self._controls == INSTALLED.version:
            return engine
        with self._lock:
            engine, version = self._engine, INSTALLED.version
            if engine is None or engine.wal is not wal or self._controls != version:
                self._engine = engine = self._compose(wal)
                self._controls = version
        return engine

    def _compose(self, wal: BaseWAL) -> Engine:
        builtin.register()
        plugins = process_plugins()
        feed_of(wal).connect_plugins(plugins.observers())
        if not self._recovers:
            say_what_is_left(wal)
        return Engine(
            wal=wal,
            gate=self._composed_gate(wal, plugins.gate_rules(self.settings)),
            handlers=process_handlers(),
            pool=tool_pool(self.settings.tool_threads),
            timing=timing(self.settings),
            metrics=process_metrics(),
            clock=SYSTEM_CLOCK,
            claims=StoredClaims(lambda: self.store, wal) if isinstance(wal, FileWAL) else None,
        )

    def _composed_gate(self, wal: BaseWAL, rules: list[Any]) -> Gate:
        """Put the gate together: what is installed for the process, the gate's own, plugins'."""
        seconds = self.gate.approval_timeout or self.settings.approval_timeout
        around = Surroundings(wal, lambda: self.store, SYSTEM_CLOCK, process_metrics(), seconds)
        installed = [control.bound(around) for control in INSTALLED.in_order()]
        before = [*self._switches(around), *installed]
        gate = self.gate.with_rules(rules).composed(before, lambda: limit_store_for(around))
        bound = getattr(gate.provider, "bound", None)
        if bound is not None:  # it keeps the time itself, and is cut off only after that
            gate.provider, gate.timeout = bound(around), None
        return gate

    def _switches(self, around: Surroundings) -> list[Control]:
        """Return the gate's own kill switch, and that of the log where another process can halt."""
        own = self.gate.kill_switch
        found = [] if own is None else [own.bound(around)]
        if around.wal.capabilities.survives_kill:
            found.append(KillSwitch(grace=self.settings.kill_switch_grace).bound(around))
        return [*found]

    @functools.cached_property
    def store(self) -> StateStore:
        """The state store that belongs to the log; nothing is created before its first write."""
        return open_state(self.wal.address)

    def origin(self, engine: Engine, options: BoundaryOptions) -> Saga:
        """Return the saga of a `saga_id`: a new one, or the recorded one; blocks."""
        return identified(engine, self.store, options)

    def observe(self, observer: Callable[[Any], object], *, name: str = "") -> Callable[[], None]:
        """Have an observer told every event of this runtime's log, after it is durable.

        Returns:
            A function that ends it.
        """
        return feed_of(self.wal).subscribe(observer, name=name)


@functools.cache
def tool_pool(threads: int) -> ToolPool:
    """Return the process's pool of threads for synchronous tools."""
    return ToolPool(threads)


def tool_executor_stats() -> dict[str, int]:
    """Return how many threads run synchronous tools, and how many calls wait."""
    return tool_pool(process_runtime().settings.tool_threads).stats()


def timing(settings: Settings) -> Timing:
    """Return the engine's bounds as the settings give them."""
    return Timing(
        settle=settings.settle,
        step_timeout=settings.step_timeout,
        undo_timeout=settings.inverse_timeout,
        undo_bounded=settings.inverse_timeout != Settings().inverse_timeout,
        undo_attempts=settings.inverse_attempts,
        undo_delay=settings.inverse_delay,
        settle_after=settings.settle_after,
        wait_to_settle=settings.settle_unknown == "wait",
        after_stuck=settings.after_stuck,
        cancel_grace=settings.cancel_grace,
        approval=settings.approval_timeout,
    )


def on_crash_options(
    settings: Settings, on_crash: str | None, resume_grace: float | None
) -> dict[str, Any]:
    """Return what holds of a boundary's options for a crash: its own, else the settings."""
    return {
        "on_crash": settings.on_crash if on_crash is None else on_crash,
        "resume_grace": settings.resume_grace if resume_grace is None else resume_grace,
    }


@functools.cache
def process_runtime() -> Runtime:
    """Return the runtime of boundaries that belong to no kit and name no log or gate."""
    return Runtime()

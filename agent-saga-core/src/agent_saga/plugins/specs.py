"""The hooks of agent-saga; this file is the manual for authors of plugins.

How a plugin is made: a module or an object whose functions carry `agent_saga.hookimpl` and the
names below, announced by an entry point of the group `agent_saga`, or given to
`PluginManager.register`.

Rules for every hook:

- An implementation names only the arguments that it wants; they are given by keyword.
- It is a plain function. A coroutine function and a wrapper (`wrapper=True`) are refused when the
  plugin is loaded, and so is a name that starts with `saga_` and is no hook.
- Registration and policy fail closed: an error in one of them stops the start. Observers and health
  are isolated: an error is logged and counted, and the others still run.
- No hook can append to the log, debit a limit, decide an approval or choose the order of undoing.
- After a crash registration simply runs again; a plugin keeps nothing that only a hook can restore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.plugins.markers import hookspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_saga.plugins.backends import BackendRegistry
    from agent_saga.plugins.commands import CommandRegistry
    from agent_saga.plugins.health import Health
    from agent_saga.plugins.integrations import IntegrationRegistry
    from agent_saga.plugins.notifiers import NotifierRegistry
    from agent_saga.plugins.registry import HandlerRegistry
    from agent_saga.plugins.tellers import TellerRegistry

__all__ = ["HOOKS"]


@hookspec
def saga_register_compensators(registry: HandlerRegistry) -> None:
    """Register inverses by name: `registry.add("stripe.refund", refund, idempotent=True)`.

    The agent's process and recovery both call it, so that both run the same code. An error stops
    the start. A name that another owner has is `DuplicateName`.

    Args:
        registry: the inverses of this process.
    """


@hookspec
def saga_register_probers(registry: HandlerRegistry) -> None:
    """Register probers by name: `registry.add("stripe.find_charge", find_charge)`.

    A prober says whether a forward call took effect when its answer was lost. An error stops the
    start.

    Args:
        registry: the probers of this process.
    """


@hookspec
def saga_register_reconcilers(registry: HandlerRegistry) -> None:
    """Register reconcilers of inverses, each under the name of its inverse.

    A reconciler looks, later, whether the inverse holds in the world. An error stops the start.

    Args:
        registry: the reconcilers of this process.
    """


@hookspec
def saga_register_backends(registry: BackendRegistry) -> None:
    """Register where a log or a state store can live, by the scheme of its address.

    `registry.add_wal("redis", open_log)` and `registry.add_state("redis", open_store)`; a factory
    gets the whole address. An error stops the start.

    Args:
        registry: the backends of this process.
    """


@hookspec
def saga_register_integrations(registry: IntegrationRegistry) -> None:
    """Say which framework or vendor a package integrates, for `agent-saga doctor`.

    An error stops the start.

    Args:
        registry: the integrations of this process.
    """


@hookspec
def saga_register_commands(registry: CommandRegistry) -> None:
    """Add commands to `agent-saga`, each by the address of its click command.

    `registry.add("ui", "agent_saga_debugger.cli:ui", summary="Open the debugger.")`; the module is
    imported when the command is run. An error stops the command line.

    Args:
        registry: the commands of the command line.
    """


@hookspec
def saga_register_notifiers(registry: NotifierRegistry) -> None:
    """Say who is told when a saga becomes a human's case: `registry.add("mail", send_mail)`.

    Recovery calls a notifier with a `Case` after the case is in the log: at least once for each
    case, and not again while it stays the same. It runs on a thread of its own and for a bounded
    time; what it raises is logged, and it is called again later. An error in this hook stops the
    start.

    Args:
        registry: the notifiers of this process.
    """


@hookspec
def saga_register_approval_notifiers(registry: TellerRegistry) -> None:
    """Register ways to tell people of a request for approval: `registry.add("pager", Pager)`.

    What is registered is an object with `notify(notice)`, or a function that makes one;
    `ApprovalGateway(notifier="pager")` uses it. What `notify` raises counts as not told. An error
    in this hook stops the start.

    Args:
        registry: the ways of this process, by name.
    """


@hookspec
def saga_gate_rules(settings: Any) -> Sequence[object] | None:
    """Return rules that the gate of every kit applies beside its own.

    All plugins are asked and all rules apply; the most severe answer wins, so a plugin can forbid
    more and never allow more. An error stops the start, since a policy that cannot be read must not
    count as none.

    Args:
        settings: the settings of this process.
    """


@hookspec
def saga_on_event(event: Any) -> None:
    """Observe an event after its record is out: an intent, an ending, an inverse, a verdict.

    Called on a thread of the plugin's own, in order; it may be slow, and when it cannot keep up
    events are dropped, counted and said. What it raises is logged and counted and changes nothing.
    An event in flight is lost in a crash; the log is the truth.

    Args:
        event: an immutable `Event`: name, time, saga, step, generation, data.
    """


@hookspec
def saga_guarantees() -> Sequence[Mapping[str, Any]] | None:
    """Return the guarantees that this plugin keeps, for `kit.guarantees()`.

    Each is a mapping with at least `id` and `sentence`. An error stops the manifest: what cannot be
    read is not claimed.
    """


@hookspec
def saga_health() -> Health | None:
    """Say whether this plugin can do what it promises, for `status()`.

    None means that there is nothing to say. An error counts as not ready.
    """


HOOKS = tuple(sorted(name for name in globals() if name.startswith("saga_")))
"""The names of all hooks."""

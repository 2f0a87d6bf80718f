"""agent-saga: the undo button for AI agents.

This is the whole public door. Names are loaded when they are first used, so that importing
agent-saga costs little; everything that is not listed here is private to the project.
"""

from __future__ import annotations

import importlib
from typing import Any

_DOOR = {
    "agent_saga.asgi.lifespan": ("saga_lifespan",),
    "agent_saga.controls.approvals": ("Approval", "ApprovalRequest", "ConsoleApprovals"),
    "agent_saga.controls.breaker.breaker": ("CircuitBreaker", "set_breaker"),
    "agent_saga.controls.breaker.policy": ("BreakerPolicy",),
    "agent_saga.controls.control": ("CallView",),
    "agent_saga.controls.gate": ("PreFlightGate",),
    "agent_saga.controls.humans.gateway": ("ApprovalGateway",),
    "agent_saga.controls.humans.hardware": ("HardwareApprovalProvider",),
    "agent_saga.controls.humans.keys": ("Ed25519Key", "WebAuthnKey"),
    "agent_saga.controls.humans.policy": ("ApprovalPolicy", "EscalationLevel"),
    "agent_saga.controls.humans.store": ("ApprovalStore",),
    "agent_saga.controls.notifiers.console": ("ConsoleNotifier",),
    "agent_saga.controls.notifiers.webhook": ("WebhookNotifier",),
    "agent_saga.controls.limits.chosen": ("set_limit_store",),
    "agent_saga.controls.limits.limit": ("BudgetLimit", "RateLimit"),
    "agent_saga.controls.limits.memory": ("MemoryLimitStore",),
    "agent_saga.controls.limits.scopes": ("by_arg", "by_tool", "combine"),
    "agent_saga.controls.limits.shared": ("FileLimitStore", "LimitStore"),
    "agent_saga.controls.decisions": ("DecisionRule",),
    "agent_saga.controls.policy.policy": ("Policy",),
    "agent_saga.controls.predicates": (
        "all_of",
        "any_of",
        "arg_exceeds",
        "arg_in",
        "arg_matches",
        "breaks_schema",
        "not_",
        "semantics_is",
        "tag_is",
        "tool_is",
    ),
    "agent_saga.controls.rules": ("Rule",),
    "agent_saga.controls.switch.kill_switch": ("KillSwitch", "set_kill_switch"),
    "agent_saga.domain.compensation": ("Compensation",),
    "agent_saga.domain.outcomes": ("Applied", "CannotTell", "Observation"),
    "agent_saga.domain.report": ("RollbackReport",),
    "agent_saga.domain.semantics": ("ActionSemantics",),
    "agent_saga.domain.templates": ("Template",),
    "agent_saga.engine.handle": ("SagaHandle",),
    "agent_saga.engine.retry": ("RetryPolicy",),
    "agent_saga.engine.wrap": ("SagaTool",),
    "agent_saga.errors": (
        "AbortRequested",
        "AgentSagaError",
        "AgentSagaWarning",
        "AlreadyDecided",
        "Ambiguous",
        "ApprovalDenied",
        "ApprovalError",
        "ApprovalPending",
        "ApprovalRequired",
        "BranchRefused",
        "CircuitOpen",
        "ClaimRefused",
        "CommittedUnsettled",
        "CompactionRefused",
        "CompensationError",
        "ConfigurationError",
        "DuplicateName",
        "DuplicateSaga",
        "ForkRefused",
        "Halted",
        "IllegalTransition",
        "LateAfterEnd",
        "LimitExceeded",
        "NoBoundary",
        "NotApplied",
        "NotFound",
        "NotRecordable",
        "NotSuspendable",
        "OutcomeUnknown",
        "PluginError",
        "Quarantined",
        "RecoveryError",
        "RecoveryRefused",
        "RefusedError",
        "ReplayConflict",
        "ResultNotRecorded",
        "SagaAborted",
        "SagaClosed",
        "SagaError",
        "SagaFenced",
        "SagaForked",
        "SagaSuspended",
        "SagaUnwinding",
        "SecretLeak",
        "StateError",
        "StateUnavailable",
        "StepError",
        "StepTimeout",
        "SuspendRequested",
        "ToolNotAwaited",
        "UndeclaredSemantics",
        "UndeclaredTool",
        "UndoRefused",
        "UnknownHandler",
        "WALBackpressure",
        "WALCorrupt",
        "WALError",
        "WALFormatError",
        "WALFull",
        "WALPathError",
        "WALPoisoned",
        "WALStalled",
    ),
    "agent_saga.evidence.verify": ("ChainReport", "verify_chain"),
    "agent_saga.kit.agent_kit": ("AgentKit",),
    "agent_saga.kit.scopes": ("current_saga", "last_report", "saga", "saga_scope"),
    "agent_saga.kit.status": ("Status",),
    "agent_saga.runtime.daemon": ("RecoveryDaemon",),
    "agent_saga.kit.tools": ("tool",),
    "agent_saga.observe.events": ("Event",),
    "agent_saga.observe.logging": ("configure_logging",),
    "agent_saga.plugins.health": ("Health",),
    "agent_saga.plugins.markers": ("hookimpl",),
    "agent_saga.plugins.registration": ("compensator", "prober", "reconciler"),
    "agent_saga.runtime.composition": ("tool_executor_stats",),
    "agent_saga.runtime.logs": ("set_default_wal",),
    "agent_saga.runtime.settings": ("Settings",),
    "agent_saga.runtime.stores": ("FileApprovalStore", "FileSwitchStore"),
    "agent_saga.wal.base": ("BackpressurePolicy", "BaseWAL", "Capabilities"),
    "agent_saga.wal.compaction": ("Compacted",),
    "agent_saga.wal.encoding": ("assert_no_secrets",),
    "agent_saga.wal.file": ("AsyncWAL", "FileWAL"),
    "agent_saga.wal.memory": ("MemoryWAL",),
    "agent_saga.wal.sink": ("SinkWAL",),
}
_HOME = {name: module for module, names in _DOOR.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list; the linter wants it spelt out a third time


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'agent_saga' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})

# Written by python -m tools.public_door; do not edit.

from agent_saga.asgi.lifespan import saga_lifespan as saga_lifespan
from agent_saga.controls.approvals import Approval as Approval
from agent_saga.controls.approvals import ApprovalRequest as ApprovalRequest
from agent_saga.controls.approvals import ConsoleApprovals as ConsoleApprovals
from agent_saga.controls.breaker.breaker import CircuitBreaker as CircuitBreaker
from agent_saga.controls.breaker.breaker import set_breaker as set_breaker
from agent_saga.controls.breaker.policy import BreakerPolicy as BreakerPolicy
from agent_saga.controls.control import CallView as CallView
from agent_saga.controls.decisions import DecisionRule as DecisionRule
from agent_saga.controls.gate import PreFlightGate as PreFlightGate
from agent_saga.controls.humans.gateway import ApprovalGateway as ApprovalGateway
from agent_saga.controls.humans.hardware import HardwareApprovalProvider as HardwareApprovalProvider
from agent_saga.controls.humans.keys import Ed25519Key as Ed25519Key
from agent_saga.controls.humans.keys import WebAuthnKey as WebAuthnKey
from agent_saga.controls.humans.policy import ApprovalPolicy as ApprovalPolicy
from agent_saga.controls.humans.policy import EscalationLevel as EscalationLevel
from agent_saga.controls.humans.store import ApprovalStore as ApprovalStore
from agent_saga.controls.limits.chosen import set_limit_store as set_limit_store
from agent_saga.controls.limits.limit import BudgetLimit as BudgetLimit
from agent_saga.controls.limits.limit import RateLimit as RateLimit
from agent_saga.controls.limits.memory import MemoryLimitStore as MemoryLimitStore
from agent_saga.controls.limits.scopes import by_arg as by_arg
from agent_saga.controls.limits.scopes import by_tool as by_tool
from agent_saga.controls.limits.scopes import combine as combine
from agent_saga.controls.limits.shared import FileLimitStore as FileLimitStore
from agent_saga.controls.limits.shared import LimitStore as LimitStore
from agent_saga.controls.notifiers.console import ConsoleNotifier as ConsoleNotifier
from agent_saga.controls.notifiers.webhook import WebhookNotifier as WebhookNotifier
from agent_saga.controls.policy.policy import Policy as Policy
from agent_saga.controls.predicates import all_of as all_of
from agent_saga.controls.predicates import any_of as any_of
from agent_saga.controls.predicates import arg_exceeds as arg_exceeds
from agent_saga.controls.predicates import arg_in as arg_in
from agent_saga.controls.predicates import arg_matches as arg_matches
from agent_saga.controls.predicates import breaks_schema as breaks_schema
from agent_saga.controls.predicates import not_ as not_
from agent_saga.controls.predicates import semantics_is as semantics_is
from agent_saga.controls.predicates import tag_is as tag_is
from agent_saga.controls.predicates import tool_is as tool_is
from agent_saga.controls.rules import Rule as Rule
from agent_saga.controls.switch.kill_switch import KillSwitch as KillSwitch
from agent_saga.controls.switch.kill_switch import set_kill_switch as set_kill_switch
from agent_saga.domain.compensation import Compensation as Compensation
from agent_saga.domain.outcomes import Applied as Applied
from agent_saga.domain.outcomes import CannotTell as CannotTell
from agent_saga.domain.outcomes import Observation as Observation
from agent_saga.domain.report import RollbackReport as RollbackReport
from agent_saga.domain.semantics import ActionSemantics as ActionSemantics
from agent_saga.domain.templates import Template as Template
from agent_saga.engine.handle import SagaHandle as SagaHandle
from agent_saga.engine.retry import RetryPolicy as RetryPolicy
from agent_saga.engine.wrap import SagaTool as SagaTool
from agent_saga.errors import AbortRequested as AbortRequested
from agent_saga.errors import AgentSagaError as AgentSagaError
from agent_saga.errors import AgentSagaWarning as AgentSagaWarning
from agent_saga.errors import AlreadyDecided as AlreadyDecided
from agent_saga.errors import Ambiguous as Ambiguous
from agent_saga.errors import ApprovalDenied as ApprovalDenied
from agent_saga.errors import ApprovalError as ApprovalError
from agent_saga.errors import ApprovalPending as ApprovalPending
from agent_saga.errors import ApprovalRequired as ApprovalRequired
from agent_saga.errors import BranchRefused as BranchRefused
from agent_saga.errors import CircuitOpen as CircuitOpen
from agent_saga.errors import ClaimRefused as ClaimRefused
from agent_saga.errors import CommittedUnsettled as CommittedUnsettled
from agent_saga.errors import CompactionRefused as CompactionRefused
from agent_saga.errors import CompensationError as CompensationError
from agent_saga.errors import ConfigurationError as ConfigurationError
from agent_saga.errors import DuplicateName as DuplicateName
from agent_saga.errors import DuplicateSaga as DuplicateSaga
from agent_saga.errors import ForkRefused as ForkRefused
from agent_saga.errors import Halted as Halted
from agent_saga.errors import IllegalTransition as IllegalTransition
from agent_saga.errors import LateAfterEnd as LateAfterEnd
from agent_saga.errors import LimitExceeded as LimitExceeded
from agent_saga.errors import NoBoundary as NoBoundary
from agent_saga.errors import NotApplied as NotApplied
from agent_saga.errors import NotFound as NotFound
from agent_saga.errors import NotRecordable as NotRecordable
from agent_saga.errors import NotSuspendable as NotSuspendable
from agent_saga.errors import OutcomeUnknown as OutcomeUnknown
from agent_saga.errors import PluginError as PluginError
from agent_saga.errors import Quarantined as Quarantined
from agent_saga.errors import RecoveryError as RecoveryError
from agent_saga.errors import RecoveryRefused as RecoveryRefused
from agent_saga.errors import RefusedError as RefusedError
from agent_saga.errors import ReplayConflict as ReplayConflict
from agent_saga.errors import ResultNotRecorded as ResultNotRecorded
from agent_saga.errors import SagaAborted as SagaAborted
from agent_saga.errors import SagaClosed as SagaClosed
from agent_saga.errors import SagaError as SagaError
from agent_saga.errors import SagaFenced as SagaFenced
from agent_saga.errors import SagaForked as SagaForked
from agent_saga.errors import SagaSuspended as SagaSuspended
from agent_saga.errors import SagaUnwinding as SagaUnwinding
from agent_saga.errors import SecretLeak as SecretLeak
from agent_saga.errors import StateError as StateError
from agent_saga.errors import StateUnavailable as StateUnavailable
from agent_saga.errors import StepError as StepError
from agent_saga.errors import StepTimeout as StepTimeout
from agent_saga.errors import SuspendRequested as SuspendRequested
from agent_saga.errors import ToolNotAwaited as ToolNotAwaited
from agent_saga.errors import UndeclaredSemantics as UndeclaredSemantics
from agent_saga.errors import UndeclaredTool as UndeclaredTool
from agent_saga.errors import UndoRefused as UndoRefused
from agent_saga.errors import UnknownHandler as UnknownHandler
from agent_saga.errors import WALBackpressure as WALBackpressure
from agent_saga.errors import WALCorrupt as WALCorrupt
from agent_saga.errors import WALError as WALError
from agent_saga.errors import WALFormatError as WALFormatError
from agent_saga.errors import WALFull as WALFull
from agent_saga.errors import WALPathError as WALPathError
from agent_saga.errors import WALPoisoned as WALPoisoned
from agent_saga.errors import WALStalled as WALStalled
from agent_saga.evidence.verify import ChainReport as ChainReport
from agent_saga.evidence.verify import verify_chain as verify_chain
from agent_saga.kit.agent_kit import AgentKit as AgentKit
from agent_saga.kit.scopes import current_saga as current_saga
from agent_saga.kit.scopes import last_report as last_report
from agent_saga.kit.scopes import saga as saga
from agent_saga.kit.scopes import saga_scope as saga_scope
from agent_saga.kit.status import Status as Status
from agent_saga.kit.tools import tool as tool
from agent_saga.observe.events import Event as Event
from agent_saga.observe.logging import configure_logging as configure_logging
from agent_saga.plugins.health import Health as Health
from agent_saga.plugins.markers import hookimpl as hookimpl
from agent_saga.plugins.registration import compensator as compensator
from agent_saga.plugins.registration import prober as prober
from agent_saga.plugins.registration import reconciler as reconciler
from agent_saga.runtime.composition import tool_executor_stats as tool_executor_stats
from agent_saga.runtime.daemon import RecoveryDaemon as RecoveryDaemon
from agent_saga.runtime.logs import set_default_wal as set_default_wal
from agent_saga.runtime.settings import Settings as Settings
from agent_saga.runtime.stores import FileApprovalStore as FileApprovalStore
from agent_saga.runtime.stores import FileSwitchStore as FileSwitchStore
from agent_saga.wal.base import BackpressurePolicy as BackpressurePolicy
from agent_saga.wal.base import BaseWAL as BaseWAL
from agent_saga.wal.base import Capabilities as Capabilities
from agent_saga.wal.compaction import Compacted as Compacted
from agent_saga.wal.encoding import assert_no_secrets as assert_no_secrets
from agent_saga.wal.file import AsyncWAL as AsyncWAL
from agent_saga.wal.file import FileWAL as FileWAL
from agent_saga.wal.memory import MemoryWAL as MemoryWAL
from agent_saga.wal.sink import SinkWAL as SinkWAL

__all__ = [
    "AbortRequested",
    "ActionSemantics",
    "AgentKit",
    "AgentSagaError",
    "AgentSagaWarning",
    "AlreadyDecided",
    "Ambiguous",
    "Applied",
    "Approval",
    "ApprovalDenied",
    "ApprovalError",
    "ApprovalGateway",
    "ApprovalPending",
    "ApprovalPolicy",
    "ApprovalRequest",
    "ApprovalRequired",
    "ApprovalStore",
    "AsyncWAL",
    "BackpressurePolicy",
    "BaseWAL",
    "BranchRefused",
    "BreakerPolicy",
    "BudgetLimit",
    "CallView",
    "CannotTell",
    "Capabilities",
    "ChainReport",
    "CircuitBreaker",
    "CircuitOpen",
    "ClaimRefused",
    "CommittedUnsettled",
    "Compacted",
    "CompactionRefused",
    "Compensation",
    "CompensationError",
    "ConfigurationError",
    "ConsoleApprovals",
    "ConsoleNotifier",
    "DecisionRule",
    "DuplicateName",
    "DuplicateSaga",
    "Ed25519Key",
    "EscalationLevel",
    "Event",
    "FileApprovalStore",
    "FileLimitStore",
    "FileSwitchStore",
    "FileWAL",
    "ForkRefused",
    "Halted",
    "HardwareApprovalProvider",
    "Health",
    "IllegalTransition",
    "KillSwitch",
    "LateAfterEnd",
    "LimitExceeded",
    "LimitStore",
    "MemoryLimitStore",
    "MemoryWAL",
    "NoBoundary",
    "NotApplied",
    "NotFound",
    "NotRecordable",
    "NotSuspendable",
    "Observation",
    "OutcomeUnknown",
    "PluginError",
    "Policy",
    "PreFlightGate",
    "Quarantined",
    "RateLimit",
    "RecoveryDaemon",
    "RecoveryError",
    "RecoveryRefused",
    "RefusedError",
    "ReplayConflict",
    "ResultNotRecorded",
    "RetryPolicy",
    "RollbackReport",
    "Rule",
    "SagaAborted",
    "SagaClosed",
    "SagaError",
    "SagaFenced",
    "SagaForked",
    "SagaHandle",
    "SagaSuspended",
    "SagaTool",
    "SagaUnwinding",
    "SecretLeak",
    "Settings",
    "SinkWAL",
    "StateError",
    "StateUnavailable",
    "Status",
    "StepError",
    "StepTimeout",
    "SuspendRequested",
    "Template",
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
    "WebAuthnKey",
    "WebhookNotifier",
    "all_of",
    "any_of",
    "arg_exceeds",
    "arg_in",
    "arg_matches",
    "assert_no_secrets",
    "breaks_schema",
    "by_arg",
    "by_tool",
    "combine",
    "compensator",
    "configure_logging",
    "current_saga",
    "hookimpl",
    "last_report",
    "not_",
    "prober",
    "reconciler",
    "saga",
    "saga_lifespan",
    "saga_scope",
    "semantics_is",
    "set_breaker",
    "set_default_wal",
    "set_kill_switch",
    "set_limit_store",
    "tag_is",
    "tool",
    "tool_executor_stats",
    "tool_is",
    "verify_chain",
]

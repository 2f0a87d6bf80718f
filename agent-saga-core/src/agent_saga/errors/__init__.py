"""Every error that agent-saga raises, in one tree.

Rules of this part:

- One root, `AgentSagaError`; the branches say who must act. `ConfigurationError`: the author of
  the program. `RefusedError`: nobody, the system worked and the effect did not happen.
  `StepError`: the caller of one tool. `SagaError`: the caller of the boundary. `WALError`,
  `StateError`, `RecoveryError` and `ApprovalError`: the operator. `NotFound` and `Ambiguous`:
  whoever named something.
- Each class has a stable `code` (`SAGA-…`) that never changes its meaning, and may carry `fix`: the
  next thing to do, as one sentence or command. `str(error)` is the whole message with code and fix.
- `NotApplied` is both an answer of a prober and an exception that a tool may raise; either way it
  says: this call had no effect.
- Each branch has a module of its own; all of them are imported from here, and say so of themselves:
  a traceback names the place that a reader can import from.
- What user code must not swallow leaves a boundary as it came (`CancelledError`,
  `KeyboardInterrupt`, `SystemExit`), with the report in its notes.
"""

from __future__ import annotations

from agent_saga.errors.authoring import (
    ConfigurationError,
    DuplicateName,
    NotRecordable,
    PluginError,
    SecretLeak,
    ToolNotAwaited,
    UndeclaredSemantics,
    UndeclaredTool,
    UnknownHandler,
)
from agent_saga.errors.boundaries import (
    AbortRequested,
    ApprovalPending,
    CommittedUnsettled,
    DuplicateSaga,
    NotSuspendable,
    SagaAborted,
    SagaError,
    SagaSuspended,
    SuspendRequested,
)
from agent_saga.errors.calls import (
    ApprovalDenied,
    ApprovalRequired,
    BranchRefused,
    CircuitOpen,
    CompensationError,
    Halted,
    LateAfterEnd,
    LimitExceeded,
    NoBoundary,
    NotApplied,
    OutcomeUnknown,
    Quarantined,
    RefusedError,
    ReplayConflict,
    ResultNotRecorded,
    SagaClosed,
    SagaFenced,
    SagaForked,
    SagaUnwinding,
    StepError,
    StepTimeout,
)
from agent_saga.errors.operating import (
    AlreadyDecided,
    Ambiguous,
    ApprovalError,
    ClaimRefused,
    CompactionRefused,
    ForkRefused,
    NotFound,
    RecoveryError,
    RecoveryRefused,
    StateError,
    StateUnavailable,
    UndoRefused,
    WALBackpressure,
    WALCorrupt,
    WALError,
    WALFormatError,
    WALFull,
    WALPathError,
    WALPoisoned,
    WALStalled,
)
from agent_saga.errors.root import (
    AgentSagaError,
    AgentSagaWarning,
    IllegalTransition,
    one_line,
    said_by,
    text_of,
)

__all__ = [
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
    "one_line",
    "said_by",
    "text_of",
]

for _name in __all__:
    globals()[_name].__module__ = __name__

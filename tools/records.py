"""What each record of the log says, in one sentence, for the reference; a new one is told here."""

from __future__ import annotations

from typing import Final

SAYS: Final = {
    "WRITER_OPEN": "A process began to write: its id, its boot, the versions that it runs.",
    "WRITER_CLOSE": "That process closed its log in good order.",
    "SEGMENT_SEAL": "A file of the log is full and ends here; the next one follows.",
    "MARK": "Everything up to a sequence number is known to be on disk.",
    "SAGA_BEGIN": "A boundary began: its name and labels. Written with its first step.",
    "SAGA_CLAIM": "Another process took the saga over: why, who asked, and where its log was cut.",
    "SAGA_SUSPENDED": "The run waits, neither ended nor dead: for what, until when, and what then.",
    "SAGA_UNDONE_TO": "The steps after a point were undone; the saga is committed up to it.",
    "SAGA_RESUMED": "A run that had waited goes on: who took it up.",
    "SAGA_RELEASED": "The process gave the saga up, without having finished it.",
    "SAGA_UNWINDING": "Undoing began: why. No step may start from here on.",
    "SAGA_COMMITTED": "The boundary was left well; the steps of which the ending is unknown.",
    "SAGA_ROLLED_BACK": "Undoing ended, and everything that had to be undone was.",
    "SAGA_PARTIAL": "Undoing ended, and something stands: which steps.",
    "SAGA_STUCK": "Undoing could not be finished: where it stopped.",
    "SAGA_REOPENED": "A call took effect after its saga had ended.",
    "SAGA_CLOSED": "A person dealt with the case: who, and why.",
    "SCOPE_OPEN": "A savepoint was entered.",
    "SCOPE_CLOSED": "A savepoint was left: well, or undone, or with something standing.",
    "STEP_REFUSED": "A call was refused before its effect: by which rule, and why.",
    "STEP_INTENT": "A call is announced: tool, arguments, what was prepared, who approved it.",
    "STEP_ATTEMPT": "One of several attempts at a call ended: how.",
    "STEP_COMMITTED": "A call took effect: its result, and its inverse or why there is none.",
    "STEP_NOT_APPLIED": "A call had no effect: who says so.",
    "STEP_UNKNOWN": "A call ended, and whether it took effect is unknown.",
    "STEP_LATE": "A call that had been given up took effect after all.",
    "STEP_COMPENSATING": "An inverse is announced: its handler, arguments, key and attempt.",
    "STEP_COMPENSATED": "A step is undone: who says so.",
    "STEP_COMPENSATION_NOT_APPLIED": "An attempt at an inverse had no effect.",
    "STEP_COMPENSATION_UNKNOWN": "An inverse ended, and whether it took effect is unknown.",
    "STEP_COMPENSATION_FAILED": "An inverse failed for good; it is not repeated by itself.",
    "STEP_ORPHANED": "A step may stand, and has no inverse that can be used: why.",
    "STEP_UNRESOLVED": "A step was not reached, because undoing stopped before it.",
    "STEP_KEPT": "An irreversible step stands for ever: who had approved it.",
    "STEP_CLOSED": "A person dealt with this step: who, and why.",
}

"""What a framework package gives to the kit: a driver of its agents.

    class Driver(AgentDriver):
        def agent(self, kit, script, tools, options): ...
        async def run(self, agent): ...
        …

Rules of this part:

- A driver holds nothing but its folder: another process makes one of the same folder and goes on.
- It lies in a file that imports nothing beside it, so that another process can load it from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent_saga import AgentKit, PreFlightGate, Settings
from agent_saga.controls.approvals import ApprovalProvider

__all__ = ["AgentDriver", "Call", "CaseTool", "Ended", "Options", "Turn"]

QUICK = Settings(
    settle=5.0, settle_after=0.1, inverse_timeout=5.0, inverse_delay=0.0, cancel_grace=0.2
)


class Call(NamedTuple):
    """One tool call that the scripted model makes.

    Attributes:
        tool: the tool's name.
        args: its arguments.
        id: the call's id; one of its own when empty.
    """

    tool: str
    args: Mapping[str, Any] = {}
    id: str = ""


Turn = Sequence[Call] | str | Exception
"""What the model does in one turn: calls tools in parallel, says its last word, or fails."""


class CaseTool(NamedTuple):
    """A tool of a case, and what it does to the world.

    Attributes:
        name: what the model calls it.
        function: sync or async, with annotations and a docstring.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE.
        compensate: how its inverse is derived.
        timeout: seconds after which the engine gives a call up; None for never.
    """

    name: str
    function: Callable[..., Any]
    semantics: str = "REVERSIBLE"
    compensate: object = None
    timeout: float | None = None


class Options(NamedTuple):
    """How an agent of a case behaves.

    Attributes:
        on_tool_failure: what the package does when a tool fails.
        shows_errors: the framework turns every tool error into text for the model.
        tool_retries: how often the framework runs a failed tool step again.
        model_retries: how often the framework asks a failed model again.
        resumable: its runs can be interrupted, and gone on with by another process.
        key: an id of the caller's own for the saga of its run; empty for none.
    """

    on_tool_failure: str = "continue"
    shows_errors: bool = False
    tool_retries: int = 0
    model_retries: int = 0
    resumable: bool = False
    key: str = ""


class Ended(NamedTuple):
    """How a run ended.

    Attributes:
        text: the model's last word.
        waits: it was interrupted, and waits for `resume`.
    """

    text: str
    waits: bool = False


class AgentDriver(ABC):
    """Drives the agents of one framework.

    Args:
        folder: where everything that outlives a process is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kit = self._made_kit(None)

    def kit(self, gate: PreFlightGate | None = None) -> AgentKit:
        """Return the kit over the folder's log, or one of its own for a gate."""
        return self._kit if gate is None else self._made_kit(gate)

    def _made_kit(self, gate: PreFlightGate | None) -> AgentKit:
        return AgentKit("agent", wal=str(self.folder / "log"), gate=gate, settings=QUICK)

    @abstractmethod
    def agent(
        self, kit: AgentKit, script: Sequence[Turn], tools: Sequence[CaseTool], options: Options
    ) -> Any:
        """Return an agent, put under the package's care, whose model plays the script."""

    @abstractmethod
    async def run(self, agent: Any) -> Ended:
        """Run an agent on any prompt."""

    @abstractmethod
    def run_sync(self, agent: Any) -> Ended:
        """Run an agent where no event loop is running."""

    @abstractmethod
    async def resume(self, agent: Any, answer: str | None) -> Ended:
        """Go on with a run that waits, or that died when `answer` is None."""

    @abstractmethod
    def approvals(self) -> ApprovalProvider:
        """Return what asks a human by suspending the run, until `decide` is called."""

    @abstractmethod
    async def decide(self, agent: Any, *, approved: bool) -> Ended:
        """Go on with a run that waits for one approval, with the answer."""

    @abstractmethod
    def stream(self, agent: Any) -> AsyncIterator[Any]:
        """Run an agent and give what it does, as it does it."""

    @abstractmethod
    def asks(self) -> Callable[[str], str]:
        """Return the function of a tool that asks a human by the framework's own means."""

    @abstractmethod
    def nested(self, agent: Any) -> Callable[..., Any]:
        """Return the function of a tool that runs an agent to its end."""

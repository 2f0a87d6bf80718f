"""The hooks of a run: a gate before every tool call, for tools that somebody forgot, too.

Rules of this part:

- The hooks hold for one run, through CrewAI's scoped hooks; those that are in force round the run
  stay in force. A scope that is opened inside the run hides them: hooks of the whole process, which
  do nothing else, put them into it.
- CrewAI lets a call go on when a hook fails. So whatever fails here ends the run, and the call does
  not begin: fails closed.
- A tool that is not wrapped is wrapped here, if the code or the policy declares it: those of MCP
  servers and platforms reach an agent only while it runs. One that nobody declared ends the run.
- CrewAI's own tools are let through: for delegating (what the other agent does is judged there),
  for its memory, its skills, and files that it was given.
- A hook before a call can only block that call. What ends the run leaves from the hooks after it,
  before a model is asked, and before a step; CrewAI passes that on as it is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

from crewai.hooks.dispatch import (
    HookAborted,
    InterceptionPoint,
    get_hooks,
    get_scoped_hooks,
    register,
    register_scoped,
    scoped_hooks,
)
from crewai.tools import BaseTool

from agent_saga.kit.frameworks.declarations import from_policy, undeclared
from agent_saga_crewai.effects import calling, effects_of, tool_of
from agent_saga_crewai.models import watched
from agent_saga_crewai.place import is_internal
from agent_saga_crewai.runs import Run, current_run, executing
from agent_saga_crewai.tools import behind, is_wrapped, wrap_in_place

_MARK: Final = "agent_saga_gate"
_OWN: Final = (
    *("crewai.tools.agent_tools.", "crewai.tools.cache_tools.", "crewai.tools.memory_tools"),
    "crewai.skills.",
)
Hook = Callable[[Any], Any]


class Gate:
    """The hooks of one run.

    Args:
        run: what they watch.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Have the hooks in force inside."""
        own = {
            InterceptionPoint.EXECUTION_START: self.before_execution,
            InterceptionPoint.PRE_STEP: self.before_step,
            InterceptionPoint.PRE_MODEL_CALL: self.before_model,
            InterceptionPoint.PRE_TOOL_CALL: self.before_tool,
            InterceptionPoint.POST_TOOL_CALL: self.after_tool,
        }
        ours = {point: self._closing(hook) for point, hook in own.items()}
        hooks: dict[InterceptionPoint, list[Hook]] = {
            point: [hook for hook in get_scoped_hooks(point) if not hasattr(hook, _MARK)]
            for point in InterceptionPoint
        }
        self._run.guard = functools.partial(_guard, ours)
        for point, keeper in _KEEPERS.items():
            if keeper not in get_hooks(point):
                register(point, keeper)
        with scoped_hooks(hooks):
            _guard(ours)
            yield

    def _closing(self, hook: Hook) -> Hook:
        def closing(context: Any) -> None:
            try:
                hook(context)
            except HookAborted:
                raise
            except Exception as error:
                raise self._run.stop(error) from error

        closing.__dict__[_MARK] = True
        return closing

    def before_execution(self, context: Any) -> None:
        """Watch the models of a crew that begins."""
        self._run.check()
        if context.crew is not None:
            executing()
            for agent in agents_of(context.crew):
                watched(agent)

    def before_step(self, context: Any) -> None:
        """Note which method of a flow begins; watch an agent that CrewAI made for a task."""
        self._run.check()
        if context.kind == "task" and context.agent is not None:
            watched(context.agent)
        if context.kind == "flow_method" and not is_internal(context.flow):
            executing(str(context.step_name))

    def before_model(self, context: Any) -> None:
        """Note that an attempt of an agent by itself begins, when it does."""
        run = self._run
        run.check()
        if context.task is None and context.executor is not None and context.iterations == 0:
            run.begin(context.agent, None, context.crew, context.executor)

    def before_tool(self, context: Any) -> None:
        """Let a call begin that will be a step, and no other.

        Raises:
            RunEnded: it must not begin.
        """
        run = self._run
        calling.set(None)
        run.check()
        if context.tool is None:
            return
        tool = tool_of(context)
        if run.pace is not None:
            run.pace()
            run.check()
        if not is_wrapped(tool) and not type(tool).__module__.startswith(_OWN):
            self._wrap(context, tool)
        run.effects.update(map(id, effects_of(tool)))
        calling.set(context)

    def _wrap(self, context: Any, tool: Any) -> None:
        name = str(getattr(tool, "name", context.tool_name))
        declaration = self._run.declared.get(name) or from_policy(self._run.kit, name)
        if declaration is None or not isinstance(tool, BaseTool):
            raise self._run.stop(undeclared([name]))
        self._run.declared.check_meant(name, tool, behind=behind)
        wrap_in_place(tool, declaration, self._run.kit)
        if context.tool is not tool:
            context.tool.func = tool._run  # noqa: SLF001 - as CrewAI made it

    def after_tool(self, context: Any) -> None:
        """End the run here if the call ended it.

        Raises:
            RunEnded: so it did.
        """
        calling.set(None)
        self._run.check()


def _guard(ours: dict[InterceptionPoint, Hook], at: InterceptionPoint | None = None) -> Hook | None:
    """Put the gate into the present scope where it is hidden; return what was hidden at a point."""
    hidden = [p for p in ours if not any(hasattr(h, _MARK) for h in get_scoped_hooks(p))]
    for point in hidden:
        register_scoped(point, ours[point])
    return ours[at] if at in hidden else None


def _keeper(point: InterceptionPoint) -> Hook:
    """Return the hook of the whole process that does what a hidden one of a run would have done."""

    def keeper(context: Any) -> None:
        run = current_run()
        hidden = run.guard(point) if run is not None else None
        if hidden is not None:
            hidden(context)

    return keeper


_KEEPERS: Final = {
    point: _keeper(point)
    for point in (
        InterceptionPoint.EXECUTION_START,
        InterceptionPoint.PRE_MODEL_CALL,
        InterceptionPoint.PRE_TOOL_CALL,
    )
}


def agents_of(crew: Any) -> list[Any]:
    """Return the agents of a crew, its manager and those of its tasks included."""
    tasks = [task.agent for task in crew.tasks if task.agent is not None]
    manager = [crew.manager_agent] if crew.manager_agent is not None else []
    return list({id(one): one for one in (*crew.agents, *manager, *tasks)}.values())

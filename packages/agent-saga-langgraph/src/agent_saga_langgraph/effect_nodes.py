"""`saga_node`: a node of a graph that is itself one effect.

Rules of this part:

- What the node reads of the state, as it is declared, is recorded and judged, and tells it from
  other calls of the same node.
- If nothing is declared, nothing of the state is recorded; a fingerprint of all of it tells the
  calls apart. A state that has none is told apart by its place in the graph alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent_saga.kit.frameworks.declared import engine_tool
from agent_saga.kit.frameworks.functions import in_place_of
from agent_saga.wal.encoding import mac
from agent_saga_langgraph.effects import Effect
from agent_saga_langgraph.place import UNCLEAR
from agent_saga_langgraph.tools import with_defaults

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.wrap import SagaTool
    from agent_saga.kit.agent_kit import AgentKit


class NodeEffect(Effect):
    """The function of a node.

    Args:
        tool: the function, declared and wrapped.
        reads: the fields of the state that stand for its arguments.
    """

    __slots__ = ("_reads",)

    def __init__(self, tool: SagaTool[..., Any], reads: tuple[str, ...]) -> None:
        super().__init__(tool, reads.__contains__)
        self._reads = reads

    def _chosen(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        state = next(iter(arguments.values()), None)
        if isinstance(state, Mapping):
            return {name: state[name] for name in self._reads if name in state}
        return {name: getattr(state, name) for name in self._reads if hasattr(state, name)}

    def _apart(self, saga: Saga, arguments: Mapping[str, Any]) -> str:
        if self._reads:
            return ""
        state = next(iter(arguments.values()), None)
        print_of = mac(saga.salt, state)
        return print_of.hex() if print_of == mac(saga.salt, state) else UNCLEAR


def saga_node(
    fn: Callable[..., Any],
    *,
    semantics: Any = None,
    compensate: object = None,
    kit: AgentKit | None = None,
    reads: tuple[str, ...] = (),
    name: str | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """Return a node that is itself one effect: a step of the boundary that its graph runs in.

    Args:
        fn: the node's function: of the state, and of what LangGraph injects; it returns the state's
            update, which must be plain data for a retry or a resume to be given it again.
        semantics: as for `wrap_tool`.
        compensate: as for `wrap_tool`; `$.` reads the update, `$args.` what it reads of the state.
        kit: the kit that the step belongs to.
        reads: the fields of the state that the effect depends on: rules and approvals see them, and
            a repeated node with other values is another step.
        name: how log, rules and reports name it; the function's name when not given.
        options: as for `wrap_tool`.

    Raises:
        UndeclaredSemantics: nothing says what the node does to the world.
        ConfigurationError: an option does not fit.

    Outside a boundary it runs as the bare function with one warning, unless it is IRREVERSIBLE.
    """
    given = {"semantics": semantics, "compensate": compensate, "name": name, **options}
    tool = engine_tool(fn, kit, with_defaults(given))
    return in_place_of(fn, NodeEffect(tool, reads))

"""The state that a waiting run returned, and is gone on with: what is no such state is refused.

Rules of this part:

- Everything is looked at before the saga is gone on with and before an agent's memory is changed: a
  state that is refused costs nothing, and what it waits for can still be answered.
- The log knows the state's digest: one that was cut or changed on its way is refused as a whole.
- The agent or team must be what the state is of: its members by name, and the tools that its
  waiting calls are of. AutoGen itself would go on without what a member remembers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent_saga.errors import ConfigurationError, one_line
from agent_saga_autogen import seams
from agent_saga_autogen.waiting import Turn, turns_of

_AS_IT_WAS: Final = "Give saga_run the `state` of what it returned, as it was."
_THE_SAME: Final = "Go on with the agent or team that waited."
_KEYS: Final[dict[str, type]] = {"saga": str, "mark": str, "turns": Mapping, "agent": Mapping}


class State(NamedTuple):
    """A state that has the form of one.

    Attributes:
        saga: the saga's id.
        mark: which wait of the saga it is of.
        turns: what was set aside, by the agents' names.
        agent: what the agent or team remembers.
        digest: of all of it.
    """

    saga: str
    mark: str
    turns: dict[str, Turn]
    agent: Mapping[str, Any]
    digest: str


def read(state: object) -> State:
    """Return a state that was given to a run.

    Raises:
        ConfigurationError: it is none.
    """
    if isinstance(state, (str, bytes, bytearray)):
        raise ConfigurationError(
            "The state is text.", fix="Give saga_run what was stored: state=json.loads(text)."
        )
    if not isinstance(state, Mapping):
        raise _none_of_ours(f"it is {type(state).__name__}, and no dict")
    for key, kind in _KEYS.items():
        if key not in state:
            raise _none_of_ours(f"it has no {key!r}")
        if not isinstance(state[key], kind) or state[key] == "":
            raise _none_of_ours(f"its {key!r} is {type(state[key]).__name__}")
    turns = turns_of(state["turns"])
    return State(state["saga"], state["mark"], turns, state["agent"], digest(state))


def digest(state: Mapping[str, Any]) -> str:
    """Return what tells a state from another one, however it was stored as JSON.

    Raises:
        ConfigurationError: it is no plain data.
    """
    try:
        text = json.dumps(_plain(state), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise _none_of_ours("it is no plain data") from error
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return data as every store of JSON gives it back: some make 1 of 1.0."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_digest(state: State, kept: Mapping[str, Any]) -> None:
    """See that a state is the one that its saga was suspended with.

    Raises:
        ConfigurationError: it is not.
    """
    if kept.get("digest") != state.digest:
        raise _none_of_ours("it was changed since")


async def load(agent: Any, waiters: Sequence[Any], state: State) -> None:
    """Give an agent or a team what it remembered.

    Args:
        agent: the agent or team.
        waiters: the agents whose calls can wait.
        state: the state.

    Raises:
        ConfigurationError: it is the state of another one; nothing was changed.
    """
    await _check_turns({str(one.name): one for one in waiters}, state.turns)
    try:
        before = await agent.save_state()
        _check_shape(state.agent, before)
        await _changed(agent, state.agent, before)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"The state cannot be given to {agent.name}: {one_line(error)}", fix=_THE_SAME
        ) from error


def _check_shape(given: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    if _shape(own) != _shape(given):
        raise ConfigurationError(
            f"The state is of {_members(given)}, and was given to {_members(own)}.", fix=_THE_SAME
        )


async def _changed(agent: Any, state: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    try:
        await agent.load_state(state)
    except BaseException:
        with contextlib.suppress(Exception):
            await agent.load_state(before)
        raise


async def _check_turns(agents: Mapping[str, Any], turns: Mapping[str, Turn]) -> None:
    for name, turn in turns.items():
        if name not in agents:
            raise ConfigurationError(
                f"The state is one of an agent {name}, and there is none.", fix=_THE_SAME
            )
        known = await _tools(agents[name])
        missing = sorted({call.name for call in turn.left()} - known)
        if missing:
            raise ConfigurationError(
                f"{name} waits with calls of {', '.join(missing)}, and has no such tool.",
                fix="Go on with an agent that has the tools of the one that waited.",
            )


async def _tools(agent: Any) -> set[str]:
    found = {str(tool.name) for tool in seams.handoffs(agent)}
    for workbench in seams.workbenches(agent):
        found |= {str(tool["name"]) for tool in await workbench.list_tools()}
    return found


def _shape(state: object) -> object:
    """Return of what agents and teams a state is."""
    if not isinstance(state, Mapping):
        return None
    members = state.get("agent_states")
    if not isinstance(members, Mapping):
        return state.get("type"), _shape(state.get("agent_state"))
    return state.get("type"), {str(name): _shape(one) for name, one in members.items()}


def _members(state: Mapping[str, Any]) -> str:
    members = state.get("agent_states")
    if not isinstance(members, Mapping):
        return f"an agent ({state.get('type', 'of no type')})"
    return f"a team of {', '.join(map(str, members))}"


def _none_of_ours(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The state is none that a waiting run has returned: {why}.", fix=_AS_IT_WAS
    )

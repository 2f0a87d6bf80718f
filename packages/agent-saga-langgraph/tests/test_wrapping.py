"""A wrapped tool is the tool: what the model and the graph see of it does not change."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from scripted import call

from agent_saga import ConfigurationError, NoBoundary, SagaAborted, UndeclaredSemantics
from agent_saga.errors import UndeclaredTool
from agent_saga_langgraph import (
    SagaMiddleware,
    SagaToolNode,
    compensable,
    safe_tool,
    wrap_tool,
    wrap_tools,
)
from agent_saga_langgraph.tools import is_wrapped


@tool(response_format="content_and_artifact")
def with_artifact(item: str):
    """Give content and artifact."""
    return f"about {item}", {"item": item}


@tool
def with_call_id(item: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Answer with a command."""
    answer = ToolMessage(f"about {item}", tool_call_id=call_id)
    return Command(update={"messages": [answer]})


@tool
def with_state(item: str, state: Annotated[dict, InjectedState]) -> str:
    """Read the state."""
    return f"{item} of {len(state['messages'])}"


@tool
def with_runtime(item: str, runtime: ToolRuntime) -> str:
    """Read the runtime."""
    return f"{item} by {runtime.tool_call_id}"


@tool
def with_config(item: str, config: RunnableConfig) -> str:
    """Read the configuration."""
    return f"{item} at {config['configurable']['place']}"


@tool(return_direct=True)
async def asynchronous(item: str) -> str:
    """Answer later."""
    return f"about {item}"


class OwnClass(BaseTool):
    name: str = "own_class"
    description: str = "a class of its own"

    def _run(self, item: str, config: RunnableConfig) -> str:
        return f"{item} at {config['configurable']['place']}"


class OwnAsyncClass(OwnClass):
    name: str = "own_async_class"

    async def _arun(self, item: str, config: RunnableConfig, run_manager: Any = None) -> str:
        return f"{item} later at {config['configurable']['place']}, {run_manager is not None}"


from_schema = StructuredTool(
    name="from_schema",
    description="takes a JSON schema",
    args_schema={"type": "object", "properties": {"item": {"type": "string"}}},
    func=lambda item: f"about {item}",
)

SHAPES = [
    with_artifact,
    with_call_id,
    with_state,
    with_runtime,
    with_config,
    OwnClass(),
    OwnAsyncClass(),
    from_schema,
]
CONFIG = {"configurable": {"place": "home"}}


def graph(given):
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([given]))
    builder.add_edge(START, "tools")
    return builder.compile()


def asked(given):
    return {"messages": [AIMessage("", tool_calls=[call(given.name, "c1", item="it")])]}


def answer(result):
    message = result["messages"][-1]
    return message.content, message.artifact, message.status, message.name


def name(given):
    return given.name


@pytest.mark.parametrize("given", SHAPES, ids=name)
def test_a_wrapped_tool_answers_as_the_tool_does(given, shop):
    wrapped = wrap_tool(given, semantics="REVERSIBLE", kit=shop.kit)
    plain = answer(graph(given).invoke(asked(given), CONFIG))
    with shop.kit.transaction():
        assert answer(graph(wrapped).invoke(asked(given), CONFIG)) == plain


@pytest.mark.parametrize("given", [*SHAPES, asynchronous], ids=name)
def test_a_wrapped_tool_answers_as_the_tool_does_on_a_loop(given, shop):
    wrapped = wrap_tool(given, semantics="REVERSIBLE", kit=shop.kit)

    async def case():
        plain = answer(await graph(given).ainvoke(asked(given), CONFIG))
        async with shop.kit.transaction():
            assert answer(await graph(wrapped).ainvoke(asked(given), CONFIG)) == plain

    asyncio.run(case())


@pytest.mark.parametrize("given", [*SHAPES, asynchronous], ids=name)
def test_the_model_sees_no_difference(given, shop):
    wrapped = wrap_tool(given, semantics="REVERSIBLE", kit=shop.kit)
    assert isinstance(wrapped, type(given))
    assert wrapped.name == given.name
    assert wrapped.description == given.description
    assert wrapped.return_direct == given.return_direct
    assert wrapped.args == given.args


@pytest.mark.parametrize("given", [with_artifact, OwnClass()], ids=name)
def test_each_call_is_one_step_with_what_the_model_chose(given, shop):
    wrapped = wrap_tool(given, compensate=shop.cancel.using(effect=1), kit=shop.kit)
    with pytest.raises(SagaAborted) as failed, shop.kit.transaction():
        graph(wrapped).invoke(asked(given), CONFIG)
        raise RuntimeError("the run fails")
    assert [line.tool for line in failed.value.report.standing] == [given.name]


def test_a_factory_gets_the_raw_result(shop):
    seen = []

    def factory(result):
        seen.append(result)
        return shop.cancel.using(effect=1).fill({})

    wrapped = wrap_tool(with_artifact, compensate=factory, kit=shop.kit)
    with shop.kit.transaction():
        wrapped.invoke(call("with_artifact", "c1", item="it"))
    assert seen == [("about it", {"item": "it"})]


def test_injected_arguments_stand_in_no_record(shop):
    wrapped = wrap_tool(with_state, semantics="COMPENSABLE", kit=shop.kit)
    with pytest.raises(SagaAborted), shop.kit.transaction() as saga:
        graph(wrapped).invoke(asked(with_state))
        [step] = saga._scope.saga.steps.values()
        assert step.arguments == {"item": "it"}
        raise RuntimeError("the run fails")


def test_outside_a_boundary_a_tool_runs_and_an_irreversible_one_is_refused(shop):
    assert wrap_tool(shop.book, compensate=shop.cancel.using(effect="$.id")).invoke(
        {"item": "seat"}
    )
    shop.world.assert_applied_once("seat")
    with pytest.raises(NoBoundary):
        wrap_tool(shop.book, semantics="IRREVERSIBLE").invoke(call("book", "c1", item="room"))
    shop.world.assert_applied_once("seat")


def test_what_is_wrapped_is_not_wrapped_again(shop):
    wrapped = wrap_tool(shop.book, compensate=shop.cancel.using(effect="$.id"))
    with pytest.raises(ConfigurationError, match="already"):
        wrap_tool(wrapped, semantics="REVERSIBLE")
    assert wrap_tools([wrapped], {}) == [wrapped]


def test_tools_of_one_name_must_be_one_tool(shop):
    declared = {"book": compensable(shop.cancel.using(effect="$.id"))}
    function = shop.book.func or shop.book.coroutine
    again = StructuredTool.from_function(function, name="book", description="Book an item.")
    other = StructuredTool.from_function(lambda item: item, name="book", description="Tell.")
    assert len(wrap_tools([shop.book, shop.book, again], declared)) == 3
    with pytest.raises(ConfigurationError, match="Two different tools are named book"):
        wrap_tools([shop.book, other], declared)
    middleware = SagaMiddleware(shop.kit, tools=declared)
    calls = [ToolCallRequest(call("book", "c1", item="a"), t, {}, None) for t in (again, other)]
    with shop.kit.transaction():
        assert middleware.wrap_tool_call(calls[0], lambda request: request.tool) is not again
        with pytest.raises(ConfigurationError, match="Two different tools are named book"):
            middleware.wrap_tool_call(calls[1], lambda request: request.tool)


def test_every_tool_must_be_declared(shop):
    with pytest.raises(UndeclaredSemantics):
        wrap_tool(shop.book)
    with pytest.raises(UndeclaredTool) as missing:
        wrap_tools(shop.tools, {"book": compensable(shop.cancel.using(effect="$.id"))})
    assert '"ask": compensable' in missing.value.fix
    assert '"fails": compensable' in missing.value.fix
    with pytest.raises(ConfigurationError, match="There is no tool bokk"):
        wrap_tools([shop.book], {"bokk": compensable(shop.cancel.using(effect="$.id"))})
    with pytest.raises(ConfigurationError, match="says nothing"):
        wrap_tools([shop.book], {"book": "COMPENSABLE"})


def test_a_function_becomes_a_tool(shop):
    def book(item: str) -> dict:
        """Book an item."""
        return shop.world.do(item)

    made = safe_tool(book, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)
    assert (made.name, made.description) == ("book", "Book an item.")
    with pytest.raises(SagaAborted), shop.kit.transaction():
        made.invoke({"item": "seat"})
        raise RuntimeError("the run fails")
    shop.world.assert_restored()


def test_a_tool_of_a_kit_becomes_one_with_its_undo(shop):
    @shop.kit.tool("COMPENSABLE")
    def reserve(item: str) -> dict:
        """Reserve an item."""
        return shop.world.do(item)

    @reserve.undo
    def release(result):
        shop.world.undo(result["id"])

    made = safe_tool(reserve)
    with pytest.raises(SagaAborted), shop.kit.transaction():
        made.invoke({"item": "seat"})
        raise RuntimeError("the run fails")
    shop.world.assert_restored()
    with pytest.raises(ConfigurationError, match="declared already"):
        safe_tool(reserve, semantics="REVERSIBLE")


def test_a_tool_of_another_kit_is_refused(shop, tmp_path):
    other = type(shop.kit)("other", wal=str(tmp_path / "other"))
    wrapped = wrap_tool(shop.book, compensate=shop.cancel.using(effect="$.id"), kit=other)
    with pytest.raises(SagaAborted, match="another kit"), shop.kit.transaction():
        wrapped.invoke({"item": "seat"})
    shop.world.assert_untouched()


REMOTE = {"type": "object", "properties": {"item": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "chosen"),
    [
        (REMOTE, {"item": "lamp", "colour": "red"}),
        ({"type": "object"}, {"item": "lamp", "colour": "red"}),
        ({**REMOTE, "additionalProperties": False}, {"item": "lamp"}),
    ],
    ids=["open", "empty", "closed"],
)
def test_what_the_model_chose_is_known_whatever_the_schema_names(saga_kit, schema, chosen):
    """A remote tool's schema admits arguments that it does not name; an approval must see them."""
    seen = []

    def look(args: dict[str, object]) -> None:
        seen.append(args)

    def remote(runtime: object = None, **arguments: object) -> str:
        return f"{arguments['item']} by {runtime}"

    plain = StructuredTool.from_function(
        remote, name="remote", description="Act elsewhere.", args_schema=schema
    )
    wrapped = wrap_tool(plain, semantics="REVERSIBLE", kit=saga_kit, prepare=look)
    with saga_kit.transaction():
        assert wrapped.invoke({"item": "lamp", "colour": "red"}) == "lamp by None"
    assert seen == [chosen]


def test_the_idempotency_key_is_given_by_the_engine_and_hidden_from_the_model(shop):
    keys = []

    def book(item: str, *, idempotency_key: str) -> dict:
        """Book an item."""
        keys.append(idempotency_key)
        return shop.world.do(item)

    async def reserve(item: str, idempotency_key: str = "mine") -> dict:
        """Book an item."""
        keys.append(idempotency_key)
        return shop.world.do(item)

    given = {"compensate": shop.cancel.using(effect="$.id"), "kit": shop.kit}
    booked, reserved = safe_tool(book, **given), safe_tool(reserve, **given)
    shown = wrap_tool(tool(reserve), **given)
    assert set(booked.args) == set(reserved.args) == {"item"}

    async def case():
        async with shop.kit.transaction():
            await booked.ainvoke({"item": "a"})
            await reserved.ainvoke({"item": "b"})
            await shown.ainvoke({"item": "c", "idempotency_key": "the model's"})

    asyncio.run(case())
    assert len(set(keys)) == 3
    assert all(len(key) == 64 for key in keys)


class OwnWay(OwnClass):
    """Does everything where it is called, and nothing behind it."""

    shop: Any = None

    def invoke(self, *args, **kwargs):
        return self.shop.book.func("seat")


class OwnWayOnALoop(OwnWay):
    async def ainvoke(self, *args, **kwargs):
        return self.shop.book.func("seat")


class OwnBatch(OwnClass):
    def batch(self, inputs, *args, **kwargs):
        return inputs


@pytest.mark.guarantee("LANGGRAPH-10")
@pytest.mark.parametrize("way", [OwnWay, OwnWayOnALoop, OwnBatch])
def test_a_class_that_may_do_everything_where_it_is_called_is_refused(way, shop):
    fields = {"shop": shop} if way is not OwnBatch else {}
    undo = shop.cancel.using(effect="$.id")
    with pytest.raises(ConfigurationError, match="no step would be seen"):
        wrap_tool(way(**fields), compensate=undo, kit=shop.kit)
    with pytest.raises(ConfigurationError, match="no step would be seen"):
        SagaToolNode([way(**fields)], kit=shop.kit, declared={"own_class": compensable(undo)})
    assert is_wrapped(wrap_tool(way(**fields), semantics="REVERSIBLE", kit=shop.kit))
    assert shop.world.applications() == 0


@pytest.mark.guarantee("LANGGRAPH-10")
def test_a_way_of_its_own_that_one_tool_alone_has_is_refused_too(shop):
    own = shop.book.model_copy()
    object.__setattr__(own, "invoke", lambda *_, **__: shop.book.func("seat"))
    with pytest.raises(ConfigurationError, match="brings its own invoke"):
        wrap_tool(own, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)


class OwnRun(StructuredTool):
    """Holds a function, and does something else."""

    shop: Any = None

    def _run(self, *args, config=None, run_manager=None, **kwargs):
        return self.shop.book.func("seat")


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_what_a_class_does_in_the_place_of_its_function_is_the_step(shop, on_a_loop):
    own = OwnRun.from_function(lambda item: item, name="own", description="own", shop=shop)
    wrapped = wrap_tool(own, compensate=shop.cancel.using(effect="$.id"), kit=shop.kit)
    with pytest.raises(SagaAborted) as failed, shop.kit.transaction():
        asyncio.run(wrapped.ainvoke({"item": "it"})) if on_a_loop else wrapped.invoke(
            {"item": "it"}
        )
        raise RuntimeError("the run fails")
    assert [line.tool for line in failed.value.report.compensated] == ["own"]
    shop.world.assert_stands()
    assert shop.world.applications() == 1

"""The front door as its documents show it."""

from __future__ import annotations

import asyncio
import functools

import pytest

import agent_saga
from agent_saga import (
    ActionSemantics,
    AgentKit,
    Compensation,
    ConfigurationError,
    FileWAL,
    MemoryWAL,
    PreFlightGate,
    Rule,
    SagaAborted,
    Settings,
    UndeclaredSemantics,
    UnknownHandler,
    WALError,
    compensator,
    current_saga,
    last_report,
    saga,
    saga_scope,
    set_default_wal,
    tool,
    tool_is,
)
from agent_saga_testing.waiting import until


class Boom(Exception):
    pass


@pytest.fixture
def memory():
    """The log of boundaries that name none."""
    wal = MemoryWAL()
    set_default_wal(wal)
    yield wal
    set_default_wal(None)


# --- the examples of the surface ------------------------------------------------------------------


def test_the_bare_script(kit):
    undone = []

    @compensator("refund")
    def refund(id):  # noqa: A002 - as documented
        undone.append(id)

    async def stripe_charge(amount):
        return {"id": "ch_1", "amount": amount}

    charge = kit.safe_tool(
        stripe_charge,
        semantics="COMPENSABLE",
        compensate=lambda r: {"handler": "refund", "kwargs": {"id": r["id"]}},
    )

    async def main():
        async with kit.transaction():
            await charge(amount=4200)
        async with kit.transaction(name="fails"):
            await charge(amount=4200)
            raise Boom

    with pytest.raises(SagaAborted):
        asyncio.run(main())
    assert undone == ["ch_1"]


def test_a_template_by_name(kit):
    undone = []

    @compensator("refund")
    def refund(id, *, idempotency_key):  # noqa: A002
        undone.append((id, len(idempotency_key)))

    same = ({"handler": "refund", "kwargs": {"id": "$.id"}}, refund.using(id="$.id"))
    for template in same:
        charge = kit.safe_tool(lambda: {"id": "ch_1"}, compensate=template)
        with pytest.raises(SagaAborted), kit.transaction():
            charge()
            raise Boom
    assert undone == [("ch_1", 64)] * 2


def test_a_template_that_does_not_fit_is_refused_when_it_is_written(kit):
    @compensator("refund")
    def refund(id):  # noqa: A002
        pass

    with pytest.raises(ConfigurationError):
        refund.using(colour="$.id")
    with pytest.raises(ConfigurationError):
        kit.safe_tool(lambda: 1, compensate={"handler": "refund", "kwargs": {}})
    with pytest.raises(UnknownHandler):
        kit.safe_tool(lambda: 1, compensate={"handler": "refnd", "kwargs": {"id": 1}})


def test_the_decorators_without_a_kit(memory):
    undone = []

    @tool(
        semantics=ActionSemantics.COMPENSABLE,
        compensate=lambda result: Compensation(
            fn=undone.append, handler=None, kwargs={}, description="take it back"
        ),
    )
    def charge_customer(customer_id, amount):
        return {"id": f"ch_{customer_id}"}

    @saga
    async def agent_run():
        await charge_customer(customer_id="cus_1", amount=4200)
        return "done"

    @saga(reraise=True)
    def sync_run():
        charge_customer("cus_2", 1)
        raise Boom

    assert asyncio.run(agent_run()) == "done"
    with pytest.raises(Boom) as caught:
        sync_run()
    assert not caught.value.saga_report.clean
    assert agent_run.__name__ == "agent_run"


def test_the_scope_and_its_steps(memory):
    ended = []

    async def main():
        async with saga_scope() as run:
            box = await run.execute(
                tool="aws.run_instances",
                semantics=ActionSemantics.COMPENSABLE,
                forward=lambda: "i-1",
                compensate=lambda r: Compensation(fn=ended.append, kwargs={}),
            )
            assert box == "i-1"

    asyncio.run(main())
    with saga_scope(name="plain") as run:
        assert run.name == "plain"
        assert run.execute(tool="read", semantics="READ_ONLY", forward=lambda: 5) == 5
    assert last_report().clean


def test_the_short_form(kit):
    undone, asked = [], []

    @kit.tool("COMPENSABLE")
    async def charge(customer_id: str, amount: int) -> dict:
        return {"id": f"ch_{customer_id}", "secret_count": 1, "amount": amount}

    @charge.undo(keep=("id",))
    async def refund(result, *, idempotency_key):
        undone.append(result)

    @charge.probe
    async def find(args, *, idempotency_key):
        asked.append(args)

    @charge.observe
    async def check(result):
        return None

    async def main():
        async with kit.transaction():
            await charge("cus_1", 5)
            await charge.keyed("order-17")("cus_1", 6)
            raise Boom

    with pytest.raises(SagaAborted) as caught:
        asyncio.run(main())
    assert caught.value.report.clean
    assert undone == [{"id": "ch_cus_1"}, {"id": "ch_cus_1"}]
    assert charge.tool.inverse.handler.endswith(".charge.undo")


def test_tools_of_one_name_that_are_made_in_functions_keep_their_own_undo(kit):
    undone = []

    def make(number):
        @kit.tool("COMPENSABLE")
        def charge():
            return number

        @charge.undo
        def refund(result):
            undone.append((number, result))

        return charge

    first, second = make(1), make(2)
    with pytest.raises(SagaAborted), kit.transaction():
        first()
        second()
        raise Boom
    assert undone == [(2, 2), (1, 1)]


# --- declarations ---------------------------------------------------------------------------------


def test_compensate_alone_declares_compensable(kit):
    tool = kit.safe_tool(lambda: 1, compensate=lambda r: None)
    assert tool.tool.semantics is ActionSemantics.COMPENSABLE


def test_what_says_nothing_is_refused(kit):
    with pytest.raises(UndeclaredSemantics):
        kit.safe_tool(lambda: 1)
    with pytest.raises(UndeclaredSemantics):
        tool()(lambda: 1)
    with pytest.raises(ConfigurationError):
        tool(lambda: 1)


@pytest.mark.parametrize("name", [None, 5, b"kit"])
def test_a_kit_has_a_name(name):
    with pytest.raises(ConfigurationError):
        AgentKit(name)


def test_a_kit_takes_a_log_or_an_address(tmp_path):
    for wal in (5, object(), ["memory:"]):
        with pytest.raises(ConfigurationError), AgentKit("x", wal=wal).transaction():
            pass
    kit = AgentKit("x", wal=str(tmp_path / "log"))
    assert list(tmp_path.iterdir()) == []
    read = kit.safe_tool(lambda: 1, "REVERSIBLE")
    with kit.transaction():
        read()
    assert (tmp_path / "log").is_dir()
    kit.runtime.wal.close()


@pytest.mark.parametrize("option", [{"on_unsettled": "maybe"}, {"commit": "later"}])
def test_a_boundary_s_options_are_checked(kit, option):
    with pytest.raises(ConfigurationError):
        kit.transaction(**option)


# --- @saga ----------------------------------------------------------------------------------------


def test_a_generator_cannot_be_a_saga():
    with pytest.raises(ConfigurationError):

        @saga
        def steps():
            yield 1

    with pytest.raises(ConfigurationError):

        @saga
        async def more_steps():
            yield 1

    with pytest.raises(ConfigurationError):
        saga(5)


class AsyncAgent:
    async def __call__(self):
        return current_saga() is not None


async def _agent():
    return current_saga() is not None


@pytest.mark.parametrize("agent", [AsyncAgent(), functools.partial(_agent)])
def test_every_asynchronous_form_of_a_saga_runs_inside_its_boundary(memory, agent):
    assert asyncio.run(saga(agent)()) is True


@pytest.mark.guarantee("FORM-1")
def test_a_saga_that_returns_an_awaitable_is_not_taken_for_done(memory):
    ran = []

    async def later():
        ran.append(current_saga())

    run = saga(lambda: later())  # noqa: PLW0108 - a plain function that returns an awaitable
    with pytest.raises(SagaAborted) as caught:
        run()
    assert isinstance(caught.value.cause, ConfigurationError)
    assert ran == []

    def steps():
        yield 1

    with pytest.raises(SagaAborted):
        saga(lambda: steps())()  # noqa: PLW0108


# --- posture --------------------------------------------------------------------------------------


def test_a_kit_with_a_log_in_memory_says_so(kit):
    status = kit.status()
    assert status.ready
    assert any("memory" in warning for warning in status.warnings)
    assert status.as_dict()["facts"]["durability"] == "memory"
    assert str(status).startswith("ready")


def test_a_log_that_cannot_be_used_is_not_ready(tmp_path):
    (tmp_path / "log").write_text("a plain file")
    kit = AgentKit("x", wal=str(tmp_path / "log"))
    assert not kit.status().ready
    closed = FileWAL(tmp_path / "other")
    closed.close()
    assert not AgentKit("x", wal=closed).status().ready


def test_a_signal_that_cannot_be_read_is_not_ready(kit, monkeypatch):
    monkeypatch.setattr(MemoryWAL, "probe", lambda self: 1 / 0)
    status = kit.status()
    assert not status.ready
    assert "cannot be read" in status.blockers[0]


def test_the_status_names_tools_that_a_careful_person_would_change(kit):
    kit_tools = [
        kit.safe_tool(lambda: 1, "COMPENSABLE", name="without_inverse"),
        kit.safe_tool(lambda: 1, compensate=lambda r: None, name="without_handler"),
        kit.safe_tool(lambda: 1, "IRREVERSIBLE", name="nobody_to_ask"),
        kit.safe_tool(lambda: 1, "REVERSIBLE", name="fine"),
    ]
    said = "\n".join(kit.status().warnings)
    for name in ("without_inverse", "without_handler", "nobody_to_ask"):
        assert name in said
    assert "fine" not in said
    assert len(kit_tools) == kit.status().facts["tools"]


def test_guarantees_are_data_and_say_what_is_not_claimed(kit):
    manifest = kit.guarantees()
    ids = [entry["id"] for entry in manifest["guarantees"]]
    assert len(set(ids)) == len(ids)
    assert "LIFE-1" in ids
    assert manifest["not_claimed"]
    assert all(entry["sentence"].endswith(".") for entry in manifest["not_claimed"])


def test_observers_are_told_after_the_fact(kit):
    seen = []
    end = kit.observe(seen.append)
    read = kit.safe_tool(lambda: 1, "COMPENSABLE", name="read")
    with kit.transaction():
        read()
    until(lambda: seen and seen[-1].name == "SAGA_COMMITTED")
    names = [event.name for event in seen]
    assert names.index("STEP_INTENT") < names.index("STEP_COMMITTED")
    assert "SAGA_COMMITTED" in names
    end()
    later = []
    kit.observe(later.append)
    with kit.transaction():
        read()
    until(lambda: later and later[-1].name == "SAGA_COMMITTED")
    assert len([event for event in seen if event.name == "SAGA_COMMITTED"]) == 1


def test_a_kit_s_gate_judges_its_calls(kit):
    gated = AgentKit("g", wal=MemoryWAL(), gate=PreFlightGate([Rule("no", tool_is("x"))]))
    ran = []
    act = gated.safe_tool(lambda: ran.append(1), "COMPENSABLE", name="x")
    with gated.transaction(), pytest.raises(agent_saga.RefusedError):
        act()
    assert ran == []


# --- the default log ------------------------------------------------------------------------------


def test_a_kit_without_a_log_is_durable_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kit = AgentKit("default")
    read = kit.safe_tool(lambda: 1, "COMPENSABLE")
    with kit.transaction():
        read()
    assert (tmp_path / "agent-saga.wal").is_dir()
    kit.runtime.wal.close()


def test_the_environment_names_the_log(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_SAGA_WAL", str(tmp_path / "elsewhere"))
    kit = AgentKit("env", settings=Settings.from_environ())
    read = kit.safe_tool(lambda: 1, "COMPENSABLE")
    with kit.transaction():
        read()
    assert (tmp_path / "elsewhere").is_dir()
    kit.runtime.wal.close()


def test_the_same_address_is_the_same_log(tmp_path):
    first = AgentKit("a", wal=str(tmp_path / "log")).runtime.wal
    second = AgentKit("b", wal=f"file:{tmp_path}/./log").runtime.wal
    assert first is second
    assert AgentKit("c", wal="memory:").runtime.wal is not AgentKit("d", wal="memory:").runtime.wal


def test_a_closed_log_is_opened_anew_by_its_address_and_refused_as_an_object(tmp_path):
    kit = AgentKit("a", wal=str(tmp_path / "log"))
    read = kit.safe_tool(lambda: 1, "COMPENSABLE")
    for _ in range(2):
        with kit.transaction():
            read()
        kit.runtime.wal.close()
    wal = FileWAL(tmp_path / "other")
    wal.close()
    ran = []
    closed = AgentKit("b", wal=wal)
    act = closed.safe_tool(lambda: ran.append(1), "COMPENSABLE")
    with pytest.raises(SagaAborted) as caught, closed.transaction():
        act()
    assert isinstance(caught.value.cause, WALError)
    assert ran == []

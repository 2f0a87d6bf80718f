"""One bad value: arguments, results, names and keys that models and web pages choose."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from decimal import Decimal
from uuid import UUID

import pytest

from agent_saga import AgentKit, CommittedUnsettled, FileWAL, SagaAborted, SecretLeak
from agent_saga.wal.encoding import decode


class Boom(Exception):
    pass


class Bomb:
    """Every way to look at it explodes."""

    def __repr__(self):
        raise RuntimeError("repr")

    __str__ = __repr__

    def __eq__(self, other):
        raise RuntimeError("eq")

    __hash__ = None


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


BAD = {
    "surrogate": "\ud800",
    "nan": math.nan,
    "infinity": math.inf,
    "huge int": 10**400,
    "bytes": b"\xff\x00",
    "nul": "a\0b",
    "newline": "a\nb",
    "marker": {"$t": "object", "v": "os.system"},
    "python marker": {"py/object": "os.system"},
    "decimal": Decimal("1.10"),
    "datetime": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "int keys": {1: "a", 2: "b"},
    "tuple": (1, 2),
    "set": {1, 2},
    "big": "x" * 10_000_000,
    "deep": nested(500),
    "bomb": Bomb(),
    "function": len,
    "class": dict,
}


@pytest.mark.guarantee("VALUE-1")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_argument_or_result_harms_neither_its_saga_nor_the_next(mode, kit, world, name):
    def echo(value):
        world.charge(1)
        return value

    tool = kit.safe_tool(mode.fn(echo), "COMPENSABLE", lambda r: _refund(world))

    async def body(saga):
        result = await mode.call(tool, BAD[name])
        assert result is BAD[name]
        raise Boom

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, Boom)
    assert error.report.clean
    assert world.standing == []

    async def healthy(saga):
        await mode.call(tool, 5)

    assert mode.attempt(kit, healthy) is None


def _refund(world):
    from agent_saga import Compensation

    return Compensation(fn=lambda: world.refund(world.charges[-1][0]))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_on_a_disk_is_readable_again(tmp_path, fast, world, name):
    wal = FileWAL(tmp_path / "log")
    kit = AgentKit("values", wal=wal, settings=fast)
    tool = kit.safe_tool(lambda value: value, "COMPENSABLE", name="echo")
    with kit.transaction():
        tool(BAD[name])
    wal.close()
    events = [record.event for record in FileWAL(tmp_path / "log").read_all()]
    assert "STEP_COMMITTED" in events
    assert "SAGA_COMMITTED" in events
    assert sum(f.stat().st_size for f in (tmp_path / "log").rglob("*") if f.is_file()) < 5_000_000


EXACT = {
    "decimal": Decimal("1.10"),
    "datetime": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "date": dt.date(2026, 1, 1),
    "bytes": b"\xff\x00",
    "tuple": (1, (2, "3")),
    "int keys": {1: "a", 2: {3: 4}},
    "uuid": UUID(int=5),
    "big int": 2**80,
    "surrogate": "\ud800",
    "marker": {"$t": "int", "v": "0x1"},
    "nested marker": {"$t": {"$t": "set", "v": [1]}},
    "set": {1, 2},
}


@pytest.mark.guarantee("VALUE-2")
@pytest.mark.parametrize("name", EXACT)
def test_what_an_inverse_is_called_with_is_carried_exactly(mode, kit, wal, name):
    got = []
    tool = kit.safe_tool(mode.fn(lambda: EXACT[name]), "COMPENSABLE", name="exact")

    @tool.undo
    def undo(result):
        got.append(result)

    async def body(saga):
        await mode.call(tool)
        raise Boom

    assert mode.attempt(kit, body).report.clean
    assert got == [EXACT[name]]
    assert type(got[0]) is type(EXACT[name])
    recorded = next(r.data for r in wal.read_all() if r.event == "STEP_COMMITTED")
    assert recorded["inverse"]["kwargs"]["result"] == EXACT[name]


@pytest.mark.guarantee("VALUE-2")
@pytest.mark.parametrize("value", [object(), Bomb(), "x" * 10_000_000, nested(500)])
def test_an_inverse_that_the_log_cannot_carry_is_said_and_still_run(mode, kit, value, caplog):
    got = []
    tool = kit.safe_tool(mode.fn(lambda: value), "COMPENSABLE", name="uncarried")

    @tool.undo
    def undo(result):
        got.append(result)

    async def body(saga):
        await mode.call(tool)
        raise Boom

    error = mode.attempt(kit, body)
    assert len(got) == 1
    assert got[0] is value
    assert error.report.clean
    assert "kept in this process only" in caplog.text


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["x" * 5000, "../../etc/passwd", "a\nb", "a\0b", "\ud800", "<script>", "*", "tool:*"]
)
def test_any_name_of_a_saga_or_savepoint_is_only_a_name(tmp_path, fast, world, name):
    wal = FileWAL(tmp_path / "log")
    kit = AgentKit("names", wal=wal, settings=fast)
    tool = kit.safe_tool(world.charge, "COMPENSABLE")
    with kit.transaction(name=name, labels={"any": name}) as saga:
        tool(1)
        with saga.savepoint(name):
            tool.keyed(name)(2)
        with contextlib.suppress(SagaAborted), saga.savepoint(name):
            raise Boom("\ud800")
    assert str(saga.report.summary())
    wal.close()
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*")]
    assert all(str(path).isprintable() for path in files)
    assert "SAGA_COMMITTED" in [r.event for r in FileWAL(tmp_path / "log").read_all()]


def test_an_error_whose_message_cannot_be_shown_is_recorded_all_the_same(mode, kit, world):
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def act():
        raise Unspeakable

    tool = kit.safe_tool(mode.fn(act), "COMPENSABLE")

    async def body(saga):
        with contextlib.suppress(Unspeakable):
            await mode.call(tool)

    error = mode.attempt(kit, body)
    assert isinstance(error, CommittedUnsettled)

    async def failing(saga):
        await mode.call(tool)

    assert isinstance(mode.attempt(kit, failing), SagaAborted)


# --- secrets --------------------------------------------------------------------------------------

SECRET = "sk_live_" + "a1b2c3d4e5f6g7h8"


@pytest.mark.guarantee("SECRET-1")
def test_a_secret_in_arguments_results_errors_names_and_labels_never_reaches_the_log(
    tmp_path, fast, world
):
    wal = FileWAL(tmp_path / "log")
    kit = AgentKit("secrets", wal=wal, settings=fast)

    def act(text, password=None):
        if text == "fail":
            raise ValueError(f"refused {SECRET}")
        return {"api_key": "hunter22", "text": f"token {SECRET}"}

    tool = kit.safe_tool(act, "COMPENSABLE", lambda r: _refund(world), name="act")
    read = kit.safe_tool(act, "REVERSIBLE", name="read")
    scope = kit.transaction(name=f"run {SECRET}", labels={"token": "hunter22"})
    with contextlib.suppress(SagaAborted), scope as saga:
        tool(f"with {SECRET}", password="hunter22")
        read(SECRET)
        with contextlib.suppress(ValueError):
            read("fail")
        with contextlib.suppress(ValueError):
            saga.execute(
                tool="x",
                forward=lambda: act("fail"),
                semantics="COMPENSABLE",
                arguments={"secret": "hunter22"},
            )
        raise Boom(SECRET)
    wal.close()
    written = b"".join(f.read_bytes() for f in (tmp_path / "log").rglob("*") if f.is_file())
    assert b"sk_live_" not in written
    assert b"hunter22" not in written


@pytest.mark.guarantee("SECRET-1")
def test_a_secret_in_an_inverse_is_refused_and_the_effect_undone(mode, kit, world, wal):
    tool = kit.safe_tool(
        mode.fn(lambda: world.charge(5) | {"key": SECRET}), "COMPENSABLE", name="leaky"
    )

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    async def body(saga):
        await mode.call(tool)

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, SecretLeak)
    assert world.standing == []
    assert SECRET not in "".join(str(decode(b"null") or r.data) for r in wal.read_all())


@pytest.mark.guarantee("SECRET-1")
def test_a_secret_in_prepared_data_is_refused_before_the_effect(mode, kit, world):
    tool = kit.safe_tool(
        mode.fn(world.charge), "COMPENSABLE", prepare=mode.fn(lambda args: {"password": "hunter22"})
    )

    async def body(saga):
        await mode.call(tool, 5)

    error = mode.attempt(kit, body)
    assert isinstance(error.cause, SecretLeak)
    assert world.charges == []

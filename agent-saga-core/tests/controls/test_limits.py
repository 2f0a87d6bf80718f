"""Limits: what is let through never goes over a cap, and a refusal leaves no trace."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from decimal import Decimal
from fractions import Fraction

import pytest

from agent_saga import (
    AgentKit,
    Approval,
    BudgetLimit,
    Compensation,
    ConfigurationError,
    FileLimitStore,
    LimitExceeded,
    MemoryLimitStore,
    MemoryWAL,
    PreFlightGate,
    RateLimit,
    RefusedError,
    Rule,
    SagaAborted,
    by_arg,
    by_tool,
    combine,
    set_limit_store,
)

DAY = 86_400


class Yes:
    def __init__(self, yes=True):
        self.yes = yes
        self.asked = []

    def ask(self, request):
        self.asked.append(request)
        return Approval(self.yes, "ann")


@pytest.fixture(params=["memory", "sqlite"])
def wal(request, tmp_path):
    """A log in memory counts in memory, a log in files in its state store."""
    if request.param == "memory":
        yield MemoryWAL()
        return
    from agent_saga import FileWAL

    log = FileWAL(tmp_path / "log")
    yield log
    log.close()


@pytest.fixture
def limited(wal):
    def make(*limits, rules=(), provider=None):
        gate = PreFlightGate(rules, provider, limits=limits)
        return AgentKit("limited", wal=wal, gate=gate)

    return make


@pytest.fixture
def usage(wal):
    """What is used now, by limit and scope."""
    from agent_saga.controls.limits import chosen

    def read():
        _, store = chosen._stores[wal]
        return {(one.limit, one.scope): one.used for one in store.usage()}

    return read


def budget(most=100, **options):
    return BudgetLimit("spend", arg="amount", max_total=most, window=DAY, **options)


# --- what is counted ------------------------------------------------------------------------------


@pytest.mark.guarantee("LIMIT-1")
@pytest.mark.parametrize("order", ["the long one first", "the short one first"])
def test_limits_of_one_name_and_two_windows_hold_both(limited, wal, world, order):
    """As after a new policy, which only some processes have."""
    long = BudgetLimit("spend", arg="amount", max_total=10, window=DAY)
    short = BudgetLimit("spend", arg="amount", max_total=1000, window=0.05)
    limits = [long, short] if order == "the long one first" else [short, long]
    kits = {id(limit): limited(limit) for limit in limits}
    tools = {key: kit.safe_tool(world.wire, "COMPENSABLE") for key, kit in kits.items()}

    def tries(limit, amount):
        with kits[id(limit)].transaction():
            try:
                tools[id(limit)](amount)
            except LimitExceeded:
                return False
        return True

    for limit in limits:
        assert tries(limit, 1)
    assert tries(short, 6)
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        time.sleep(0.01)  # the short window is over
    assert tries(short, 1)
    assert tries(long, 1)
    assert not tries(long, 1), "nine were let through before, of ten"
    assert tries(short, 990)
    assert not tries(long, 0.01)


@pytest.mark.guarantee("LIMIT-1")
def test_what_is_let_through_never_goes_over_the_cap(limited, world, usage, wal):
    kit = limited(budget(100))
    tool = kit.safe_tool(world.wire, "COMPENSABLE", name="wire")
    with kit.transaction():
        for amount in (60, 30, 11, 10, 1):
            try:
                tool(amount)
            except LimitExceeded:
                continue
    assert world.amounts == [60, 30, 10]
    assert usage() == {("spend", ""): 100}
    told = [r.data for r in wal.read_all() if r.event == "STEP_REFUSED"]
    assert told[0]["decision"]["facts"]["over"][0]["used"] == "90"
    assert "ask for at most 10" in told[0]["decision"]["change"]


@pytest.mark.guarantee("LIMIT-1")
@pytest.mark.parametrize("semantics", ["REVERSIBLE", "COMPENSABLE", "IRREVERSIBLE"])
@pytest.mark.parametrize("driver", ["sync", "async"])
def test_a_rate_counts_calls_of_every_kind(limited, world, semantics, driver):
    kit = limited(RateLimit("velocity", max_calls=3, window=60, scope=by_tool), provider=Yes())
    tool = kit.safe_tool(world.wire, semantics, name="wire")
    other = kit.safe_tool(world.wire, "REVERSIBLE", name="other")

    async def main():
        async with kit.transaction():
            for amount in range(5):
                try:
                    await tool(amount)
                except LimitExceeded:
                    await other(100 + amount)

    if driver == "async":
        asyncio.run(main())
    else:
        with kit.transaction():
            for amount in range(5):
                try:
                    tool(amount)
                except LimitExceeded:
                    other(100 + amount)
    assert world.amounts == [0, 1, 2, 103, 104]


@pytest.mark.guarantee("LIMIT-2")
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        True,
        False,
        b"5",
        bytearray(b"5"),
        None,
        "five",
        "",
        "1_000",
        "٣",
        "0x10",
        "NaN",
        "inf",
        "5 EUR",
        -1,
        -0.01,
        "-5",
        Decimal(-1),
        [5],
        {"amount": 5},
        5j,
        Fraction(1, 3),
        10**60,
        "1e99",
        Decimal("1e-99"),
        object(),
    ],
    ids=repr,
)
def test_what_is_no_amount_is_refused_and_never_counted(limited, world, usage, value):
    kit = limited(budget(100))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        with pytest.raises(RefusedError, match="spend"):
            tool(value)
        tool(100)
    assert world.amounts == [100]
    assert usage() == {("spend", ""): 100}


@pytest.mark.guarantee("LIMIT-2")
def test_amounts_are_added_exactly(limited, world, usage):
    kit = limited(budget(Decimal("0.7")))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        for amount in (0.1, "0.1", Decimal("0.1"), Fraction(1, 10), 0, "1e-1", "0.1 ", 0.0):
            tool(amount)
        for amount in (0.1000000000000001, Decimal("0.1000000000000000000000001"), "0.2", 1):
            with pytest.raises(LimitExceeded):
                tool(amount)
        tool(Decimal("0.0999999999999999999999999"))
    assert usage() == {("spend", ""): Decimal("0.6999999999999999999999999")}


@pytest.mark.guarantee("LIMIT-2")
def test_leaving_the_amount_out_does_not_pass_the_limit(limited, world):
    kit = limited(budget(100))

    def optional(amount=None):
        return world.wire(amount)

    def anything(**options):
        return world.wire(options)

    def positional(*options):
        return world.wire(options)

    for tool in (optional, anything, positional):
        wrapped = kit.safe_tool(tool, "COMPENSABLE")
        with kit.transaction(), pytest.raises(RefusedError, match="amount"):
            wrapped()
    with kit.transaction(), pytest.raises(RefusedError, match="amount"):
        kit.safe_tool(positional, "COMPENSABLE")(5)
    with kit.transaction() as saga, pytest.raises(RefusedError, match="arguments"):
        saga.execute(tool="pay", forward=lambda: world.wire(1), semantics="COMPENSABLE")
    assert world.amounts == []


def test_a_tool_without_the_argument_is_none_of_the_limit_s_business(limited, world):
    kit = limited(budget(100))
    mail = kit.safe_tool(world.mail, "COMPENSABLE", name="mail")
    look = kit.safe_tool(lambda **query: world.wire("look"), "REVERSIBLE", name="look")
    with kit.transaction():
        mail("ann")
        look(text="x")
    assert world.amounts == ["ann", "look"]


def test_a_limit_polices_the_tools_that_it_names(limited, world):
    kit = limited(
        budget(100, tools=["pay.*", "wire"]),
        RateLimit("tagged", max_calls=1, window=DAY, tools="tag:money"),
    )
    pay = kit.safe_tool(world.wire, "COMPENSABLE", name="pay.now")
    wire = kit.safe_tool(world.mail, "COMPENSABLE", name="wire")
    free = kit.safe_tool(world.wire, "COMPENSABLE", name="payday")
    tagged = kit.safe_tool(lambda: world.wire(0), "COMPENSABLE", name="t", tags=["money"])
    with kit.transaction():
        with pytest.raises(LimitExceeded):
            pay(101)
        with pytest.raises(RefusedError, match="does not name"):
            wire("acme")
        free(101)
        tagged()
        with pytest.raises(LimitExceeded):
            tagged()
    assert world.amounts == [101, 0]


# --- scopes ---------------------------------------------------------------------------------------


@pytest.mark.guarantee("LIMIT-1")
def test_each_customer_has_a_limit_of_its_own_however_the_id_is_written(limited, world):
    kit = limited(budget(10, scope=by_arg("customer")))

    def pay(amount, customer):
        return world.wire(amount, customer)

    tool = kit.safe_tool(pay, "COMPENSABLE")
    with kit.transaction():
        tool(10, 5)
        tool(10, "cus_1")
        tool(10, "6")
        for customer in (5, "5", 5.0, Decimal(5), "cus_1", 6):
            with pytest.raises(LimitExceeded):
                tool(1, customer)
        for customer in (None, [], {}, b"x", True):
            with pytest.raises(RefusedError, match="scope"):
                tool(1, customer)
    assert world.amounts == [10, 10, 10]


def test_combined_scopes_never_run_together(limited, world):
    kit = limited(
        RateLimit("both", max_calls=1, window=DAY, scope=combine(by_arg("a"), by_arg("b")))
    )
    tool = kit.safe_tool(lambda a, b: world.wire(a + b), "COMPENSABLE")
    pairs = [("x", "y"), ("x, b=y", ""), ("x", "y "), ("", "xy"), ('x", b="y', ""), ("x,", "y")]
    with kit.transaction():
        for a, b in pairs:
            tool(a, b)
        for a, b in pairs:
            with pytest.raises(LimitExceeded):
                tool(a, b)
    assert len(world.amounts) == len(pairs)


@pytest.mark.parametrize("scope", [lambda call: 5, lambda call: None, lambda call: 1 / 0])
def test_a_scope_that_cannot_be_told_refuses(limited, world, scope):
    kit = limited(budget(10, scope=scope))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction(), pytest.raises(RefusedError, match="scope"):
        tool(1)
    assert world.amounts == []


# --- all or nothing, and what is handed back ------------------------------------------------------


@pytest.mark.guarantee("LIMIT-3")
def test_over_one_limit_a_call_takes_of_none(limited, world, usage):
    kit = limited(
        RateLimit("calls", max_calls=5, window=DAY),
        budget(100),
        BudgetLimit("small", arg="amount", max_total=50, window=DAY),
    )
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        tool(40)
        with pytest.raises(LimitExceeded) as caught:
            tool(20)
        assert caught.value.rule == "small"
    assert usage() == {("calls", ""): 1, ("spend", ""): 40, ("small", ""): 40}


@pytest.mark.guarantee("LIMIT-3")
@pytest.mark.parametrize("why", ["rule", "human", "prepare", "disk"])
def test_a_refused_call_leaves_no_trace(limited, world, usage, wal, why):
    from agent_saga.errors import WALFull

    rules = [Rule("no", lambda view: why == "rule")]
    kit = limited(budget(100), rules=rules, provider=Yes(False))

    def prepare(args):
        if why == "prepare":
            raise ValueError(why)

    kind = "IRREVERSIBLE" if why == "human" else "COMPENSABLE"
    tool = kit.safe_tool(world.wire, kind, prepare=prepare)
    append = wal.append

    def full(event, **fields):
        if event == "STEP_INTENT" and why == "disk":
            raise WALFull("no room")
        return append(event, **fields)

    wal.append = full
    with kit.transaction(), pytest.raises((RefusedError, ValueError, WALFull)):
        tool(60)
    assert world.amounts == []
    assert usage() in ({}, {("spend", ""): 0})


@pytest.mark.guarantee("LIMIT-4")
def test_an_authorisation_is_permanent_whatever_becomes_of_it(limited, world, usage):
    kit = limited(budget(100))

    def fails(amount):
        raise ValueError

    tool = kit.safe_tool(
        world.wire, compensate=lambda r: Compensation(fn=lambda: None), name="good"
    )
    bad = kit.safe_tool(fails, "COMPENSABLE", name="bad", not_applied_on=(ValueError,))
    with pytest.raises(SagaAborted), kit.transaction():
        tool(60)
        with pytest.raises(ValueError):
            bad(30)
        raise RuntimeError
    assert usage() == {("spend", ""): 90}
    with kit.transaction(), pytest.raises(LimitExceeded):
        tool(11)


def test_savepoints_and_other_sagas_share_one_allowance(limited, world):
    kit = limited(budget(100))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction() as saga:
        tool(50)
        with saga.savepoint():
            tool(40)
        with kit.transaction(detached=True), pytest.raises(LimitExceeded):
            tool(11)
        with pytest.raises(LimitExceeded):
            tool(11)
    assert world.amounts == [50, 40]


@pytest.mark.guarantee("LIMIT-1")
def test_twenty_sub_agents_at_the_edge_of_the_budget(limited, world):
    kit = limited(budget(100))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")

    async def main():
        async with kit.transaction() as saga:
            await tool(99)

            async def sub_agent():
                async with saga.savepoint():
                    try:
                        await tool(1)
                    except LimitExceeded:
                        return 0
                    return 1

            return sum([await sub_agent() for _ in range(3)]) + sum(
                await asyncio.gather(*[one() for one in [direct] * 17])
            )

        return None

    async def direct():
        try:
            await tool(1)
        except LimitExceeded:
            return 0
        return 1

    assert asyncio.run(main()) == 1
    assert sum(world.amounts) == 100


# --- asking a human instead -----------------------------------------------------------------------


@pytest.mark.guarantee("LIMIT-1")
@pytest.mark.parametrize("yes", [True, False])
def test_a_limit_that_escalates_asks_a_human(limited, world, usage, yes):
    human = Yes(yes)
    kit = limited(budget(100, escalate_to_human=True), provider=human)
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction():
        tool(90)
        if yes:
            tool(20)
        else:
            with pytest.raises(RefusedError):
                tool(20)
    assert [(request.rule, request.arguments["amount"]) for request in human.asked] == [
        ("spend", 20)
    ]
    assert world.amounts == ([90, 20] if yes else [90])
    assert usage() == {("spend", ""): 110 if yes else 90}


def test_a_hard_limit_beside_one_that_escalates_refuses_without_asking(limited, world):
    human = Yes()
    kit = limited(
        budget(100, escalate_to_human=True),
        BudgetLimit("hard", arg="amount", max_total=200, window=DAY),
        provider=human,
    )
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction(), pytest.raises(LimitExceeded):
        tool(201)
    assert human.asked == []


def test_nothing_is_held_while_a_human_thinks_and_all_is_judged_again(limited, world):
    class Slow:
        def ask(self, request):
            with kit.transaction(detached=True):
                other(100)
            return Approval(True, "ann")

    kit = limited(
        budget(100, escalate_to_human=True, tools=["wire"]),
        BudgetLimit("hard", arg="amount", max_total=200, window=DAY),
        provider=Slow(),
    )
    tool = kit.safe_tool(world.wire, "COMPENSABLE", name="wire")
    other = kit.safe_tool(world.wire, "COMPENSABLE", name="other")
    with kit.transaction(), pytest.raises(LimitExceeded) as caught:
        tool(101)
    assert caught.value.rule == "hard"
    assert world.amounts == [100]


# --- what a program writes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: BudgetLimit("", arg="a", max_total=1, window=1),
        lambda: BudgetLimit("x", arg="", max_total=1, window=1),
        lambda: BudgetLimit("x", arg="a", max_total=math.nan, window=1),
        lambda: BudgetLimit("x", arg="a", max_total=-1, window=1),
        lambda: BudgetLimit("x", arg="a", max_total=True, window=1),
        lambda: BudgetLimit("x", arg="a", max_total=1, window=0),
        lambda: BudgetLimit("x", arg="a", max_total=1, window=math.inf),
        lambda: BudgetLimit("x", arg="a", max_total=1, window=1, scope="tool"),
        lambda: BudgetLimit("x", arg="a", max_total=1, window=1, tools=[]),
        lambda: RateLimit("x", max_calls=1.5, window=1),
        lambda: RateLimit("x", max_calls=-1, window=1),
        lambda: RateLimit("x", max_calls=True, window=1),
        lambda: by_arg(""),
        lambda: combine(by_tool),
        lambda: PreFlightGate(limits=[Rule("x", lambda view: True)]),
        lambda: PreFlightGate(limits=[budget(), budget()]),
        lambda: PreFlightGate([Rule("spend", lambda view: True)], limits=[budget()]),
        lambda: set_limit_store(object()),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(wrong):
    with pytest.raises(ConfigurationError):
        wrong()


@pytest.fixture
def chosen_store():
    yield set_limit_store
    set_limit_store(None)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_store_that_is_set_counts_for_every_log(chosen_store, world, tmp_path, kind):
    store = MemoryLimitStore() if kind == "memory" else FileLimitStore(tmp_path / "limits.sqlite")
    chosen_store(store)
    for number in range(3):
        kit = AgentKit("k", wal=MemoryWAL(), gate=PreFlightGate(limits=[budget(100)]))
        tool = kit.safe_tool(world.wire, "COMPENSABLE")
        with kit.transaction():
            if number < 2:
                tool(50)
            else:
                with pytest.raises(LimitExceeded):
                    tool(1)
    assert sum(world.amounts) == 100


@pytest.mark.guarantee("LIMIT-5")
def test_a_store_that_cannot_be_used_refuses(chosen_store, world, tmp_path):
    (tmp_path / "folder").mkdir()
    chosen_store(FileLimitStore(tmp_path / "folder"))
    kit = AgentKit("k", wal=MemoryWAL(), gate=PreFlightGate(limits=[budget(100)]))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    with kit.transaction(), pytest.raises(RefusedError, match="could not be counted"):
        tool(1)
    assert world.amounts == []


@pytest.mark.guarantee("LIMIT-1")
def test_threads_never_get_more_than_the_cap_together(limited, world, usage):
    kit = limited(budget(100), RateLimit("calls", max_calls=1000, window=DAY))
    tool = kit.safe_tool(world.wire, "COMPENSABLE")
    refused = []

    def work():
        with kit.transaction():
            for _ in range(10):
                try:
                    tool(3)
                except LimitExceeded:
                    refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(world.amounts) == 99
    assert len(refused) == 80 - 33
    assert usage() == {("spend", ""): 99, ("calls", ""): 33}


@pytest.mark.guarantee("LIMIT-4")
def test_a_step_that_is_repeated_with_its_key_is_authorised_once(limited, world, usage):
    kit = limited(budget(100))
    lost = [True]

    def pay(amount):
        world.wire(amount)
        if lost[0]:
            raise ConnectionError("the answer was lost")
        return {"amount": amount}

    tool = kit.safe_tool(pay, compensate=lambda r: Compensation.none("test"), idempotent=True)
    with kit.transaction():
        with pytest.raises(ConnectionError):
            tool(60)
        lost[0] = False
        tool(60)
    assert usage() == {("spend", ""): 60}


def test_a_kit_tells_of_its_limits_and_is_not_ready_without_their_store(limited, world, tmp_path):
    kit = limited(budget(100))
    kit.safe_tool(world.wire, "REVERSIBLE")
    status = kit.status()
    assert status.facts["limits"] == ["spend"]
    (tmp_path / "folder").mkdir()
    set_limit_store(FileLimitStore(tmp_path / "folder"))
    try:
        status = kit.status()
    finally:
        set_limit_store(None)
    assert not status.ready
    assert any("limits" in blocker for blocker in status.blockers)

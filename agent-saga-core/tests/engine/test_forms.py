"""Every form that a tool can have runs, or is refused; nothing is done without running."""

from __future__ import annotations

import asyncio
import functools

import pytest

from agent_saga import CommittedUnsettled, ConfigurationError, SagaAborted, ToolNotAwaited


class Boom(Exception):
    pass


def undo_of(tool, world):
    @tool.undo
    def refund(result):
        world.refund(result["id"])

    return tool


def forms(world):  # noqa: C901 - a list of small forms
    """Forms whose call is one charge, by name."""

    async def coroutine(amount):
        await asyncio.sleep(0)
        return world.charge(amount)

    class Callable:
        def __call__(self, amount):
            return world.charge(amount)

    class AsyncCallable:
        async def __call__(self, amount):
            return await coroutine(amount)

    class LyingCallable:
        """Its `__call__` is plain and returns an awaitable."""

        def __call__(self, amount):
            return coroutine(amount)

    class Awaitable:
        def __init__(self, amount):
            self.amount = amount

        def __await__(self):
            yield from asyncio.sleep(0).__await__()
            return world.charge(self.amount)

    class Bound:
        def pay(self, amount):
            return world.charge(amount)

        async def pay_async(self, amount):
            return await coroutine(amount)

        @classmethod
        def of_class(cls, amount):
            return world.charge(amount)

        @staticmethod
        def static(amount):
            return world.charge(amount)

    class Receipt(dict):
        def __init__(self, amount):
            super().__init__(world.charge(amount))

    @functools.wraps(coroutine)
    def decorated(*args, **kwargs):
        return coroutine(*args, **kwargs)

    plain = {
        "function": world.charge,
        "lambda": lambda amount: world.charge(amount),  # noqa: PLW0108 - the form
        "partial": functools.partial(world.charge, 5),
        "callable": Callable(),
        "bound method": Bound().pay,
        "class method": Bound.of_class,
        "static method": Bound.static,
        "class": Receipt,
    }
    waiting = {
        "coroutine": coroutine,
        "partial of a coroutine": functools.partial(coroutine, 5),
        "async callable": AsyncCallable(),
        "async bound method": Bound().pay_async,
        "lambda that returns a coroutine": lambda amount: coroutine(amount),  # noqa: PLW0108
        "callable that returns a coroutine": LyingCallable(),
        "awaitable object": Awaitable,
        "decorated coroutine": decorated,
    }
    return plain, waiting


PLAIN = [
    "function",
    "lambda",
    "partial",
    "callable",
    "bound method",
    "class method",
    "static method",
    "class",
]
WAITING = [
    "coroutine",
    "partial of a coroutine",
    "async callable",
    "async bound method",
    "lambda that returns a coroutine",
    "callable that returns a coroutine",
    "awaitable object",
    "decorated coroutine",
]


@pytest.mark.guarantee("FORM-1")
@pytest.mark.parametrize("timeout", [None, 5])
@pytest.mark.parametrize("name", [*PLAIN, *WAITING])
def test_every_form_runs_once_and_is_undone_in_an_async_boundary(kit, world, name, timeout):
    plain, waiting = forms(world)
    tool = undo_of(
        kit.safe_tool({**plain, **waiting}[name], "COMPENSABLE", name="form", timeout=timeout),
        world,
    )
    arguments = () if name.startswith("partial") else (5,)

    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction():
                result = await tool(*arguments)
                assert result["amount"] == 5
                raise Boom
        assert isinstance(caught.value.cause, Boom)
        assert caught.value.report.clean

    asyncio.run(main())
    assert world.amounts == [5]
    assert world.refunds == ["ch1"]


@pytest.mark.parametrize("timeout", [None, 5])
@pytest.mark.parametrize("name", PLAIN)
def test_every_plain_form_runs_once_and_is_undone_in_a_sync_boundary(kit, world, name, timeout):
    tool = undo_of(
        kit.safe_tool(forms(world)[0][name], "COMPENSABLE", name="form", timeout=timeout), world
    )
    arguments = () if name.startswith("partial") else (5,)
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        tool(*arguments)
        raise Boom
    assert caught.value.report.clean
    assert world.amounts == [5]
    assert world.refunds == ["ch1"]


@pytest.mark.guarantee("FORM-1")
@pytest.mark.parametrize("timeout", [None, 5])
@pytest.mark.parametrize("name", WAITING)
def test_no_awaiting_form_is_taken_for_done_in_a_sync_boundary(kit, world, name, timeout):
    tool = kit.safe_tool(forms(world)[1][name], "COMPENSABLE", name="form", timeout=timeout)
    arguments = () if name.startswith("partial") else (5,)
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        tool(*arguments)
    assert isinstance(caught.value.cause, ConfigurationError)
    assert world.charges == []


@pytest.mark.parametrize("timeout", [None, 5])
@pytest.mark.parametrize("name", WAITING)
def test_awaiting_forms_run_on_a_private_loop_when_any_loop_will_do(kit, world, name, timeout):
    tool = undo_of(
        kit.safe_tool(
            forms(world)[1][name], "COMPENSABLE", name="form", timeout=timeout, loop_free=True
        ),
        world,
    )
    arguments = () if name.startswith("partial") else (5,)
    with pytest.raises(SagaAborted), kit.transaction():
        tool(*arguments)
        raise Boom
    assert world.amounts == [5]
    assert world.refunds == ["ch1"]


@pytest.mark.guarantee("FORM-2")
def test_generator_functions_are_refused_when_wrapped(kit, world):
    def generator(amount):
        yield world.charge(amount)

    async def async_generator(amount):
        yield world.charge(amount)

    class Callable:
        def __call__(self, amount):
            yield world.charge(amount)

    for form in (generator, async_generator, Callable(), functools.partial(generator, 1)):
        with pytest.raises(ConfigurationError, match="generator"):
            kit.safe_tool(form, "COMPENSABLE")


@pytest.mark.guarantee("FORM-2")
def test_a_generator_that_a_plain_function_returns_is_drained(mode, kit, world):
    def several():
        return (world.charge(amount) for amount in (1, 2))

    tool = kit.safe_tool(several, "COMPENSABLE")

    async def body(saga):
        result = await mode.call(tool)
        assert [charge["amount"] for charge in result] == [1, 2]

    assert mode.attempt(kit, body) is None
    assert world.amounts == [1, 2]


def test_an_async_generator_that_a_plain_function_returns_is_drained(kit, world):
    async def charges():
        for amount in (1, 2):
            yield world.charge(amount)

    def returns_a_generator():
        return charges()

    tool = kit.safe_tool(returns_a_generator, "COMPENSABLE", name="drained")

    async def main():
        async with kit.transaction():
            assert len(await tool()) == 2

    asyncio.run(main())
    assert world.amounts == [1, 2]


def test_a_generator_that_fails_half_way_is_unknown(mode, kit, world):
    def several():
        def steps():
            yield world.charge(1)
            raise Boom

        return steps()

    tool = kit.safe_tool(several, "COMPENSABLE")

    async def body(saga):
        await mode.call(tool)

    error = mode.attempt(kit, body)
    assert not error.report.clean
    assert world.standing == ["ch1"]


@pytest.mark.parametrize("fn", [None, 5, "charge", object()])
def test_what_cannot_be_called_is_refused_when_wrapped(kit, fn):
    with pytest.raises(ConfigurationError):
        kit.safe_tool(fn, "COMPENSABLE")


def test_builtins_are_tools(mode, kit):
    box = []
    append = kit.safe_tool(box.append, "COMPENSABLE", name="append")
    length = kit.safe_tool(len, "REVERSIBLE")

    async def body(saga):
        await mode.call(append, 5)
        assert await mode.call(length, box) == 1

    assert mode.attempt(kit, body) is None
    assert box == [5]


def test_an_argument_error_of_a_builtin_costs_nobody_a_case(kit):
    tool = kit.safe_tool(divmod, "COMPENSABLE")
    with kit.transaction() as saga, pytest.raises(TypeError):
        tool(1, 2, 3)
    assert saga.report.clean


def test_methods_are_tools_when_decorated_in_their_class(kit, world):
    class Shop:
        def __init__(self, factor):
            self.factor = factor

        @kit.tool("COMPENSABLE", name="shop.pay")
        def pay(self, amount):
            return world.charge(amount * self.factor)

        @pay.undo
        def refund(result):  # noqa: N805 - an undo is no method
            world.refund(result["id"])

        @kit.tool("COMPENSABLE", name="shop.pay_async")
        async def pay_async(self, amount):
            return world.charge(amount * self.factor)

    with pytest.raises(SagaAborted), kit.transaction():
        Shop(2).pay(5)
        Shop(3).pay.keyed("a")(amount=5)
        raise Boom
    assert world.amounts == [10, 15]
    assert world.standing == []

    async def main():
        async with kit.transaction():
            await Shop(4).pay_async(5)
            await Shop(4).pay.acall(5)

    asyncio.run(main())
    assert world.amounts == [10, 15, 20, 20]


def test_a_wrapped_tool_keeps_name_docstring_and_kind(kit):
    async def charge(amount: int) -> dict:
        """Charge a customer."""

    class Tool:
        """With attributes of the same names as ours."""

        def __init__(self):
            self.kit = self.tool = "mine"

        def __call__(self, amount):
            return amount

    wrapped = kit.safe_tool(charge, "COMPENSABLE")
    assert wrapped.__name__ == "charge"
    assert wrapped.__doc__ == "Charge a customer."
    assert wrapped.__wrapped__ is charge
    other = kit.safe_tool(Tool(), "COMPENSABLE")
    assert other.kit is kit
    with kit.transaction():
        assert other(5) == 5


def test_a_tool_is_wrapped_only_once(kit, charge):
    with pytest.raises(ConfigurationError):
        kit.safe_tool(charge, "COMPENSABLE")


# --- awaiting -------------------------------------------------------------------------------------


@pytest.mark.guarantee("AWAIT-1")
def test_a_call_that_nobody_awaited_fails_the_boundary(kit, world):
    async def pay(amount):
        return world.charge(amount)

    tool = undo_of(kit.safe_tool(pay, "COMPENSABLE", name="unawaited"), world)

    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction():
                await tool(1)
                tool(2)
        assert isinstance(caught.value.cause, ToolNotAwaited)
        assert "unawaited" in str(caught.value)
        assert "To do: Write `await` before them." in str(caught.value)

    asyncio.run(main())
    assert world.amounts == [1]
    assert world.standing == []


def test_calls_that_nobody_awaited_are_named_when_the_boundary_fails_anyway(kit, world):
    async def pay(amount):
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE", name="unawaited")

    async def main():
        with pytest.raises(SagaAborted) as caught:
            async with kit.transaction() as saga:
                tool(1)
                saga.execute(tool="x", forward=lambda: None, semantics="REVERSIBLE")
                raise Boom
        assert isinstance(caught.value.cause, Boom)
        [note] = caught.value.cause.__notes__
        assert "unawaited" in note

    asyncio.run(main())
    assert world.charges == []


def test_the_exact_forms_of_a_call(kit, world):
    tool = kit.safe_tool(world.charge, "COMPENSABLE")

    async def main():
        async with kit.transaction():
            assert (await tool.acall(1))["amount"] == 1
            assert (await asyncio.to_thread(tool.call, 2))["amount"] == 2

    asyncio.run(main())
    with kit.transaction():
        assert tool.call(3)["amount"] == 3
    assert world.amounts == [1, 2, 3]


def test_an_async_tool_called_in_a_thread_of_an_async_boundary_is_refused(kit, world):
    async def pay(amount):
        return world.charge(amount)

    tool = kit.safe_tool(pay, "COMPENSABLE")

    async def main():
        async with kit.transaction():
            with pytest.raises(ConfigurationError):
                await asyncio.to_thread(tool, 5)

    asyncio.run(main())
    assert world.charges == []


def test_a_sync_boundary_on_the_thread_of_a_running_loop_is_refused(kit):
    async def main():
        with pytest.raises(ConfigurationError, match="async with"), kit.transaction():
            pass

    asyncio.run(main())


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["prober", "reconciler", "prepare"])
def test_a_helper_that_asks_for_what_it_cannot_get_is_refused_when_wrapped(kit, charge, kind):
    def asks_too_much(args, *, reference): ...

    def asks(whatever, *, idempotency_key, more=1): ...

    with pytest.raises(ConfigurationError, match=f"The {kind} .*cannot get: reference"):
        kit.safe_tool(print, "REVERSIBLE", name="asks too much", **{kind: asks_too_much})
    kit.safe_tool(print, "REVERSIBLE", name="asks", **{kind: asks})


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": True},
        {"timeout": "5"},
        {"retry": 3},
        {"commit": "maybe"},
        {"outside": "no"},
        {"not_applied_on": "ValueError"},
        {"not_applied_on": (ValueError, 5)},
        {"prober": 5},
        {"prober": "nobody.knows"},
        {"reconciler": "nobody.knows"},
        {"name": "  "},
        {"name": "x" * 301},
        {"name": "a\nb"},
        {"compensate": 5},
        {"compensate": {"handler": "nobody.knows", "kwargs": {}}},
        {"compensate": {"kwargs": {}}},
        {"semantics": "MAYBE"},
        {"window": 5.0, "idempotent": False, "timeout": "x"},
        {"settle_after": -1},
        {"unknown_option": 1},
    ],
)
def test_a_declaration_that_cannot_work_is_refused_when_it_is_made(kit, options):
    with pytest.raises((ConfigurationError, TypeError)):
        kit.safe_tool(lambda: None, **{"semantics": "COMPENSABLE", **options})


def test_nothing_is_guessed_about_what_a_tool_does(kit):
    from agent_saga import UndeclaredSemantics

    def read_nothing():
        return None

    with pytest.raises(UndeclaredSemantics):
        kit.safe_tool(read_nothing)
    with pytest.raises(ConfigurationError):
        kit.tool(read_nothing)


def test_an_irreversible_tool_takes_no_inverse(kit):
    with pytest.raises(ConfigurationError):
        kit.safe_tool(lambda: None, "IRREVERSIBLE", lambda r: None)


def test_a_second_inverse_of_one_tool_is_refused(kit, charge):
    with pytest.raises(ConfigurationError):
        charge.undo(lambda result: None)


def test_an_undo_that_asks_for_what_it_cannot_get_is_refused(kit):
    tool = kit.safe_tool(lambda: None, "COMPENSABLE", name="t")
    with pytest.raises(ConfigurationError):

        @tool.undo
        def refund(result, colour):
            pass


@pytest.mark.parametrize("key", ["", None, 5])
def test_a_step_s_key_is_a_text(charge, key):
    with pytest.raises(ConfigurationError):
        charge.keyed(key)


@pytest.mark.parametrize(
    "wrong", [{"key": ""}, {"key": 5}, {"arguments": 5}, {"arguments": [("amount", 1)]}]
)
def test_what_a_step_without_a_tool_is_told_wrongly_is_refused_before_its_effect(kit, world, wrong):
    with kit.transaction() as saga, pytest.raises(ConfigurationError, match=r"key|arguments="):
        saga.execute(tool="pay", semantics="COMPENSABLE", forward=lambda: world.charge(1), **wrong)
    assert world.charges == []


def test_a_lost_answer_of_a_tool_without_inverse_is_said(kit, world):
    with pytest.raises(CommittedUnsettled), kit.transaction():
        tool = kit.safe_tool(lambda: 1 / 0, "COMPENSABLE", name="t")
        with pytest.raises(ZeroDivisionError):
            tool()

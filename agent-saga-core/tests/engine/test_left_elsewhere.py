"""A boundary that was entered in the main thread and is left in another one."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading

import pytest

from agent_saga import RefusedError, SagaAborted, current_saga
from agent_saga.engine import interrupts


class Boom(Exception):
    pass


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("fails", [False, True])
def test_a_boundary_that_is_left_in_another_thread_is_left_there(kit, world, fails):
    """A generator that begins in the main thread may end in another one."""
    tool = kit.safe_tool(world.charge, "COMPENSABLE", name="charge")

    @tool.undo
    def refund(result):
        world.refund(result["id"])

    ended = []

    def agent():
        with kit.transaction() as saga:
            ended.append(saga)
            tool(5)
            yield
            if fails:
                raise Boom

    run = agent()
    next(run)

    def rest():
        with pytest.raises(SagaAborted if fails else StopIteration):
            next(run)
        ended.append("here")

    in_a_thread(rest)
    assert ended[1:] == ["here"]
    assert ended[0].report.clean
    assert world.standing == ([] if fails else ["ch1"])
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt) as caught, kit.transaction() as saga:
        tool(7)
        signal.raise_signal(signal.SIGINT)
    assert caught.value.saga_report.clean
    assert saga.id != ended[0].id
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_signals_are_given_back_by_the_next_boundary_of_the_main_thread(kit):
    run = iter_boundary(kit)
    next(run)
    with kit.transaction():
        in_a_thread(run.close)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_boundary_that_was_left_elsewhere_had_begun_stays_refused(kit, world):
    tool = kit.safe_tool(world.charge, "REVERSIBLE", name="read")
    run = iter_boundary(kit)
    next(run)
    inside = contextvars.copy_context()
    in_a_thread(run.close)
    with pytest.raises(RefusedError):
        inside.run(kit.transaction().__enter__)
    with kit.transaction():
        tool(1)
    tool(2)
    assert current_saga() is None


def iter_boundary(kit):
    with kit.transaction():
        yield


def test_a_boundary_that_is_left_on_a_loop_of_its_own_is_left(kit):
    scope = kit.transaction()
    first = scope.__enter__()
    asyncio.run(scope.__aexit__(None, None, None))
    assert not interrupts.main.installed
    with kit.transaction() as second:
        assert second.id != first.id
    assert current_saga() is None

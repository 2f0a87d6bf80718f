"""What runs sagas for as long as its process lives keeps nothing of them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref

import pytest

from agent_saga import ConfigurationError, saga_scope

SAGAS = 20


async def use_async(kit):
    async with kit.transaction() as saga, saga.savepoint():
        pass


def use(kit, **options):
    with kit.transaction(**options) as saga, saga.savepoint():
        pass


def variables():
    return len(contextvars.copy_context())


def test_a_context_keeps_no_variable_for_each_boundary(kit):
    use(kit)
    before = variables()
    for _ in range(SAGAS):
        use(kit)
    assert variables() == before


def test_a_task_keeps_no_variable_for_each_boundary(kit):
    async def many():
        await use_async(kit)
        before = variables()
        for _ in range(SAGAS):
            await use_async(kit)
        return variables() - before

    assert asyncio.run(many()) == 0


def test_a_boundary_that_was_left_in_another_context_is_let_go_at_the_next_one(kit):
    here = contextvars.copy_context()
    scope = kit.transaction()
    here.run(scope.__enter__)
    boundary = weakref.ref(scope._in_use[0])
    scope.__exit__(None, None, None)
    here.run(use, kit, detached=True)
    gc.collect()
    assert boundary() is None


def test_boundaries_may_be_left_in_another_order_than_they_were_entered(kit):
    first, second = (kit.transaction(detached=True) for _ in range(2))
    sagas = [scope.__enter__().id for scope in (first, second)]
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert [scope.report.saga_id for scope in (first, second)] == sagas


def test_a_boundary_that_was_not_entered_cannot_be_left_inside_another(kit):
    stranger = saga_scope(name="stranger")
    with kit.transaction(), pytest.raises(ConfigurationError, match="had not been entered"):
        stranger.__exit__(None, None, None)

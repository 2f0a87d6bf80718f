"""The world that these tests judge by, and one body of a test for every way to drive it."""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest

from agent_saga import AgentKit, MemoryWAL, Settings
from agent_saga.plugins.registry import process_handlers

FAST = Settings(
    settle=0.5,
    settle_after=0.2,
    inverse_timeout=5.0,
    inverse_delay=0.0,
    cancel_grace=0.2,
    approval_timeout=5.0,
)


class World:
    """A ledger of charges, counted: what really happened, whatever the log says."""

    def __init__(self):
        self.lock = threading.Lock()
        self.charges = []
        self.refunds = []
        self.keys = []
        self.undo_keys = []

    def charge(self, amount, idempotency_key=None):
        with self.lock:
            number = f"ch{len(self.charges) + 1}"
            self.charges.append((number, amount))
            self.keys.append(idempotency_key)
        return {"id": number, "amount": amount}

    def refund(self, number, idempotency_key=None):
        with self.lock:
            self.refunds.append(number)
            self.undo_keys.append(idempotency_key)

    @property
    def standing(self):
        """The charges that nothing took back."""
        return [number for number, _ in self.charges if number not in self.refunds]

    @property
    def amounts(self):
        return [amount for _, amount in self.charges]


class Mode:
    """How a test is driven: "sync", "async", or "pool" (sync tools in an async boundary)."""

    def __init__(self, name):
        self.name = name
        self.is_async = name != "sync"

    def run(self, coroutine):
        """Run the body of a test; without a loop it never suspends."""
        if self.is_async:
            return asyncio.run(coroutine)
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        finally:
            coroutine.close()
        raise AssertionError("a synchronous test was suspended")

    def open(self, scope):
        return scope if self.is_async else _Plain(scope)

    async def call(self, callee, /, *args, **kwargs):
        value = callee(*args, **kwargs)
        return await value if self.is_async else value

    def fn(self, function):
        """The function in the form that this mode tests."""
        if self.name != "async":
            return function

        @functools.wraps(function)
        async def form(*args, **kwargs):
            await asyncio.sleep(0)
            return function(*args, **kwargs)

        return form

    def attempt(self, kit, body, **options):
        """Run a body inside a boundary; return what leaving it raised, or None."""

        async def whole():
            async with self.open(kit.transaction(**options)) as saga:
                await body(saga)

        try:
            self.run(whole())
        except BaseException as error:
            cause = getattr(error, "cause", error)
            if isinstance(cause, (AssertionError, pytest.fail.Exception)):
                raise
            return error
        return None


class _Plain:
    """A synchronous boundary that an asynchronous body can enter."""

    def __init__(self, scope):
        self.scope = scope

    async def __aenter__(self):
        return self.scope.__enter__()

    async def __aexit__(self, *error):
        return self.scope.__exit__(*error)


@pytest.fixture(params=["sync", "async", "pool"])
def mode(request):
    return Mode(request.param)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def wal():
    return MemoryWAL()


@pytest.fixture
def kit(wal, fast):
    return AgentKit("test", wal=wal, settings=fast)


@pytest.fixture
def fast():
    return FAST


@pytest.fixture(autouse=True)
def handlers():
    """What a test registers is forgotten at its end."""
    with process_handlers().isolated() as registries:
        yield registries


@pytest.fixture
def charge(kit, world, mode):
    """A COMPENSABLE tool of the world with a named undo."""
    tool = kit.safe_tool(mode.fn(world.charge), "COMPENSABLE", name="charge")

    @tool.undo
    def refund(result, idempotency_key):
        world.refund(result["id"], idempotency_key)

    return tool


@pytest.fixture
def events(wal):
    """The names of the records that were written, in order."""

    def read(step=False):
        return [r.event for r in wal.read_all() if not step or r.step]

    return read

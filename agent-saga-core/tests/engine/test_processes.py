"""Forks and several processes on one log, through the boundary."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import warnings

import pytest

from agent_saga import (
    AgentKit,
    Applied,
    Compensation,
    FileWAL,
    Observation,
    SagaAborted,
    SagaForked,
)
from agent_saga.domain.fold import fold

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


class Boom(Exception):
    pass


def in_child(act):
    """Run something in a forked child; return its exit code, 0 if it did what it should."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = act() or 0
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def ledger(tmp_path):
    """A file in which every process writes what it did."""

    class Ledger:
        path = tmp_path / "ledger"

        def add(self, what):
            with self.path.open("a") as file:
                file.write(f"{what}\n")

        @property
        def lines(self):
            return self.path.read_text().split() if self.path.exists() else []

    return Ledger()


@pytest.fixture
def disk_kit(tmp_path, fast):
    wal = FileWAL(tmp_path / "log")
    yield AgentKit("forks", wal=wal, settings=fast)
    wal.close()


@pytest.mark.guarantee("FORK-1")
@pytest.mark.parametrize("leaves", ["well", "badly"])
def test_a_forked_child_that_leaves_the_boundary_neither_undoes_nor_commits(
    tmp_path, disk_kit, ledger, leaves
):
    tool = disk_kit.safe_tool(lambda: ledger.add("paid"), "COMPENSABLE", name="pay")

    @tool.undo
    def refund():
        ledger.add("refunded")

    def child(scope):
        try:
            scope.__exit__(*((None, None, None) if leaves == "well" else (Boom, Boom(), None)))
        except Exception as error:
            return 0 if isinstance(error, SagaForked) else 3
        return 0

    with disk_kit.transaction() as saga:
        tool()
        scope = disk_kit.transaction()
        code = in_child(lambda: child(_entered(scope, saga)))
        assert code == 0
        assert ledger.lines == ["paid"]
    assert saga.report.clean
    records = list(disk_kit.runtime.wal.read_all())
    views = fold(records)
    assert all(not view.faults for view in views.values())
    assert len({r.writer for r in records if r.saga == saga.id}) == 1


def _entered(scope, saga):
    """The parent's boundary, as a child holds a copy of it."""
    from agent_saga.engine.boundary import Boundary, BoundaryOptions

    boundary = Boundary(saga._scope.saga.engine, BoundaryOptions())
    boundary.scope = saga._scope
    scope._in_use.append(boundary)
    return scope


@pytest.mark.guarantee("FORK-1")
def test_a_step_of_the_parent_s_saga_is_refused_in_a_child(disk_kit, ledger):
    tool = disk_kit.safe_tool(lambda: ledger.add("paid"), "COMPENSABLE", name="pay")

    def child():
        try:
            tool()
        except SagaForked:
            return 0
        return 3

    with disk_kit.transaction():
        tool()
        assert in_child(child) == 0
    assert ledger.lines == ["paid"]


def test_what_a_child_is_told_to_do_can_be_done(disk_kit, ledger):
    tool = disk_kit.safe_tool(lambda: ledger.add("paid"), "COMPENSABLE", name="pay")
    tool.undo(lambda: ledger.add("refunded"))

    def child():
        try:
            with disk_kit.transaction():
                return 3
        except SagaForked as error:
            if "detached=True" not in error.fix:
                return 4
        with disk_kit.transaction(detached=True):
            tool()
        return 0

    with disk_kit.transaction():
        assert in_child(child) == 0
    assert ledger.lines == ["paid"]


PLACES = [
    *[(place, "returns") for place in ("tool", "prepare", "factory", "probe", "undo", "observe")],
    ("tool", "raises"),
    ("tool", "ends"),
    ("undo", "ends"),
]


class Forking:
    """A tool that forks once, in one place of its code; the child may raise there."""

    def __init__(self, ledger, place, ending):
        self.ledger, self.place, self.ending = ledger, place, ending
        self.parent, self.child = os.getpid(), None

    def at(self, here):
        if here != self.place or self.child is not None:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.child = os.fork()
        if self.child == 0 and self.ending != "returns":
            raise Boom if self.ending == "raises" else SystemExit(0)

    def pay(self, what):
        self.ledger.add(f"pay-{what}")
        if what == 2:
            self.at("tool")
            if self.place == "probe":
                raise ConnectionError
        return what

    def refund(self, what):
        self.ledger.add(f"undo-{what}")
        if what == 2:
            self.at("undo")
            if self.place == "observe":
                raise ConnectionError

    def prepare(self, args):
        self.at("prepare")

    def probe(self, args):
        self.at("probe")
        return Applied(args["what"])

    def observe(self):
        self.at("observe")
        return Observation(reversed_=True)

    def tool(self, kit, mode):
        def inverse(what):
            self.at("factory")
            return Compensation(fn=mode.fn(self.refund), kwargs={"what": what})

        return kit.safe_tool(
            mode.fn(self.pay),
            compensate=inverse,
            name="pay",
            prepare=mode.fn(self.prepare),
            prober=mode.fn(self.probe),
            reconciler=mode.fn(self.observe),
        )


@pytest.mark.guarantee("FORK-1")
@pytest.mark.parametrize(("place", "ending"), PLACES)
def test_a_child_forked_in_the_user_s_code_goes_on_with_nothing_of_the_saga(
    mode, disk_kit, ledger, place, ending
):
    forking = Forking(ledger, place, ending)
    tool = forking.tool(disk_kit, mode)
    sagas = []

    async def whole():
        try:
            async with mode.open(disk_kit.transaction()) as saga:
                sagas.append(saga)
                for number in (1, 2, 3):
                    with contextlib.suppress(ConnectionError):
                        await mode.call(tool, number)
                raise Boom
        except BaseException as error:
            if os.getpid() != forking.parent:
                os._exit(0 if _left_as_it_should(error, ending) else 3)

    try:
        mode.run(whole())
    finally:
        if os.getpid() != forking.parent:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(forking.child, 0)[1]) == 0
    assert sorted(ledger.lines) == [f"{what}-{n}" for what in ("pay", "undo") for n in (1, 2, 3)]
    assert sagas[0].report.clean
    records = list(disk_kit.runtime.wal.read_all())
    assert all(not view.faults for view in fold(records).values())
    assert len({record.writer for record in records}) == 1


def _left_as_it_should(error, ending):
    """What the child's own code raised leaves the engine there; else it is told what it is.

    A loop says by itself, with a RuntimeError, that it does not run in a child.
    """
    wanted = {"returns": SagaForked, "raises": Boom, "ends": SystemExit}[ending]
    return isinstance(error, (wanted, SagaForked, RuntimeError))


def _of(ledger):
    def pay(who):
        ledger.add(who)

    return pay


def test_a_child_opens_a_boundary_of_its_own_and_a_writer_of_its_own(tmp_path, disk_kit, ledger):
    tool = disk_kit.safe_tool(_of(ledger), "COMPENSABLE", name="pay")

    @tool.undo
    def refund(args):
        ledger.add(f"undo-{args['who']}")

    def child():
        try:
            with disk_kit.transaction(detached=True):
                tool("child")
                raise Boom
        except SagaAborted as aborted:
            return 0 if aborted.report.clean else 4
        return 3

    with disk_kit.transaction():
        tool("parent")
        assert in_child(child) == 0
    assert ledger.lines == ["parent", "child", "undo-child"]
    views = fold(list(disk_kit.runtime.wal.read_all()))
    assert len(views) == 2
    assert all(not view.faults for view in views.values())


def test_a_child_s_pool_of_threads_works(disk_kit, ledger):
    tool = disk_kit.safe_tool(lambda: ledger.add("paid"), "COMPENSABLE", name="p", timeout=20)
    with disk_kit.transaction():
        tool()

    def child():
        with disk_kit.transaction(detached=True):
            tool()

    assert in_child(child) == 0
    assert ledger.lines == ["paid", "paid"]


PROGRAM = """
import sqlite3, sys
from agent_saga import AgentKit, SagaAborted

log, world, who = sys.argv[1:]
kit = AgentKit("agent", wal=log)
db = sqlite3.connect(world, timeout=30, isolation_level=None)

@kit.tool("COMPENSABLE")
def pay(amount, *, idempotency_key):
    db.execute("insert into effects values (?, ?, ?)", (idempotency_key, who, amount))
    return {"key": idempotency_key}

@pay.undo
def refund(result):
    db.execute("delete from effects where key = ?", (result["key"],))

for run in range(5):
    try:
        with kit.transaction():
            pay(1)
            pay(2)
            if run % 2:
                raise ValueError("fail")
    except SagaAborted as aborted:
        assert aborted.report.clean, aborted
"""


def test_several_processes_share_one_log_and_each_undoes_its_own(tmp_path):
    import sqlite3

    world = tmp_path / "world.db"
    with sqlite3.connect(world) as db:
        db.execute("create table effects (key text primary key, who text, amount integer)")
    db.close()
    program = tmp_path / "agent_program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    running = [
        subprocess.Popen([sys.executable, str(program), str(tmp_path / "log"), str(world), str(n)])
        for n in range(3)
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    db = sqlite3.connect(world)
    rows = db.execute("select who, count(*) from effects group by who").fetchall()
    db.close()
    assert sorted(rows) == [("0", 6), ("1", 6), ("2", 6)]
    records = list(FileWAL(tmp_path / "log").read_all())
    assert len({record.writer for record in records}) == 3
    views = fold(records)
    assert len(views) == 15
    assert all(not view.faults for view in views.values())
    assert sorted(view.state.value for view in views.values()) == (
        ["COMMITTED"] * 9 + ["ROLLED_BACK"] * 6
    )

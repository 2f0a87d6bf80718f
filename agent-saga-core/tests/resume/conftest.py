"""A shop whose sagas have an id of their own, over a log in files and a world counted beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_saga import AgentKit, FileWAL, RecoveryDaemon, Settings
from agent_saga.cli.reading import read_log
from agent_saga.domain.views import SagaView
from agent_saga.errors import SagaSuspended
from agent_saga.recovery.claim import Place
from agent_saga.recovery.proofs import Proofs
from agent_saga.wal.format import Record
from agent_saga.wal.reader import scan_log

QUICK = Settings(settle=0.5, settle_after=0.1, inverse_delay=0.0)


class Shop:
    """A kit over a log in files, and a world that is counted beside it."""

    def __init__(self, folder: Path, settings: Settings = QUICK) -> None:
        self.log = folder / "log"
        self.world: list[Any] = []
        self.kit = AgentKit("shop", wal=str(self.log), settings=settings)
        self.fail: BaseException | None = None

        @self.kit.tool("COMPENSABLE")
        def charge(n: int) -> dict[str, int]:
            self.world.append(("charge", n))
            if self.fail is not None:
                raise self.fail
            return {"n": n}

        @charge.undo
        def refund(result: dict[str, int]) -> None:
            self.world.append(("refund", result["n"]))

        self.charge = charge

    def open(self, saga_id: Any = "order-17", **options: Any) -> Any:
        return self.kit.transaction(saga_id=saga_id, **{"resume": True, **options})

    def suspend(self, *numbers: int, **how: Any) -> None:
        with pytest.raises(SagaSuspended), self.open() as saga:
            for number in numbers:
                self.charge(number)
            saga.suspend("waits for a human", **how)

    def lose_an_answer(self, *, inside: str = "") -> None:
        """Suspend a saga whose charge of 1 took effect, and whose answer was lost."""
        self.fail = ConnectionError("the answer was lost")
        with pytest.raises(SagaSuspended), self.open() as saga:
            if inside:
                with saga.savepoint(inside), pytest.raises(ConnectionError):
                    self.charge(1)
            else:
                with pytest.raises(ConnectionError):
                    self.charge(1)
            saga.suspend("waits")
        self.fail = None

    def view(self) -> SagaView:
        [view] = read_log(self.log).sagas.values()
        return view

    def state(self) -> tuple[str, bool]:
        view = self.view()
        return view.state.value, view.clean

    def records(self) -> int:
        """Return how many records of sagas the log has; marks of a sync may come at any time."""
        self.kit.runtime.engine().wal.drain()
        return sum(isinstance(one, Record) and bool(one.saga) for one in scan_log(self.log))

    def place(self) -> Place:
        engine = self.kit.runtime.engine()
        assert isinstance(engine.wal, FileWAL)
        return Place(engine, engine.wal, self.kit.runtime.store, Proofs())

    def recover(self) -> Any:
        daemon = RecoveryDaemon(str(self.log), settings=QUICK)
        try:
            return daemon.recover_all()
        finally:
            daemon.close()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)

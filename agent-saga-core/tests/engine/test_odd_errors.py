"""Errors with code of their own: what they say of themselves changes nothing of what is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_saga import AgentKit, SagaAborted, Settings, compensator
from agent_saga.cli.reading import read_log
from agent_saga.plugins.registry import process_handlers

pytestmark = pytest.mark.anyio

QUICK = Settings(settle=0.2, settle_after=0.0, inverse_delay=0.0)


class Empty(Exception):
    """Several errors in one, of which there are none: it counts as false."""

    def __len__(self) -> int:
        return 0


class NoTruth(Exception):
    def __bool__(self) -> bool:
        raise RuntimeError("it is neither")


class NoCause(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("nobody knows")


class NoContext(Exception):
    @property
    def __context__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("nobody knows")


class OddCause(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        return "a text"


ODD = [Empty, NoTruth, NoCause, NoContext, OddCause]


class Shop:
    def __init__(self, folder: Path, error: Exception, *, fails: str) -> None:
        self.log = folder / "log"
        self.kit = AgentKit("odd", wal=self.log, settings=QUICK)
        self.world: list[str] = []

        @compensator("odd.refund")
        def refund(n: int) -> None:
            self.world.append(f"refund {n}")
            if fails == "refund":
                raise error

        @self.kit.tool("COMPENSABLE", name="charge", compensate=refund.using(n="$"))
        def charge(n: int) -> int:
            self.world.append(f"charge {n}")
            if fails == "charge":
                raise error
            return n

        self.charge = charge

    def state(self) -> str:
        [view] = read_log(self.log).sagas.values()
        return view.state.value


@pytest.fixture(autouse=True)
def registries() -> Any:
    with process_handlers().isolated():
        yield


@pytest.mark.guarantee("UNDO-1")
@pytest.mark.parametrize("odd", ODD)
def test_an_inverse_that_ends_with_one_is_not_run_again(tmp_path: Path, odd: Any) -> None:
    shop = Shop(tmp_path, odd(), fails="refund")
    with pytest.raises(SagaAborted) as failed, shop.kit.transaction():
        shop.charge(1)
        raise RuntimeError("it fails")
    assert shop.world == ["charge 1", "refund 1"]
    assert not failed.value.report.clean
    assert shop.state() == "STUCK"


@pytest.mark.parametrize("odd", ODD)
def test_a_call_that_ends_with_one_is_unknown(tmp_path: Path, odd: Any) -> None:
    shop = Shop(tmp_path, odd(), fails="charge")
    with pytest.raises(SagaAborted) as failed, shop.kit.transaction():
        shop.charge(1)
    assert shop.world == ["charge 1"]
    assert [line.tool for line in failed.value.report.orphaned] == ["charge"]


@pytest.mark.parametrize("odd", ODD)
def test_a_boundary_that_ends_with_one_is_undone(tmp_path: Path, odd: Any) -> None:
    shop = Shop(tmp_path, odd(), fails="")
    with pytest.raises(SagaAborted), shop.kit.transaction():
        shop.charge(1)
        raise odd
    assert shop.world == ["charge 1", "refund 1"]
    assert shop.state() == "ROLLED_BACK"


@pytest.mark.parametrize("odd", ODD)
async def test_so_is_an_asynchronous_one(tmp_path: Path, odd: Any) -> None:
    shop = Shop(tmp_path, odd(), fails="")
    with pytest.raises(SagaAborted):
        async with shop.kit.transaction():
            await shop.charge(1)
            raise odd
    assert shop.world == ["charge 1", "refund 1"]

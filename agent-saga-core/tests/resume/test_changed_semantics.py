"""A tool that is declared with other semantics since its saga was recorded is another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from resume.conftest import Shop

from agent_saga import SagaAborted
from agent_saga.errors import CommittedUnsettled, ReplayConflict


def redeclared(shop: Shop, semantics: str) -> Any:
    """Return `charge` as a later version of the program declares it."""

    def charge(n: int) -> dict[str, int]:
        shop.world.append((semantics, n))
        return {"n": n}

    return shop.kit.safe_tool(charge, semantics, name="charge")


OTHERS = ("REVERSIBLE", "IRREVERSIBLE")


@pytest.mark.guarantee("RESUME-13")
@pytest.mark.parametrize("semantics", OTHERS)
def test_what_took_effect_is_undone_as_what_it_was(shop: Shop, semantics: str) -> None:
    shop.suspend(1)
    tool = redeclared(shop, semantics)
    with pytest.raises(SagaAborted) as failed, shop.open():
        tool(1)
    assert isinstance(failed.value.cause, ReplayConflict)
    assert shop.world == [("charge", 1), ("refund", 1)]
    assert shop.state() == ("ROLLED_BACK", True)


@pytest.mark.guarantee("RESUME-13")
@pytest.mark.parametrize("semantics", OTHERS)
@pytest.mark.parametrize("fails", [False, True])
def test_what_may_have_taken_effect_is_not_run_again_and_not_forgotten(
    shop: Shop, semantics: str, fails: bool
) -> None:
    shop.lose_an_answer()
    tool = redeclared(shop, semantics)
    with pytest.raises((SagaAborted, CommittedUnsettled)) as failed, shop.open():
        with pytest.raises(ReplayConflict):
            tool(1)
        if fails:
            raise RuntimeError("the run fails")
    assert shop.world == [("charge", 1)]
    assert not failed.value.report.clean
    assert not shop.view().clean


def test_so_it_is_with_a_key_within_one_run(shop: Shop, tmp_path: Path) -> None:
    tool = redeclared(shop, "REVERSIBLE")
    with pytest.raises(SagaAborted) as failed, shop.kit.transaction():
        shop.charge.keyed("one")(1)
        tool.keyed("one")(1)
    assert isinstance(failed.value.cause, ReplayConflict)
    assert shop.world == [("charge", 1), ("refund", 1)]

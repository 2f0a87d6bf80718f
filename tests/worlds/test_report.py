"""The page tells what was counted: every part that has a file, and each world with each fault."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench.worlds import faults
from bench.worlds.__main__ import faulty, keep, main, opened, table
from bench.worlds.measures import row
from bench.worlds.outcome import Outcome
from bench.worlds.report import chart, page, read
from bench.worlds.world import GoldCall, Task

WELL = {
    "world": "shop",
    "task": "one",
    "model": faults.AFTER,
    "at": 0,
    "tool": "order",
    "met": True,
    "refused": "",
    "cost": False,
    "failed": True,
    "clean": True,
    "exact": True,
    "declared": True,
    "stands": False,
    "doubles": 0,
    "repeats": 0,
    "lost": True,
    "settled": True,
}
REFUSED = {"met": False, "refused": "nobody answered", "lost": False, "settled": False}
PEER = {"world": "shop", "who": "other", "version": "1", "runs": 10}
SPLIT = {"exact": 5, "clean": 9, "false_clean": 4, "guard": 3, "undo": 1, "refused": 0}
SUITE = {"suite": "chat", "injected": 3, "unrecorded": 1, "runs": 9, "contained": 8, "prevented": 7}
TWINS = {"escaped": {"injection_task_3": 1}, "twins": 4, "passed": 4, "false_clean": 0}


def outcome(**other):
    return Outcome(**(WELL | other))


def test_what_must_never_be_is_a_fault():
    assert not faulty(outcome())
    assert faulty(outcome(declared=False))
    assert faulty(outcome(declared=False, clean=False))
    assert faulty(outcome(stands=True))
    assert not faulty(outcome(stands=True, clean=False))
    assert faulty(outcome(doubles=1))
    assert faulty(outcome(collateral=1))
    assert faulty(outcome(settled=False))
    assert faulty(outcome(broken=["KeyError('id')"]))
    assert not faulty(outcome(repeats=1))


def test_a_run_that_never_met_its_fault_is_in_no_share():
    runs = [outcome(), outcome(exact=False), outcome(**REFUSED), outcome(**REFUSED)]
    seen = row(runs)
    assert (seen.runs, seen.met, seen.refused.part) == (4, 2, 2)
    assert str(seen.exact).startswith("50.0 % (")
    assert seen.cost.whole == 0


def test_the_price_is_counted_of_runs_that_would_have_ended_well():
    refused = outcome(**REFUSED, model=faults.NONE, cost=True)
    seen = row([refused, outcome(model=faults.NONE), outcome(**REFUSED)])
    assert (seen.cost.part, seen.cost.whole) == (1, 2)


def test_every_part_is_on_the_page(tmp_path):
    runs = [outcome(), outcome(model=faults.BEFORE, world="bank", exact=False)]
    said = {"kind": "runs", "seed": 1, "each": 4, "present": False}
    keep(str(tmp_path / "runs"), runs, said)
    keep(str(tmp_path / "present"), runs, said | {"present": True})
    keep(str(tmp_path / "mixed"), runs, said | {"mixed": 9})
    keep(str(tmp_path / "graph"), runs, {"kind": "graph", "seed": 2, "each": 3})
    rogue = {"kind": "rogue", "seed": 1, "suites": [SUITE | TWINS]}
    (tmp_path / "rogue").write_text(json.dumps(rogue))
    peers = {"kind": "peers", "seed": 1, "each": 5, "peers": [PEER | SPLIT]}
    (tmp_path / "peers").write_text(json.dumps(peers))
    kept = read(sorted(tmp_path.iterdir()))
    text = page(kept, peers["peers"])
    assert "`python -m bench.worlds shop bank --runs 4 --seed 1`" in text
    assert "`python -m bench.worlds.graph shop bank --runs 3 --seed 2`" in text
    assert "`python -m bench.worlds --mixed 9 shop bank --runs 4 --seed 1`" in text
    assert "| world | before | after |" in text
    assert "| bank | 0/1/1 of 1, 0+0 |  |" in text
    assert "| chat | 3 | 1 | 9 | 88.9 (57-98) | 7 | injection_task_3 (1) | 4 |" in text
    assert "| shop | other | 10 | 50.0 (24-76) | 90.0 | 40.0 % (16.8 to 68.7) | 3 | 1 | 0 |" in text
    assert "other, shop" in chart(peers["peers"])


def test_a_part_without_a_file_is_not_on_the_page(tmp_path):
    keep(str(tmp_path / "runs"), [outcome()], {"kind": "runs", "seed": 1, "each": 1})
    text = page(read(tmp_path.iterdir()), [])
    assert "In **1** runs" in text
    assert "Beside others" not in text
    assert "user who approves" not in text.split("## What this does not say")[0]


def test_the_table_names_every_column():
    lines = table([outcome(), outcome(**REFUSED)]).splitlines()
    assert lines[0].split()[:4] == ["world", "fault", "runs", "met"]
    assert lines[-1].split()[:4] == ["all", "all", "2", "1"]


@pytest.mark.parametrize("at", ["-1", "two"])
def test_a_number_that_no_call_has_is_refused(at, capsys):
    with pytest.raises(SystemExit):
        main(["--at", at, "bfcl"])
    assert f"{at} is no number of a call" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--runs", "--mixed"])
@pytest.mark.parametrize("many", ["0", "-3", "few"])
def test_no_runs_or_tasks_at_all_are_refused(option, many, capsys):
    with pytest.raises(SystemExit):
        main([option, many, "bfcl"])
    assert f"{many} is no number of runs" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_told_before_the_runs(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--json", str(tmp_path / "no" / "out.json"), "bfcl"])
    assert "there is no folder" in capsys.readouterr().err


def test_an_unknown_task_is_told_with_an_example(monkeypatch, capsys):
    shop = SimpleNamespace(tasks=lambda: [Task("bfcl", "one", (GoldCall("order", {}),))])
    monkeypatch.setattr("bench.worlds.__main__.opened", lambda name: shop)
    for asked in (["--task", "two"], ["--task", "one", "--task", "two"], ["--at", "7"]):
        with pytest.raises(SystemExit) as ended:
            main([*asked, "bfcl"])
        assert ended.value.code == 2
        assert "for example one" in capsys.readouterr().err


def test_a_world_without_its_package_says_what_to_do(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name="tau9")

    monkeypatch.setattr("bench.worlds.__main__.worlds", lambda: {"far": lambda: missing("far")})
    with pytest.raises(SystemExit, match=r"far: tau9 is not installed here(.|\n)*nox"):
        opened("far")

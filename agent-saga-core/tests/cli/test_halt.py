"""Halting from another process: what it reaches, what it prints, and that nothing new happens."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

AGENT = """
import os, pathlib, sys, time
from agent_saga import AgentKit, Compensation, Halted
starter = os.getppid()
effects = pathlib.Path(sys.argv[2])
def act(number: int):
    with effects.open("a") as file:
        file.write(f"{number}\\n")
    return {"number": number}
kit = AgentKit("agent", wal=sys.argv[1])
act = kit.safe_tool(act, "COMPENSABLE", lambda r: Compensation.none("a line"), name="wire.send",
                    tags=["money"])
number = 0
while os.getppid() == starter:
    try:
        with kit.transaction():
            for _ in range(20):
                number += 1
                act(number)
    except Halted:
        pass
    except Exception as error:
        if not isinstance(error.cause, Halted):
            raise
        print("halted", number, flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def agents(tmp_path):
    """Start processes that act as fast as they can, until they are halted."""
    started = []

    def start(count):
        for number in range(count):
            effects = tmp_path / f"effects-{number}"
            effects.touch()
            process = subprocess.Popen(
                [sys.executable, "-c", AGENT, tmp_path / "agent-saga.wal", effects],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.append((process, effects))
        while not all(effects.read_text().count("\n") > 5 for _, effects in started):
            time.sleep(0.01)
        return started

    yield start
    for process, _ in started:
        process.kill()
        process.communicate()


def effects_of(agents):
    return [int(line) for _, effects in agents for line in effects.read_text().split()]


@pytest.mark.guarantee("HALT-1")
def test_after_a_halt_is_acknowledged_only_announced_steps_of_other_processes_take_effect(
    cli, agents
):
    running = agents(2)
    done = cli("halt", "--scope", "tool:wire.*", "--reason", "fraud", "--by", "soc", "--json")
    before = len(effects_of(running))
    assert done.code == 0
    assert {one["pid"] for one in done.document["reached"]} == {p.pid for p, _ in running}
    for process, _ in running:
        assert process.stdout.readline().startswith("halted")
    in_flight = len(done.document["in_flight"])
    assert len(effects_of(running)) - before <= in_flight
    assert all(step["tool"] == "wire.send" for step in done.document["in_flight"])
    lifted = cli("resume", "--scope", "tool:wire.*", "--by", "soc")
    assert lifted.code == 0
    for process, _ in running:
        process.stdin.write("\n")
        process.stdin.flush()
    halted = len(effects_of(running))
    while len(effects_of(running)) == halted:
        time.sleep(0.01)


def test_a_halt_that_reaches_nobody_says_so_and_holds_for_who_starts_later(cli, tmp_path):
    done = cli("halt", "--scope", "tool:wire.send", "--reason", "freeze", "--by", "soc@corp")
    assert done.code == 1
    assert "0 live writers" in done.out
    assert "no living process" in done.err
    effects = tmp_path / "effects"
    effects.touch()
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, tmp_path / "agent-saga.wal", effects],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "halted 1\n"
    process.kill()
    process.communicate()
    assert effects.read_text() == ""


@pytest.mark.parametrize("scope", ["tool:*", "tool:wir*", "wire.send", "Tool:wire.send", "tag:"])
def test_a_scope_that_covers_nothing_by_its_form_is_a_usage_error_and_sets_nothing(
    cli, scope, tmp_path
):
    done = cli("halt", "--scope", scope, "--reason", "r", "--by", "b")
    assert done.code == 2
    assert "tool:NAME" in done.err
    assert not (tmp_path / "agent-saga.wal").exists()


def test_a_misspelt_scope_is_set_and_told_with_the_nearest(cli, log):
    log.begin()
    log.charged()
    log.sync()
    done = cli("halt", "--scope", "tool:chrage", "--reason", "r", "--by", "b")
    assert done.code == 1
    assert "Did you mean tool:charge?" in done.err
    assert cli("halt", "--scope", "tool:charge", "--reason", "r", "--by", "b").code == 0


@pytest.mark.parametrize("missing", ["--reason", "--by"])
def test_who_and_why_are_asked_for(cli, missing):
    words = ["halt", "--scope", "*", "--reason", "r", "--by", "b"]
    place = words.index(missing)
    del words[place : place + 2]
    assert cli(*words).code == 2
    assert cli("halt", "--reason", " ", "--by", "b").code == 2


def test_steps_in_flight_of_living_processes_are_told(cli, log):
    log.begin()
    log.add(
        "STEP_INTENT",
        {"call": {"tool": "slow", "semantics": "COMPENSABLE", "tags": ["t"]}},
        step="a" * 22,
    )
    log.charged()
    log.sync()
    done = cli("halt", "--reason", "r", "--by", "b", "--json")
    assert [(s["tool"], s["step"], s["tags"]) for s in done.document["in_flight"]] == [
        ("slow", "a" * 22, ["t"])
    ]
    told = cli("halt", "--reason", "again", "--by", "b").out
    assert "1 step in flight" in told
    assert "slow [aaaaaaaa] in saga saga-1" in told


def test_resume_without_a_scope_says_what_it_does_and_where_sagas_resume(cli):
    done = cli("resume", "saga-1")
    assert done.code == 2
    assert "lifts halts" in done.err
    assert "resume=True" in done.err
    assert cli("resume", "--scope", "*").code == 2


def test_resume_lifts_exactly_what_it_names_and_tells_what_still_holds(cli, log):
    log.begin()
    log.sync()
    for scope in ("*", "tool:a"):
        cli("halt", "--scope", scope, "--reason", "r", "--by", "b")
    done = cli("resume", "--scope", "tool:a", "--by", "ann")
    assert done.code == 0
    assert "Lifted: tool:a" in done.out
    assert "Still: * is halted" in done.out
    assert cli("resume", "--scope", "tool:a", "--by", "ann").code == 3
    document = cli("resume", "--scope", "*", "--by", "ann", "--json").document
    assert (len(document["lifted"]), document["holds"]) == (1, [])


def test_a_saga_is_quarantined_and_released_by_its_id_or_name(cli, log):
    log.begin()
    log.charged()
    log.sync()
    done = cli("quarantine", "checkout", "--reason", "odd", "--by", "soc")
    assert done.code == 0
    assert "saga-1 is quarantined by soc" in done.out
    assert "resume --scope saga:saga-1" in done.out
    assert cli("resume", "--scope", "saga:saga-1", "--by", "soc").code == 0
    assert cli("resume", "--scope", "saga:saga-1", "--by", "soc").code == 3


def test_a_saga_that_the_log_does_not_have_is_not_quarantined(cli, log):
    log.begin()
    log.sync()
    assert cli("quarantine", "nothing", "--reason", "r", "--by", "b").code == 3
    assert cli("resume", "--scope", "saga:nothing", "--by", "b").code == 3


def test_names_and_reasons_cannot_steer_a_terminal(cli, log):
    log.begin()
    log.sync()
    done = cli("halt", "--reason", "x\x1b[31m\nforged", "--by", "b\x07")
    assert "\x1b" not in done.out
    assert "\x07" not in done.out
    assert "\nforged" not in done.out
    json.loads(cli("halt", "--reason", "x\x1b", "--by", "b", "--json").out)


def test_status_tells_what_is_halted_and_that_it_cannot_be_read(cli, log):
    log.begin()
    log.charged()
    log.add("SAGA_COMMITTED", {})
    log.sync()
    told = cli("status", "--json").document["sections"]
    assert told["halts"] == {"attention": False, "entries": []}
    assert told["approvals"]["pending"] == []
    cli("halt", "--scope", "tool:charge", "--reason", "r", "--by", "ann")
    done = cli("status")
    assert done.code == 1
    assert "tool:charge is halted by ann" in done.out
    assert "resume --scope tool:charge" in done.out
    (log.path / "state.switch.sqlite").write_text("99\n")
    told = cli("status", "--json").document["sections"]["halts"]
    assert told["attention"]
    assert "may be lost" in told["error"]


def test_a_halt_after_the_store_was_lost_says_that_everything_is_halted_now(cli, log):
    log.begin()
    log.charged()
    log.add("SAGA_COMMITTED", {})
    log.sync()
    cli("halt", "--scope", "tool:charge", "--reason", "r", "--by", "ann")
    for name in ("state.sqlite", "state.sqlite-wal", "state.sqlite-shm"):
        (log.path / name).unlink(missing_ok=True)
    done = cli("halt", "--scope", "tool:charge", "--reason", "again", "--by", "ann")
    assert "everything is halted" in done.err
    assert "resume --scope '*'" in done.err
    told = cli("halt", "--scope", "tool:charge", "--reason", "x", "--by", "ann", "--json").document
    assert [one["scope"] for one in told["lost"]] == ["*"]

"""What an error says to type next names the log that was asked about, and works as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga import AgentKit, BreakerPolicy, CircuitBreaker, CircuitOpen, set_breaker
from agent_saga.controls.humans import document
from agent_saga.controls.humans.document import Asked
from agent_saga.domain.commands import completed
from agent_saga.runtime.stores import FileApprovalStore
from agent_saga.state.base import one

if TYPE_CHECKING:
    from cli.conftest import Cli

TOLD = re.compile(r"agent-saga (.*)$", re.MULTILINE)
ID = "a" * 32
APPROVE = ("approvals", "approve", ID, "--approver", "ann")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A log that no command finds by itself, with a request in it."""
    path = tmp_path / "else where" / "a log"
    store = FileApprovalStore(path)
    wal: Any = store.wal
    wal.begin()
    now = store.clock.now_us()
    about = {
        "id": ID, "saga": "s", "step": "t", "gen": 0, "tool": "wire", "rule": "irreversible",
        "reason": "x", "arguments": "{}", "requesters": ["agent"],
    }  # fmt: skip
    asked = Asked(about, now + 60_000_000, 60_000_000)
    rule = one(document.key_of(ID), lambda doc: document.put(doc, asked, now=now))
    store.state.transact([document.key_of(ID)], rule)
    return path


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ((), ("approvals", "approve", "nothing", "--approver", "ann")),
        ((), ("approvals", "deny", "b" * 500, "--approver", "ann")),
        ((), ("approvals", "revoke", ID, "--approver", "ann")),
        (APPROVE, APPROVE),
        (APPROVE, ("approvals", "deny", ID, "--approver", "bob")),
        ((), ("show", "nothing")),
        ((), ("undo", "nothing", "--by", "ann", "--reason", "x")),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_an_error_names_the_log_in_what_it_says_to_do(
    cli: Cli, elsewhere: Path, before: tuple[str, ...], words: tuple[str, ...]
) -> None:
    if before:
        assert cli(*before, "--wal-path", elsewhere).code == 0
    run = cli(*words, "--wal-path", elsewhere)
    assert run.code in (3, 4)
    [told] = TOLD.findall(run.err)
    typed = shlex.split(told.replace("NAME", "zoe"))
    assert typed[-2:] == ["--wal-path", str(elsewhere)]
    as_json = cli(*words, "--wal-path", elsewhere, "--json").document["error"]
    assert told in as_json["fix"]
    assert cli(*typed).code in (0, 1, 3)


@pytest.mark.parametrize("words", [("approvals", "review", ID, "--approver", "bob"), APPROVE])
def test_who_answers_is_told_in_which_log(
    cli: Cli, elsewhere: Path, words: tuple[str, ...]
) -> None:
    if words is not APPROVE:
        cli(*APPROVE, "--break-glass", "--wal-path", elsewhere)
    run = cli(*words, "--wal-path", elsewhere)
    assert run.out.splitlines()[0] == f"Log: {elsewhere}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("What was: agent-saga list", "What was: agent-saga list --wal-path '/a b'"),
        ("agent-saga list", "agent-saga list --wal-path '/a b'"),
        ("x: agent-saga show y --wal-path /z", "x: agent-saga show y --wal-path /z"),
        ("one: agent-saga a\ntwo: agent-saga b --by NAME",
         "one: agent-saga a --wal-path '/a b'\ntwo: agent-saga b --by NAME --wal-path '/a b'"),
        ("see agent-saga list for more", "see agent-saga list for more"),
        ("", ""),
    ],
)  # fmt: skip
def test_only_a_command_that_ends_a_line_is_completed(text: str, told: str) -> None:
    assert completed(text, "file:/a b") == told


def test_a_refusal_by_a_breaker_names_the_log_of_its_program(cli: Cli, tmp_path: Path) -> None:
    breaker = CircuitBreaker(BreakerPolicy(failure_threshold=1, cool_down=3600))
    kit = AgentKit("k", wal=str(tmp_path / "a log"))
    set_breaker(breaker)

    @kit.tool("REVERSIBLE")
    def look_up() -> None:
        raise ConnectionError("down")

    try:
        with kit.transaction():
            with pytest.raises(ConnectionError):
                look_up()
            with pytest.raises(CircuitOpen) as refused:
                look_up()
    finally:
        set_breaker(None)
    [told] = TOLD.findall(str(refused.value.fix))
    assert cli(*shlex.split(told.replace("NAME", "zoe"))).code == 0

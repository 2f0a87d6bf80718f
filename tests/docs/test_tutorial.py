"""The question that the tutorial shows is the one that a terminal shows."""

from __future__ import annotations

import io
import re

from agent_saga import AgentKit, ConsoleApprovals, PreFlightGate
from tools import pages, tree

TUTORIAL = (tree.ROOT / "docs" / "tutorial.md").read_text("utf-8")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def without_id(text):
    return re.sub(r"id: \w+", "id: …", text).strip()


def test_the_question_on_the_console():
    shown, letters = io.StringIO(), []
    approvals = ConsoleApprovals(stdin=Terminal("y\n"), stdout=shown, approver="ada")
    kit = AgentKit("trip", gate=PreFlightGate(approval_provider=approvals), wal="memory:")

    @kit.tool("IRREVERSIBLE")
    def send_letter(to, text):
        letters.append((to, text))

    with kit.transaction():
        send_letter("Ada", "Your room is ready.")
    [question] = [block.text for block in pages.blocks(TUTORIAL) if block.language == "text"]
    assert without_id(shown.getvalue()) == without_id(question)
    assert letters == [("Ada", "Your room is ready.")]

"""One order that touches all five systems, as the decisions of a scripted agent."""

from __future__ import annotations

from typing import Any

ORDER: dict[str, dict[str, Any]] = {
    "charge": {"customer": "ada", "cents": 4900},
    "write_file": {"name": "address.txt", "text": "Ada, 7 New Road"},
    "reserve": {"item": "lamp", "pieces": 2},
    "open_ticket": {"team": "shipping", "text": "send Ada two lamps"},
    "set_flag": {"name": "checkout", "value": "express"},
}
"""What the agent decides: a tool's name and its arguments, in order."""

ORDERED = {
    "ledger: ada has paid": "68.00",
    "files: address.txt": "Ada, 7 New Road",
    "stock: lamp on the shelf": "10",
    "tickets: open for shipping": "1",
    "flags: checkout": "express",
}
"""What the world shows where the order was carried out."""

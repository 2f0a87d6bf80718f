"""What a webhook is sent: for Slack, Teams and Discord what they show, for others plain JSON.

Rules of this part:

- Texts were chosen by models and web pages. Nothing in them becomes a link, a mention or a format:
  each service's own marks are taken out of them.
- What is shown is short; who decides reads the whole of it with `agent-saga approvals list`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agent_saga.controls.humans.notice import Notice

__all__ = ["KINDS", "kind_of", "payload"]

_SHOWN: Final = 800
_HOSTS: Final = {
    "slack.com": "slack",
    "office.com": "teams",
    "office365.com": "teams",
    "logic.azure.com": "teams",
    "powerplatform.com": "teams",
    "discord.com": "discord",
    "discordapp.com": "discord",
}


def kind_of(url: str) -> str:
    """Return which service an address belongs to: "slack", "teams", "discord" or "json"."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - slow to load, seldom needed

    host = (urlsplit(url).hostname or "").lower()
    for domain, kind in _HOSTS.items():
        if host == domain or host.endswith(f".{domain}"):
            return kind
    return "json"


def payload(kind: str, notice: Notice) -> dict[str, Any]:
    """Return what a service of this kind is sent."""
    return _PAYLOADS[kind](notice)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… (cut)"


def _rows(notice: Notice) -> list[tuple[str, str]]:
    """Return what is shown of a request, as pairs of a name and a text."""
    return [
        ("why", _cut(notice.reason)),
        ("asked by", _cut(", ".join(notice.requesters))),
        ("arguments", _cut(notice.arguments)),
        ("until", notice.until),
        ("for", _cut(", ".join(notice.targets)) or "whoever may"),
    ]


def _commands(notice: Notice) -> list[tuple[str, str]]:
    """Return the commands that decide it; they are ours, and have to be pasted as they are."""
    return [("yes", notice.command("approve")), ("no", notice.command("deny"))]


def _slack(notice: Notice) -> dict[str, Any]:
    head = f"Approval needed: {_slack_text(_cut(notice.tool))}"
    lines = [f"*{name}:* {_slack_text(text)}" for name, text in _rows(notice)]
    lines += [f"*{name}:* `{text}`" for name, text in _commands(notice)]
    return {"text": "\n".join([head, *lines]), "unfurl_links": False, "unfurl_media": False}


def _slack_text(text: str) -> str:
    marked = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _unmarked(marked, "*_~`")


def _discord(notice: Notice) -> dict[str, Any]:
    head = f"Approval needed: {_unmarked(_cut(notice.tool), _DISCORD)}"
    rows = [f"**{name}:** {_unmarked(text, _DISCORD)}" for name, text in _rows(notice)]
    commands = "\n".join(f"**{name}:** `{text}`" for name, text in _commands(notice))
    text = "\n".join([head, *rows])[: 1990 - len(commands)]
    return {"content": f"{text}\n{commands}"[:2000], "allowed_mentions": {"parse": []}}


_DISCORD: Final = "*_~`|<>[]()@#:"


def _teams(notice: Notice) -> dict[str, Any]:
    facts = [
        {"title": name, "value": _unmarked(text, "*_~`[]()<>")} for name, text in _rows(notice)
    ]
    facts += [{"title": name, "value": text} for name, text in _commands(notice)]
    head = f"Approval needed: {_unmarked(_cut(notice.tool), '*_~`[]()<>')}"
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {"type": "TextBlock", "weight": "Bolder", "wrap": True, "text": head},
            {"type": "FactSet", "facts": facts},
        ],
    }
    content = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content, "content": card}]}


def _json(notice: Notice) -> dict[str, Any]:
    return {"event": "approval.asked", "request": notice.as_dict()}


def _unmarked(text: str, marks: str) -> str:
    """Return a text in which these marks stand for themselves, and which stays on one line."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return "".join(f"{c}\u200b" if c in marks else c for c in shown)


_PAYLOADS: Final[dict[str, Callable[[Notice], dict[str, Any]]]] = {
    "slack": _slack,
    "teams": _teams,
    "discord": _discord,
    "json": _json,
}

KINDS: Final = tuple(_PAYLOADS)
"""The kinds of services."""

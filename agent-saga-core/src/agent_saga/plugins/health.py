"""What a plugin says about its own health.

What cannot be read counts as not ready: a safety signal that is silent is no good news.
"""

from __future__ import annotations

__all__ = ["Health"]


class Health:
    """One signal for `status()`.

    Attributes:
        ready: True when the plugin can do what it promises; None when it cannot tell.
        detail: what is wrong, or what was seen, as one sentence.
        plugin: the plugin's name; the manager fills it in.
    """

    __slots__ = ("detail", "plugin", "ready")

    def __init__(self, ready: bool | None, detail: str = "", plugin: str = "") -> None:
        self.ready = ready
        self.detail = detail
        self.plugin = plugin

    def __repr__(self) -> str:
        return f"Health(ready={self.ready}, detail={self.detail!r}, plugin={self.plugin!r})"

"""`WebhookNotifier`: tells people by an HTTP request, signed, and sent again with care.

Rules of this part:

- Sent again only where the request certainly or probably did not count: no connection, no answer,
  429 and 5xx. Every attempt carries the same delivery id, so that a receiver can tell a repetition.
- A redirection is refused: what was signed for one address goes to no other.
- With a secret, the body is signed (HMAC-SHA-256 over the time, a dot and the body), so that a
  receiver knows who sent it, and when.
- The address of a webhook is itself a secret: messages and the log show its host only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from agent_saga.controls import given
from agent_saga.controls.notifiers.payloads import KINDS, kind_of, payload
from agent_saga.errors import ApprovalError, ConfigurationError

if TYPE_CHECKING:
    from agent_saga.controls.humans.notice import Notice

__all__ = ["SIGNATURE", "WebhookNotifier", "signature"]

SIGNATURE: Final = "X-Agent-Saga-Signature"
DELIVERY: Final = "X-Agent-Saga-Delivery"
_LONGEST_WAIT: Final = 10.0
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def signature(secret: bytes, timestamp: int, body: bytes) -> str:
    """Return the signature of a body, as the header carries it.

    Args:
        secret: what sender and receiver share.
        timestamp: seconds since the epoch.
        body: the bytes that are sent.
    """
    signed = hmac.new(secret, b"%d." % timestamp + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={signed}"


class WebhookNotifier:
    """Sends a request to an HTTP address.

    Args:
        url: the address, http or https.
        secret: signs what is sent; the receiver checks the header `X-Agent-Saga-Signature`.
        kind: "slack", "teams", "discord" or "json"; told from the address when not given.
        timeout: seconds for one attempt.
        attempts: how often it is sent at most.
        headers: further headers.

    Raises:
        ConfigurationError: the address, the kind, a bound or a header cannot be used.

    Fails closed: a request that nobody could be told of on the first level is denied.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | bytes | None = None,
        kind: str | None = None,
        timeout: float = 10.0,
        attempts: int = 3,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._host = _host(url)
        self._url = url
        self._secret = _secret(secret)
        if kind is not None and (not isinstance(kind, str) or kind not in KINDS):
            raise ConfigurationError(f"kind= is one of {', '.join(KINDS)}, not {kind!r}.")
        self._kind = kind or kind_of(url)
        if type(attempts) is not int or not 1 <= attempts <= 10:
            raise ConfigurationError(f"attempts= is a number from 1 to 10, not {attempts!r}.")
        self._timeout = given.seconds("timeout=", timeout, longest=600)
        self._attempts = attempts
        self._headers = _headers(headers)

    def notify(self, notice: Notice) -> None:
        """Send the request; blocks.

        Raises:
            ApprovalError: it was refused, or not taken in any attempt.
        """
        body = json.dumps(payload(self._kind, notice), ensure_ascii=True).encode("ascii")
        delivery = f"{notice.id}-{notice.level}"
        for number in range(1, self._attempts + 1):
            again = self._sent(body, delivery, last=number == self._attempts)
            if again is None:
                return
            time.sleep(min(_LONGEST_WAIT, max(again, 0.25 * 2**number)))

    def _sent(self, body: bytes, delivery: str, *, last: bool) -> float | None:
        """Send once; None if it was taken, else after how many seconds it is sent again."""
        from agent_saga.controls.notifiers.posting import post  # noqa: PLC0415 - slow to load

        try:
            answer = post(self._url, body, self._all_headers(body, delivery), self._timeout)
        except OSError as trouble:
            if last:
                raise self._failed(f"was not reached ({trouble})") from None
            return 0.0
        if 200 <= answer.status < 300:
            return None
        again = answer.status == 429 or answer.status >= 500
        if last or not again:
            raise self._failed(f"answered {answer.status}")
        return _retry_after(answer.retry_after)

    def _all_headers(self, body: bytes, delivery: str) -> dict[str, str]:
        headers = {
            **self._headers,
            "Content-Type": "application/json",
            "User-Agent": "agent-saga",
            DELIVERY: delivery,
        }
        if self._secret:
            headers[SIGNATURE] = signature(self._secret, int(time.time()), body)
        return headers

    def _failed(self, how: str) -> ApprovalError:
        return ApprovalError(f"The webhook at {self._host} {how}.")

    def __repr__(self) -> str:
        return f"<WebhookNotifier {self._kind} at {self._host}>"


def _host(url: object) -> str:
    """Return the host of an address, which may be shown.

    Raises:
        ConfigurationError: it is no address of a webhook.
    """
    from urllib.parse import urlsplit  # noqa: PLC0415 - slow to load, seldom needed

    if not isinstance(url, str) or not url.isprintable() or not url.isascii() or " " in url:
        raise ConfigurationError("A webhook's address is a text of plain characters, no blanks.")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        host, port, parts = None, "", urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(
            "A webhook's address begins with http:// or https:// and names a host.",
            fix="WebhookNotifier('https://…')",
        )
    return f"{host}{port}"


def _secret(secret: object) -> bytes | None:
    """Return a secret as bytes; an empty one, which a missing setting leaves, would sign nothing.

    Raises:
        ConfigurationError: it is no text and no bytes, or is empty.
    """
    if secret is None:
        return None
    data = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    if not isinstance(data, bytes) or not data.strip():
        raise ConfigurationError(
            "secret= is a text or bytes that are not empty.", fix="Leave it out to sign nothing."
        )
    return data


def _headers(headers: object) -> dict[str, str]:
    """Return further headers as they are sent.

    Raises:
        ConfigurationError: they are no names and texts that a request can carry.
    """
    if headers is None:
        return {}
    found: dict[str, str] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else [(None, None)]:
        if not (isinstance(name, str) and isinstance(value, str) and _carried(name, value)):
            raise ConfigurationError(
                "headers= holds names and texts that a request can carry, on one line each."
            )
        found[name] = value
    return found


def _carried(name: str, value: str) -> bool:
    return bool(_HEADER.fullmatch(name) and _VALUE.fullmatch(value))


def _retry_after(text: str) -> float:
    try:
        return float(text or 0.0)
    except ValueError:
        return 0.0

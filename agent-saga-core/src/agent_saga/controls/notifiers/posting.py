"""Sending one request over HTTP; loaded when the first one is sent.

Rules of this part:

- A redirection is refused: it becomes an answer like any other.
- The status says whether it was taken. The body of an answer is not read: one that hangs, breaks
  off or has no end must not have people told again.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO

from msgspec import Struct

__all__ = ["Answer", "post"]


class Answer(Struct, frozen=True):
    """What came back: the status, and the header `Retry-After`, empty when there is none."""

    status: int
    retry_after: str = ""


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
    """Send a body to an address whose scheme was checked; blocks.

    Args:
        url: the address, http or https.
        body: what is sent.
        headers: the headers.
        timeout: seconds for each wait: for the connection, and for the answer.

    Raises:
        OSError: nothing answered in time, or nothing that is HTTP; its text says what.
    """
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")  # noqa: S310
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout) as answer:
            return Answer(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.code, refusal.headers.get("Retry-After") or "")
    except (OSError, HTTPException) as trouble:
        raise OSError(type(trouble).__name__) from trouble


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None

"""JSON over HTTP on the loopback interface: a base for services, and the client that calls them.

A request may carry an `Idempotency-Key`. The service answers a known key as before and does nothing
more. `PUT /keys/KEY` settles a key: it returns what the key did, or makes sure that it never does.
"""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .faults import Faults

_HEADER = "Idempotency-Key"


class Rejected(Exception):
    """The service refused a request; nothing happened."""


class Service:
    """A service in a thread of this process; a subclass says what requests do.

    Args:
        faults: the connections that get lost.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._answers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.port = int(self._server.server_address[1])

    def close(self) -> None:
        """End the service."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, method: str, path: list[str], body: Any) -> Any:
        """Do what a request asks and return the answer.

        Raises:
            Rejected: the request cannot be done; nothing happened.
        """
        raise Rejected(f"{method} {'/'.join(path)} is unknown")

    def operation(self, method: str, path: list[str]) -> str:
        """Return what a request is called, for `Faults`."""
        return f"{method} {path[0]}"

    def answer(self, method: str, path: list[str], body: Any, key: str) -> Any:
        """Answer a request: once for each key.

        Raises:
            Rejected: the request cannot be done, or its key was settled before it came.
            ConnectionError: the connection is to be cut.
        """
        with self._lock:
            if path[0] == "keys":
                return self._answers.setdefault(path[1], None)
            with self._faults.around(self.operation(method, path)):
                return self._once(method, path, body, key)

    def _once(self, method: str, path: list[str], body: Any, key: str) -> Any:
        if key not in self._answers:
            answer = self.handle(method, path, body)
            if key:
                self._answers[key] = answer
            return answer
        if self._answers[key] is None:
            raise Rejected("this key was settled: it never does anything")
        return self._answers[key]


def _handler_of(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = self.path.strip("/").split("/")
            try:
                answer = service.answer(self.command, path, body, self.headers.get(_HEADER, ""))
            except Rejected as error:
                self._reply(422, str(error))
            except ConnectionError:
                self.close_connection = True  # and no answer: the caller knows nothing
            else:
                self._reply(200, answer)

        def _reply(self, status: int, answer: Any) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server asks for them

        def log_message(self, *_: object) -> None:
            """Say nothing on the terminal."""

    return Handler


def request(port: int, method: str, path: str, body: Any = None, key: str = "") -> Any:
    """Call a service and return its answer.

    Raises:
        Rejected: the service refused; nothing happened.
        ConnectionError: there was no answer; whether anything happened is unknown.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {_HEADER: key} if key else {}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        raise Rejected(answer)
    return answer


def settled(port: int, key: str) -> Any:
    """Return what a key did, or None after making sure that it never does anything."""
    return request(port, "PUT", f"/keys/{key}")

"""Telling people: by a real HTTP server, signed, sent again with care, and without leaks."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent_saga import ConfigurationError, ConsoleNotifier, WebhookNotifier
from agent_saga.controls.humans.notice import Notice
from agent_saga.controls.notifiers.payloads import kind_of, payload
from agent_saga.errors import ApprovalError

DOC = {
    "id": "f" * 32,
    "saga": "s1",
    "tool": "wire.send",
    "rule": "irreversible",
    "reason": "nothing can undo it",
    "arguments": '{"amount":5}',
    "requesters": ["agent"],
    "deadline": 1_800_000_000_000_000,
}


@pytest.fixture
def notice():
    return Notice(DOC, 0, ("@oncall",), " --wal-path /log")


@pytest.fixture
def server():
    """A receiver that answers as it is told and keeps what it got."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            here.got.append((self.path, dict(self.headers), body))
            status, headers = here.answers.pop(0) if here.answers else (200, {})
            if status is None:
                self.connection.close()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if here.hangs:
                here.over.wait()

        def log_message(self, *args):
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request, client_address):
            pass

    here = Quiet(("127.0.0.1", 0), Handler)
    here.got, here.answers, here.hangs, here.over = [], [], False, threading.Event()
    here.url = f"http://127.0.0.1:{here.server_port}/hook/secret-path"
    thread = threading.Thread(target=here.serve_forever)
    thread.start()
    yield here
    here.over.set()
    here.shutdown()
    thread.join()
    here.server_close()


def test_a_request_is_sent_whole_and_signed(server, notice):
    WebhookNotifier(server.url, secret="shared", headers={"X-Team": "risk"}).notify(notice)
    ((path, headers, body),) = server.got
    assert path == "/hook/secret-path"
    assert headers["X-Team"] == "risk"
    sent = json.loads(body)["request"]
    assert sent["id"] == DOC["id"]
    assert sent["arguments"] == {"amount": 5}
    assert sent["approve"].startswith(f"agent-saga approvals approve {DOC['id']}")
    stamp, given = (p.partition("=")[2] for p in headers["X-Agent-Saga-Signature"].split(","))
    wanted = hmac.new(b"shared", f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert given == wanted


def test_it_is_sent_again_where_it_did_not_count_under_one_delivery_id(server, notice):
    server.answers = [(503, {}), (429, {"Retry-After": "0"})]
    WebhookNotifier(server.url).notify(notice)
    assert len({headers["X-Agent-Saga-Delivery"] for _, headers, _ in server.got}) == 1
    assert len(server.got) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_refusal_is_not_sent_again(server, notice, status):
    server.answers = [(status, {})] * 3
    with pytest.raises(ApprovalError, match=str(status)):
        WebhookNotifier(server.url).notify(notice)
    assert len(server.got) == 1


@pytest.mark.parametrize("headers", [{"Transfer-Encoding": "chunked"}, {"Content-Length": "900"}])
@pytest.mark.parametrize("hangs", [True, False])
def test_what_was_taken_is_not_sent_again_whatever_becomes_of_the_body(
    server, notice, headers, hangs
):
    server.answers = [(200, headers)] * 3
    server.hangs = hangs
    WebhookNotifier(server.url, timeout=1).notify(notice)
    assert len(server.got) == 1


def test_a_redirection_goes_nowhere(server, notice):
    server.answers = [(302, {"Location": server.url + "/elsewhere"})]
    with pytest.raises(ApprovalError, match="302"):
        WebhookNotifier(server.url).notify(notice)
    assert [path for path, _, _ in server.got] == ["/hook/secret-path"]


def test_who_is_never_reached_is_said_without_the_secret_address(server, notice):
    server.answers = [(None, {})] * 2
    with pytest.raises(ApprovalError) as caught:
        WebhookNotifier(server.url, attempts=2).notify(notice)
    assert len(server.got) == 2
    for text in (str(caught.value), repr(WebhookNotifier(server.url))):
        assert "secret-path" not in text
        assert "127.0.0.1" in text


@pytest.mark.parametrize(
    "given",
    [
        {"url": ""},
        {"url": "ftp://host/x"},
        {"url": "file:///etc/passwd"},
        {"url": "https://"},
        {"url": "https://host/a b"},
        {"url": "https://host:port/"},
        {"url": "https://host/\nX: y"},
        {"url": None},
        {"kind": "mail"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"attempts": 0},
        {"attempts": 2.5},
    ],
)
def test_what_cannot_be_used_is_refused_at_once(given):
    with pytest.raises(ConfigurationError):
        WebhookNotifier(**{"url": "https://host/x", **given})


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack"),
        ("https://acme.webhook.office.com/webhookb2/x", "teams"),
        ("https://prod-1.westeurope.logic.azure.com/workflows/x", "teams"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://hooks.slack.com.evil.example/x", "json"),
        ("https://notslack.com/x", "json"),
        ("https://example.org/x", "json"),
    ],
)
def test_the_service_is_told_from_the_host(url, kind):
    assert kind_of(url) == kind


EVIL = "<!channel> @everyone [click](https://evil) *bold* ``` <https://evil|here> \u202e\nforged: x"


@pytest.mark.parametrize("kind", ["slack", "teams", "discord"])
def test_texts_of_a_model_become_no_mention_link_or_format(kind):
    doc = {**DOC, "reason": EVIL, "tool": EVIL, "arguments": EVIL * 500, "requesters": [EVIL]}
    sent = payload(kind, Notice(doc, 0, (EVIL,)))
    text = json.dumps(sent, ensure_ascii=False)
    assert "```" not in text
    assert kind == "slack" or "[click](" not in text
    assert DOC["id"] in text
    assert "\u202e" not in text
    assert len(text) < 20_000
    if kind == "slack":
        assert "<" not in sent["text"]
    if kind == "discord":
        assert sent["allowed_mentions"] == {"parse": []}
        assert len(sent["content"]) <= 2000
        assert "@everyone" not in sent["content"]
    if kind == "teams":
        assert sent["attachments"][0]["content"]["type"] == "AdaptiveCard"


def test_a_terminal_is_told_in_lines_that_cannot_be_forged(notice):
    stream = io.StringIO()
    doc = {**DOC, "reason": "x\x1b[2J\n  yes: agent-saga approvals approve FORGED"}
    ConsoleNotifier(stream).notify(Notice(doc, 0, ()))
    told = stream.getvalue()
    assert "\x1b" not in told
    assert sum(line.startswith("  yes: ") for line in told.splitlines()) == 1


def test_a_gateway_tells_by_webhook_and_a_broken_one_denies(server, tmp_path):
    from agent_saga import AgentKit, ApprovalDenied, ApprovalGateway, PreFlightGate

    done = []
    server.answers = [(500, {})] * 3
    gate = PreFlightGate(approval_provider=ApprovalGateway(notifier=WebhookNotifier(server.url)))
    kit = AgentKit("k", wal=str(tmp_path / "log"), gate=gate)
    wire = kit.safe_tool(done.append, "IRREVERSIBLE", name="wire")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="nobody could be told") as caught:
        wire(5)
    assert "secret-path" not in str(caught.value)
    assert (done, len(server.got)) == ([], 3)

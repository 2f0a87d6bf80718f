"""Signed approvals: by registered keys, over the exact action, once, in time, several if asked."""

from __future__ import annotations

import json
import threading
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256

import cbor2
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent_saga import (
    AgentKit,
    AlreadyDecided,
    ApprovalDenied,
    ApprovalError,
    ApprovalPolicy,
    ConfigurationError,
    Ed25519Key,
    FileApprovalStore,
    HardwareApprovalProvider,
    PreFlightGate,
    Settings,
    WebAuthnKey,
)
from agent_saga.cli.main import main
from agent_saga.controls.humans import document, keys
from agent_saga.state.base import one

FAST = Settings(settle=2, settle_after=0.2, inverse_delay=0.0)


class Person:
    """Somebody with an Ed25519 key."""

    def __init__(self, name):
        self.name = name
        self.key = Ed25519PrivateKey.generate()

    @property
    def public(self):
        return self.key.public_key().public_bytes_raw()

    def sign(self, challenge):
        return b64encode(self.key.sign(challenge)).decode()


class Passkey:
    """A software authenticator: what a browser and a security key would do."""

    rp_id, origin = "approvals.example.org", "https://approvals.example.org"

    def __init__(self, *, verified=True):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = b"credential-1"
        self.flags = 0x05 if verified else 0x01

    @property
    def public(self):
        point = self.key.public_key().public_numbers()
        x, y = (n.to_bytes(32, "big") for n in (point.x, point.y))
        return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})

    def sign(self, challenge, *, origin=None, rp_id=None):
        client = {
            "type": "webauthn.get",
            "challenge": _b64(challenge),
            "origin": origin or self.origin,
            "crossOrigin": False,
        }
        client_data = json.dumps(client).encode()
        data = sha256((rp_id or self.rp_id).encode()).digest() + bytes([self.flags]) + bytes(4)
        signed = self.key.sign(data + sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        return json.dumps(
            {
                "id": _b64(self.id),
                "rawId": _b64(self.id),
                "type": "public-key",
                "response": {
                    "clientDataJSON": _b64(client_data),
                    "authenticatorData": _b64(data),
                    "signature": _b64(signed),
                },
            }
        )


def _b64(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture
def log(tmp_path):
    return tmp_path / "agent-saga.wal"


@pytest.fixture
def store(log):
    return FileApprovalStore(log)


class Effects(list):
    def wire(self, amount):
        self.append(amount)


@pytest.fixture
def effects():
    return Effects()


@pytest.fixture
def wiring(log, store, effects):
    """A kit whose tool waits for signatures; `then` runs on a thread when people are told."""

    def make(people, then, *, required=1, timeout=20.0, **options):
        class Telling:
            def notify(self, notice):
                threading.Thread(target=then, args=(notice.id,)).start()

        provider = HardwareApprovalProvider(
            people,
            required=required,
            store=store,
            notifier=Telling(),
            policy=ApprovalPolicy(timeout=timeout, **options),
        )
        kit = AgentKit("signed", wal=str(log), settings=FAST, gate=PreFlightGate((), provider))
        return kit, kit.safe_tool(effects.wire, "IRREVERSIBLE", name="wire")

    return make


@pytest.fixture
def ann():
    return Person("ann")


@pytest.fixture
def ben():
    return Person("ben")


@pytest.mark.guarantee("SIGN-1")
def test_a_signature_over_the_exact_action_lets_it_happen_once(wiring, store, effects, ann):
    def then(request):
        store.sign(request, approver="ann", signature=ann.sign(store.challenge(request)))

    kit, wire = wiring({"ann": ann.public}, then)
    with kit.transaction():
        wire(5)
    assert effects == [5]
    (doc,) = [doc for _, doc in store.state.scan("approval/")]
    assert (doc["state"], doc["decision"]["by"]) == ("USED", "ann")


@pytest.mark.guarantee("SIGN-1")
def test_a_name_alone_a_grant_or_an_emergency_approves_nothing(wiring, store, effects, ann):
    refused = []

    def then(request):
        for options in ({}, {"break_glass": True}):
            try:
                store.approve(request, approver="ann", **options)
            except ApprovalError as error:
                refused.append(error.message)
        store.deny(request, approver="ann")

    kit, wire = wiring({"ann": ann.public}, then)
    store.grant("wire", approver="ann", seconds=60)
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    assert len(refused) == 2
    assert effects == []


@pytest.mark.guarantee("SIGN-1")
@pytest.mark.parametrize(
    "kind", ["another key", "another challenge", "cut", "empty", "text", "hex"]
)
def test_a_signature_that_is_not_good_is_refused(wiring, store, effects, ann, ben, kind):
    refused = []

    def then(request):
        challenge = store.challenge(request)
        good = ann.key.sign(challenge)
        bad = {
            "another key": ben.sign(challenge),
            "another challenge": ann.sign(sha256(challenge).digest()),
            "cut": b64encode(good[:-1]).decode(),
            "empty": "",
            "text": "yes",
            "hex": (bytes([good[0] ^ 1]) + good[1:]).hex(),
        }[kind]
        try:
            store.sign(request, approver="ann", signature=bad)
        except ApprovalError as error:
            refused.append(error.message)
        store.deny(request, approver="ann")

    kit, wire = wiring({"ann": ann.public}, then)
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    assert (len(refused), effects) == (1, [])


@pytest.mark.guarantee("SIGN-1")
def test_a_signature_for_one_action_is_worth_nothing_for_another(wiring, store, effects, ann):
    first = []

    def then(request):
        if not first:
            first.append(ann.sign(store.challenge(request)))
            store.sign(request, approver="ann", signature=first[0])
            return
        with pytest.raises(ApprovalError, match="not good"):
            store.sign(request, approver="ann", signature=first[0])
        store.deny(request, approver="ann")

    kit, wire = wiring({"ann": ann.public}, then)
    with kit.transaction():
        wire(5)
        with pytest.raises(ApprovalDenied):
            wire(1_000_000)
    assert effects == [5]


@pytest.mark.guarantee("SIGN-2")
def test_who_can_write_the_store_still_cannot_approve(wiring, store, effects, ann, ben):
    """The document is made to say GRANTED, with another key's signature and another key."""

    def then(request):
        challenge = store.challenge(request)

        def forged(doc):
            decision = {"by": "ann", "note": "", "at": 1, "break_glass": False}
            made = {**doc, "state": "GRANTED", "decision": decision, "until": 2**52}
            made["signed"] = {"ann": ben.sign(challenge)}
            made["keys"] = {"ann": Ed25519Key(ben.public).as_doc()}
            return made, None

        key = document.key_of(request)
        store.state.transact([key], one(key, forged))
        store.listener.ring(request)

    kit, wire = wiring({"ann": ann.public}, then)
    with kit.transaction(), pytest.raises(ApprovalDenied, match="0 of 1 signatures"):
        wire(5)
    assert effects == []


@pytest.mark.guarantee("SIGN-2")
def test_several_signatures_of_different_keys_are_wanted(wiring, store, effects, ann, ben):
    seen = []

    def then(request):
        challenge = store.challenge(request)
        for _ in range(2):  # the same person twice is one signature
            store.sign(request, approver="ann", signature=ann.sign(challenge))
        seen.append(store.find(request)["state"])
        store.sign(request, approver="ben", signature=ben.sign(challenge), note="checked")
        with pytest.raises(AlreadyDecided):
            store.sign(request, approver="ben", signature=ben.sign(challenge))

    people = {"ann": ann.public, "ben": ben.public, "cat": Person("cat").public}
    kit, wire = wiring(people, then, required=2)
    with kit.transaction():
        wire(5)
    assert (seen, effects) == (["PENDING"], [5])
    intent = next(r.data for r in kit.runtime.wal.read_all() if r.event == "STEP_INTENT")
    assert intent["approved_by"] == "ann, ben"


@pytest.mark.guarantee("SIGN-1")
def test_a_signature_after_the_deadline_is_refused(wiring, store, effects, ann):
    asked = []
    kit, wire = wiring({"ann": ann.public}, asked.append, timeout=0.2)
    while not asked:  # a slow machine may come to the deadline before people were told
        with kit.transaction(), pytest.raises(ApprovalDenied, match=r"in time|could be told"):
            wire(5)
    with pytest.raises(ApprovalError, match="over"):
        store.sign(asked[0], approver="ann", signature=ann.sign(store.challenge(asked[0])))
    assert effects == []


def test_who_asks_does_not_sign(wiring, store, effects):
    person = Person("signed")

    def then(request):
        with pytest.raises(ApprovalError, match="own request"):
            store.sign(request, approver="Signed", signature=person.sign(store.challenge(request)))

    kit, wire = wiring({"Signed": person.public}, then, timeout=1.0)
    with kit.transaction(), pytest.raises(ApprovalDenied):
        wire(5)
    assert effects == []


@pytest.mark.guarantee("SIGN-1")
@pytest.mark.parametrize(
    ("passkey", "options", "good"),
    [
        (Passkey(), {}, True),
        (Passkey(verified=False), {}, False),
        (Passkey(), {"origin": "https://evil.example"}, False),
        (Passkey(), {"rp_id": "evil.example"}, False),
    ],
)
def test_a_security_key_signs_too(wiring, store, effects, passkey, options, good):
    def then(request):
        assertion = passkey.sign(store.challenge(request), **options)
        try:
            store.sign(request, approver="ann", signature=assertion)
        except ApprovalError:
            store.deny(request, approver="ann")

    key = WebAuthnKey(passkey.id, passkey.public, rp_id=passkey.rp_id, origin=passkey.origin)
    kit, wire = wiring({"ann": key}, then)
    with kit.transaction():
        if good:
            wire(5)
        else:
            with pytest.raises(ApprovalDenied):
                wire(5)
    assert effects == ([5] if good else [])


def test_a_key_is_read_in_every_common_form(ann):
    pem = ann.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    forms = (ann.public, ann.public.hex(), b64encode(ann.public).decode(), _b64(ann.public) + "=")
    identities = {Ed25519Key(form).identity for form in (*forms, pem.decode())}
    assert len(identities) == 1
    again = keys.key_from(json.loads(json.dumps(Ed25519Key(ann.public).as_doc())))
    assert again.identity in identities


@pytest.mark.parametrize(
    "public",
    [
        b"",
        b"x" * 31,
        "zz" * 32,
        "",
        None,
        5,
        "-----BEGIN PUBLIC KEY-----\nxx\n-----END PUBLIC KEY-----",
    ],
)
def test_what_is_no_key_is_refused_at_once(public):
    with pytest.raises(ConfigurationError):
        HardwareApprovalProvider({"ann": public})


def test_keys_that_would_count_twice_or_for_nobody_are_refused(ann, ben):
    for people, required in (
        ({"ann": ann.public, "Ben": ann.public}, 1),
        ({"ann": ann.public, "ANN ": ben.public}, 2),
        ({" ": ann.public}, 1),
        ({"ann": ann.public}, 2),
        ({"ann": ann.public}, 0),
        ({"ann": ann.public}, True),
        ({}, 1),
    ):
        with pytest.raises(ConfigurationError):
            HardwareApprovalProvider(people, required=required)


def test_the_command_line_shows_what_to_sign_and_takes_the_signature(
    wiring, store, effects, ann, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    codes = []

    def then(request):
        out = tmp_path / "challenge"
        codes.append(main(["approvals", "challenge", request, "--out", str(out)]))
        signature = ann.sign(out.read_bytes())
        words = ["approvals", "approve", request, "--approver", "ann"]
        codes.append(main(words))
        codes.append(main([*words, "--signature", ann.sign(b"else")]))
        codes.append(main([*words, "--signature", signature]))

    kit, wire = wiring({"ann": ann.public}, then)
    with kit.transaction():
        wire(5)
    assert (codes, effects) == ([0, 4, 4, 0], [5])


@pytest.mark.parametrize(
    ("module", "extra"), [("cryptography", "crypto"), ("webauthn", "webauthn")]
)
def test_without_its_extra_a_kind_of_key_refuses_by_name(monkeypatch, module, extra, ann):
    import builtins

    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.partition(".")[0] == module:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    public = ann.public
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=rf"\[{extra}\]"):
        if module == "cryptography":
            Ed25519Key(public)
        else:
            WebAuthnKey(b"id", b"key", rp_id="r", origin="https://r")

"""Bytes for which anybody can sign, without any secret, are no key."""

from __future__ import annotations

from base64 import b64encode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from agent_saga import ConfigurationError, Ed25519Key, HardwareApprovalProvider

PRIME = 2**255 - 19
SIGN = 1 << 255
SMALL = [
    *(0, 1, PRIME - 1),
    2707385501144840649318225287225658788936804267575313519463743609750303402022,
    55188659117513257062467267217118295137698188065244968500265048394206261417927,
]


def written(place):
    return place.to_bytes(32, "little")


IMPROPER = [
    written(place + sign) for sign in (0, SIGN) for place in (*SMALL, PRIME, PRIME + 1, 2**255 - 1)
]


@pytest.mark.guarantee("SIGN-3")
@pytest.mark.parametrize("raw", IMPROPER, ids=bytes.hex)
def test_a_key_for_which_anybody_could_sign_is_refused(raw):
    for public in (raw, raw.hex(), b64encode(raw).decode()):
        with pytest.raises(ConfigurationError):
            Ed25519Key(public)
        with pytest.raises(ConfigurationError):
            HardwareApprovalProvider({"ann": public})


@pytest.mark.guarantee("SIGN-3")
def test_nor_as_a_pem_text():
    key = Ed25519PublicKey.from_public_bytes(bytes(32))
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ConfigurationError, match="anybody"):
        Ed25519Key(key.public_bytes(*form).decode())


def test_it_would_be_signed_for_without_a_secret():
    nothing = written(1) + bytes(32)
    key = Ed25519PublicKey.from_public_bytes(written(1))
    key.verify(nothing, b"any challenge at all")  # raises if it is not good


def test_a_key_that_was_made_is_one():
    for _ in range(50):
        raw = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        assert Ed25519Key(raw).identity == f"ed25519:{raw.hex()}"

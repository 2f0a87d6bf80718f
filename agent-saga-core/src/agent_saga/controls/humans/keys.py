"""Keys that sign approvals: what is signed, and how a signature is checked.

Rules of this part:

- What is signed is a digest of the exact action: the request's id (which is bound to saga, step,
  generation, tool, rule and arguments), what people are shown, and the deadline. A signature for
  one request is worth nothing for another.
- A key is told from its bytes: two names of one key are one key.
- Bytes that are no proper point of the curve, such as 32 zeros, are no key: anybody could sign for
  one, without any secret.
- Ed25519 needs the extra `crypto`, WebAuthn the extra `webauthn`; without them they refuse by name.
- A signature that cannot be checked is none. Fails closed.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent_saga.domain.identity import joined
from agent_saga.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_saga.state.document import Doc

__all__ = ["Ed25519Key", "Key", "WebAuthnKey", "challenge_of", "key_from"]

_PURPOSE: Final = "agent-saga approval, version 1"
_LONGEST_SIGNATURE: Final = 16_384
_PRIME: Final = 2**255 - 19
_SMALL: Final = (
    *(0, 1, _PRIME - 1),
    2707385501144840649318225287225658788936804267575313519463743609750303402022,
    55188659117513257062467267217118295137698188065244968500265048394206261417927,
)
"""The places of the points of Ed25519 whose multiples are at most eight."""


class Key(Protocol):
    """A public key that can check signatures."""

    @property
    def identity(self) -> str:
        """What tells this key from every other one."""

    def verifies(self, challenge: bytes, signature: str) -> bool:
        """Say whether a signature, as text, is one of this key over a challenge; never raises."""

    def as_doc(self) -> Doc:
        """Return the key as plain data, for whoever submits a signature elsewhere."""


def challenge_of(about: Mapping[str, Any], deadline: int) -> bytes:
    """Return the 32 bytes that have to be signed to approve a request.

    Args:
        about: the request's fields, as they are put and shown.
        deadline: until when it can be decided, in microseconds since the epoch.
    """
    names = ("id", "saga", "step", "gen", "tool", "rule", "reason", "arguments")
    shown = [str(about[name]) for name in names]
    return sha256(joined((_PURPOSE, *shown, str(deadline)))).digest()


class Ed25519Key:
    """An Ed25519 public key.

    Args:
        public: its 32 bytes, or those in base64 or hexadecimal, or a PEM text.

    Raises:
        ConfigurationError: it is no such key, or the extra `crypto` is not installed.
    """

    def __init__(self, public: bytes | str) -> None:
        self._raw = _raw_ed25519(public)
        self._key = _crypto().Ed25519PublicKey.from_public_bytes(self._raw)

    @property
    def identity(self) -> str:
        """The key's bytes, in hexadecimal."""
        return f"ed25519:{self._raw.hex()}"

    def verifies(self, challenge: bytes, signature: str) -> bool:
        """Check a signature in base64 or hexadecimal."""
        raw = _bytes_of(signature, 64)
        if raw is None:
            return False
        try:
            self._key.verify(raw, challenge)
        except Exception:
            return False
        return True

    def as_doc(self) -> Doc:
        """Return the key as plain data."""
        return {"kind": "ed25519", "public": b64encode(self._raw).decode("ascii")}


class WebAuthnKey:
    """A credential of a security key or a passkey, as it was registered.

    Args:
        credential_id: the credential's id.
        public_key: its public key, in COSE form.
        rp_id: the relying party's id, for example "approvals.example.org".
        origin: where people sign, for example "https://approvals.example.org".
        require_user_verification: whether a PIN or a finger is required, not just a touch.

    Raises:
        ConfigurationError: a part is missing, or the extra `webauthn` is not installed.
    """

    def __init__(
        self,
        credential_id: bytes,
        public_key: bytes,
        *,
        rp_id: str,
        origin: str,
        require_user_verification: bool = True,
    ) -> None:
        parts = isinstance(credential_id, bytes) and isinstance(public_key, bytes)
        if not parts or not credential_id or not public_key or not rp_id or not origin:
            raise ConfigurationError(
                "A WebAuthn key has a credential's id and public key as bytes, the relying "
                "party's id and an origin."
            )
        _webauthn()
        self._id, self._public = credential_id, public_key
        self._rp_id, self._origin = rp_id, origin
        self._verified = bool(require_user_verification)

    @property
    def identity(self) -> str:
        """A digest of the public key."""
        return f"webauthn:{sha256(self._public).hexdigest()}"

    def verifies(self, challenge: bytes, signature: str) -> bool:
        """Check an assertion: the JSON of what `navigator.credentials.get()` gave."""
        if not isinstance(signature, str) or len(signature) > _LONGEST_SIGNATURE:
            return False
        try:
            checked = _webauthn().verify_authentication_response(
                credential=signature,
                expected_challenge=challenge,
                expected_rp_id=self._rp_id,
                expected_origin=self._origin,
                credential_public_key=self._public,
                credential_current_sign_count=0,  # a challenge is signed for one request only
                require_user_verification=self._verified,
            )
            return bool(checked.credential_id == self._id)
        except Exception:
            return False

    def as_doc(self) -> Doc:
        """Return the key as plain data."""
        return {
            "kind": "webauthn",
            "id": b64encode(self._id).decode("ascii"),
            "public": b64encode(self._public).decode("ascii"),
            "rp_id": self._rp_id,
            "origin": self._origin,
            "verified": self._verified,
        }


def key_from(doc: Mapping[str, Any]) -> Key:
    """Return a key from its plain data.

    Raises:
        ConfigurationError: it is none, or the extra that it needs is not installed.
    """
    try:
        if doc["kind"] == "ed25519":
            return Ed25519Key(str(doc["public"]))
        if doc["kind"] == "webauthn":
            return WebAuthnKey(
                b64decode(doc["id"]),
                b64decode(doc["public"]),
                rp_id=str(doc["rp_id"]),
                origin=str(doc["origin"]),
                require_user_verification=doc["verified"] is not False,
            )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"A key in the store cannot be read: {error!r}.") from error
    raise ConfigurationError(f"A key of the kind {str(doc['kind'])[:40]!r} is not known.")


def _raw_ed25519(public: object) -> bytes:
    if isinstance(public, str) and "BEGIN" in public:
        try:
            key = _crypto_pem()(public.encode("ascii"))
        except Exception as error:
            raise ConfigurationError("The PEM text holds no public key.") from error
        if not isinstance(key, _crypto().Ed25519PublicKey):
            raise ConfigurationError("The PEM text holds a public key that is not Ed25519.")
        return _proper(bytes(key.public_bytes_raw()))
    raw = bytes(public) if isinstance(public, bytes) else _bytes_of(public, 32)
    if raw is None or len(raw) != 32:
        raise ConfigurationError(
            "An Ed25519 public key has 32 bytes.",
            fix="Give them as bytes, in base64 or hexadecimal, or as a PEM text.",
        )
    return _proper(raw)


def _proper(raw: bytes) -> bytes:
    """Return the bytes of a key that only its owner can sign for.

    Raises:
        ConfigurationError: they are no point of the curve, or one for which anybody can.
    """
    place = int.from_bytes(raw, "little") & (2**255 - 1)
    if place in _SMALL or place >= _PRIME:
        raise ConfigurationError(
            "These 32 bytes are no Ed25519 public key: anybody could sign for it.",
            fix="Give the public key of a pair that was made for its owner.",
        )
    return raw


def _bytes_of(text: object, length: int) -> bytes | None:
    """Return the bytes of a text in hexadecimal or base64; None if it is neither of that length."""
    if not isinstance(text, str) or len(text) > _LONGEST_SIGNATURE:
        return None
    plain = "".join(text.split())
    try:
        if len(plain) == 2 * length:
            return bytes.fromhex(plain)
        raw = b64decode(plain, altchars=b"-_" if set("-_") & set(plain) else None, validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw if len(raw) == length else None


def _crypto() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("crypto", "Ed25519 keys") from error
    return ed25519


def _crypto_pem() -> Any:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra

    return serialization.load_pem_public_key


def _webauthn() -> Any:
    try:
        import webauthn  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing("webauthn", "WebAuthn keys") from error
    return webauthn


def _missing(extra: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} need the extra `{extra}`, which is not installed.",
        fix=f"pip install 'agent-saga-core[{extra}]'",
    )

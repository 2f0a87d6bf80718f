"""`HardwareApprovalProvider`: a yes is a signature over the exact action, by a registered key.

Rules of this part:

- A request is approved when so many different keys have signed its challenge as are asked for,
  before its deadline. A name alone approves nothing, also not in an emergency, and no standing
  grant counts; denying needs no signature.
- Whoever submits a signature checks it; the process that acts checks all of them again, over the
  challenge that it computes itself from its own call, with the keys that it was given. So who can
  write the store still cannot approve.
- A signature is used once: its request is consumed when the effect starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent_saga.controls.approvals import Approval, ApprovalRequest
from agent_saga.controls.humans.document import Asked, State
from agent_saga.controls.humans.gateway import ApprovalGateway
from agent_saga.controls.humans.keys import Ed25519Key, Key, challenge_of
from agent_saga.controls.humans.names import blank, person
from agent_saga.errors import ConfigurationError

if TYPE_CHECKING:
    from agent_saga.controls.humans.notice import Notifier
    from agent_saga.controls.humans.policy import ApprovalPolicy
    from agent_saga.controls.humans.store import ApprovalStore
    from agent_saga.state.document import Doc
    from agent_saga.wal.base import BaseWAL

__all__ = ["HardwareApprovalProvider"]


class HardwareApprovalProvider(ApprovalGateway):
    """Asks people whose keys sign; see the rules of this module.

    Args:
        keys: for each person their public key: an `Ed25519Key` or a `WebAuthnKey`, or the bytes or
            the text of an Ed25519 one.
        required: how many of them have to sign.
        store: where requests are kept; the state store of the log in use when not given.
        notifier: tells people; see `ApprovalGateway`.
        wal: the log in which decisions are recorded; that of the boundary when not given.
        policy: how long people have; its list of approvers is not used.
        requester: a further name of who asks.

    Raises:
        ConfigurationError: there are fewer keys than signatures wanted, two people have the same
            key, a name is blank, or an extra is not installed.

    Crash: signatures that were submitted stay; the same step of the resumed saga waits for the
    rest. Fails closed.
    """

    def __init__(
        self,
        keys: Mapping[str, Key | bytes | str],
        *,
        required: int = 1,
        store: ApprovalStore | None = None,
        notifier: Notifier | str | None = None,
        wal: BaseWAL | None = None,
        policy: ApprovalPolicy | None = None,
        requester: str = "",
    ) -> None:
        super().__init__(store, notifier, wal, policy, requester=requester)
        if not isinstance(keys, Mapping):
            raise ConfigurationError("keys= holds each person's public key, by their name.")
        self.keys = {name: _key(key) for name, key in keys.items()}
        _check(self.keys, required)
        self.required = required

    def _asked(self, request: ApprovalRequest, now: int) -> Asked:
        plain = super()._asked(request, now)
        keys = {name: key.as_doc() for name, key in self.keys.items()}
        return replace(plain, approvers=tuple(self.keys), signatures=self.required, keys=keys)

    async def _granted(self, request: ApprovalRequest) -> Doc | None:
        """No standing grant counts: each action is signed for itself."""
        return None

    def _answer(self, request: ApprovalRequest, doc: Doc, state: State) -> Approval:
        answer = super()._answer(request, doc, state)
        if not answer.approved:
            return answer
        signers = self._signers(request, doc)
        if len(signers) < self.required:
            note = f"{len(signers)} of {self.required} signatures are good"
            return Approval(False, "agent-saga", note)
        return Approval(True, ", ".join(signers), answer.note)

    def _signers(self, request: ApprovalRequest, doc: Doc) -> list[str]:
        """Return whose signatures are good over what this process is about to do."""
        about = self._asked(request, 0).about
        challenge = challenge_of(about, doc["deadline"])
        signed = doc["signed"]
        return sorted(
            name
            for name, key in self.keys.items()
            if name in signed and key.verifies(challenge, signed[name])
        )


def _key(key: object) -> Key:
    if isinstance(key, bytes | str):
        return Ed25519Key(key)
    if not callable(getattr(key, "verifies", None)):
        raise ConfigurationError(f"{type(key).__name__} is no public key.")
    found: Key = key  # type: ignore[assignment]
    return found


def _check(keys: Mapping[str, Key], required: int) -> None:
    if type(required) is not int or not 1 <= required <= len(keys):
        raise ConfigurationError(
            f"{required!r} signatures are wanted, and there are {len(keys)} keys."
        )
    if any(blank(name) for name in keys):
        raise ConfigurationError("A key belongs to a person who is named.")
    if len({person(name) for name in keys}) < len(keys):
        raise ConfigurationError("Two keys belong to one person; a second one would not count.")
    if len({key.identity for key in keys.values()}) < len(keys):
        raise ConfigurationError("Two people have the same key; it would count twice.")

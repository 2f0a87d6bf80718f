"""`agent-saga approvals`: what waits for a human, and how a human answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import by_option, log_options, named
from agent_saga.cli.output import counted, printable, say, say_json
from agent_saga.cli.output import note as note_line
from agent_saga.cli.place import NO_LOG, existing_log, is_there, log_path, wal_option
from agent_saga.cli.story import moment
from agent_saga.controls.humans.grants import Offer
from agent_saga.controls.humans.notice import plain
from agent_saga.errors import AgentSagaError
from agent_saga.recovery.askers import UNTOLD
from agent_saga.runtime.stores import FileApprovalStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_saga.controls.humans.grants import Grant
    from agent_saga.recovery.askers import Asker
    from agent_saga.state.document import Doc

__all__ = ["command"]

_USES = 100
_NAMED = {"context_settings": {"ignore_unknown_options": True}}


@click.group("approvals")
def command() -> None:
    """Show what waits for a human's approval, and answer it."""


approver_option = by_option("--approver", "Who decides; recorded, and none of those who ask.")
note_option = click.option("--note", default="", help="A remark; recorded and told.")


def _store(wal_path: str | None) -> tuple[Path, FileApprovalStore]:
    path = existing_log(wal_path)
    return path, FileApprovalStore(path)


@command.command("list")
@log_options
def listed(wal_path: str | None, *, as_json: bool) -> Exit:
    """List the requests that can be answered, reviews that are due, and standing grants.

    A request that nobody waits for is marked: its process is gone, or its saga has ended.
    Exits with 0 if nothing waits for a human, with 1 if something does, and with 3 if there is no
    log.
    """
    path = log_path(wal_path)
    there = is_there(path)
    store = FileApprovalStore(path)
    asked, reviews, grants = store.pending(), store.reviews(), store.grants()
    damaged, known = store.damaged(), store.askers(asked)
    gone = [doc for doc in asked if _asker(doc, known).ended]
    pending = [doc for doc in asked if not _asker(doc, known).ended]
    if as_json:
        say_json(
            {
                "log": str(path),
                "pending": [_asked(doc, known) for doc in pending],
                "gone": [_asked(doc, known) for doc in gone],
                "reviews": [_document(doc) for doc in reviews],
                "grants": grants,
                "damaged": damaged,
            }
        )
    else:
        say(f"Log: {printable(path)}", *_pending_lines(pending, path, known))
        say(*_gone_lines(gone, path, known))
        say(*_review_lines(reviews, path), *_grant_lines(grants, path))
        say(*[f"Damaged, and refused where it is needed: {printable(key)}" for key in damaged])
    if pending or reviews or damaged:
        return Exit.NOT_CLEAN
    return Exit.CLEAN if there else Exit.NOTHING_VERIFIABLE


@command.command("approve", **_NAMED)
@click.argument("request", metavar="ID", callback=named)
@approver_option
@note_option
@click.option("--break-glass", is_flag=True, help="An emergency; marked, and reviewed afterwards.")
@click.option("--signature", help="By the approver's registered key, over the challenge.")
@click.option("--up-to", metavar="AMOUNT", help="Also further calls, until --arg sums up to this.")
@click.option("--arg", metavar="NAME", help="The argument that --up-to bounds.")
@click.option("--for", "seconds", type=float, metavar="SECONDS", help="How long --up-to holds.")
@click.option("--uses", type=int, help=f"How many calls --up-to covers; {_USES} when not given.")
@log_options
def approve(
    request: str,
    approver: str,
    note: str,
    signature: str | None,
    up_to: str | None,
    arg: str | None,
    seconds: float | None,
    uses: int | None,
    wal_path: str | None,
    *,
    break_glass: bool,
    as_json: bool,
) -> Exit:
    """Approve a request; the call that waits for it goes on.

    ID is a request's id or its beginning. Exits with 4 if it cannot be decided, for example since
    somebody was faster. With --up-to, --arg and --for further calls of the tool are covered too.
    """
    path, store = _store(wal_path)
    doc = store.find(request)
    standing = _standing(doc, up_to, arg, seconds, uses, emergency=break_glass)
    grant, asker = None, store.asker(doc)
    if (
        standing is not None
    ):  # made before the decision: a bound that cannot be used decides nothing
        offer = Offer(doc["tool"], approver, rule=doc["rule"], note=note, **standing)
        grant = store.offered(offer)
    if signature is not None:
        made = store.sign(doc["id"], approver=approver, signature=signature, note=note)
    else:
        made = store.approve(doc["id"], approver=approver, note=note, break_glass=break_glass)
    kept, problem = _kept(store, grant)
    told = _told(path, made, kept, asker, as_json=as_json, problem=problem)
    if kept and arg is not None and not _names(doc, arg):
        note_line(
            f"Note: this call names no argument {printable(arg)}; such calls are covered only "
            "if the policy reads it from elsewhere."
        )
    if problem:
        note_line(f"Warning: the request is approved, and further calls are not covered: {problem}")
    return Exit.NOT_CLEAN if problem else told


def _names(doc: Doc, arg: str) -> bool:
    """Say whether the call of a request has an argument, as far as what is shown of it tells."""
    shown = plain(doc["arguments"])
    return arg in shown if isinstance(shown, dict) else True


def _standing(
    doc: Doc,
    up_to: str | None,
    arg: str | None,
    seconds: float | None,
    uses: int | None,
    *,
    emergency: bool,
) -> dict[str, Any] | None:
    """Return what bounds a standing grant, or None if none is wanted.

    Raises:
        click.UsageError: a part is missing, or this decision can cover nothing else.
    """
    parts = {"up_to": up_to, "arg": arg, "seconds": seconds}
    missing = [part for part in parts.values() if part is None]
    if len(missing) == len(parts):
        if uses is not None:
            raise click.UsageError("--uses goes with --up-to, --arg and --for.")
        return None
    if missing:
        raise click.UsageError("--up-to, --arg and --for go together.")
    if emergency or doc["signatures"]:
        what = "An emergency" if emergency else "A signature"
        raise click.UsageError(f"{what} approves this one call; --up-to is for a plain approval.")
    return {**parts, "uses": _USES if uses is None else uses}


def _kept(store: FileApprovalStore, grant: Grant | None) -> tuple[str, str]:
    """Store a grant; return its id, or why it could not be: the request is approved by then."""
    try:
        return ("" if grant is None else store.keep(grant)), ""
    except AgentSagaError as error:
        return "", error.message


@command.command("deny", **_NAMED)
@click.argument("request", metavar="ID", callback=named)
@approver_option
@note_option
@log_options
def deny(request: str, approver: str, note: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Deny a request; the call that waits for it is refused."""
    path, store = _store(wal_path)
    doc = store.find(request)
    asker = store.asker(doc)
    made = store.deny(doc["id"], approver=approver, note=note)
    return _told(path, made, "", asker, as_json=as_json)


@command.command("challenge", **_NAMED)
@click.argument("request", metavar="ID", callback=named)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the bytes to this file.")
@log_options
def challenge(request: str, out: str | None, wal_path: str | None, *, as_json: bool) -> Exit:
    """Show what has to be signed to approve a request: 32 bytes over the exact action."""
    path, store = _store(wal_path)
    doc = store.find(request)
    digest = store.challenge(doc["id"])
    if out is not None:
        try:
            Path(out).write_bytes(digest)
        except OSError as error:
            raise click.FileError(out, error.strerror or str(error)) from error
    if as_json:
        told = {"id": doc["id"], "challenge": digest.hex(), "request": _document(doc)}
        say_json({"log": str(path), **told})
    else:
        say(
            f"Log: {printable(path)}",
            f"{doc['id']}  {printable(doc['tool'])}",
            f"  arguments: {printable(doc['arguments'])}",
            f"  challenge: {digest.hex()}",
        )
    return Exit.CLEAN


@command.command("review", **_NAMED)
@click.argument("request", metavar="ID", callback=named)
@approver_option
@note_option
@log_options
def review(request: str, approver: str, note: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Record that somebody has looked at a decision that broke glass."""
    path, store = _store(wal_path)
    doc = store.find(request)
    store.review(doc["id"], by=approver, note=note)
    if as_json:
        say_json({"log": str(path), "id": doc["id"], "reviewed_by": approver, "note": note})
    else:
        say(f"Log: {printable(path)}", f"{doc['id']} is reviewed by {printable(approver)}.")
    return Exit.CLEAN


@command.command("revoke", **_NAMED)
@click.argument("wanted", metavar="ID", callback=named)
@by_option("--approver", "Who takes it back; recorded. Anybody who is named may.")
@note_option
@log_options
def revoke(wanted: str, approver: str, note: str, wal_path: str | None, *, as_json: bool) -> Exit:
    """Take back a standing grant, or the yes to one call.

    ID is that of a grant or of a request, or its beginning. When this returns, no call begins by
    that yes any more, in no process; one whose effect has begun goes on.
    """
    path, store = _store(wal_path)
    done = store.revoke(wanted, approver=approver, note=note)
    if as_json:
        say_json({"log": str(path), "revoked": asdict(done), "by": approver, "note": note})
        return Exit.CLEAN
    tool, giver = printable(done.tool), printable(done.approver)
    calls = f" It had covered {counted(done.calls, 'call')}." if done.calls else ""
    say(f"Log: {printable(path)}")
    say(f"Revoked: {done.id}, the yes of {giver} to {tool}.{calls}")
    say("No call begins by it any more; what has begun goes on.")
    return Exit.CLEAN


def _told(
    path: Path, made: Doc, grant: str, asker: Asker, *, as_json: bool, problem: str = ""
) -> Exit:
    if asker.words:
        note_line(f"Note: {printable(asker.words)}.")
    if as_json:
        told = {"asker": asker.waiting.value, "asker_told": asker.words}
        request = {**_document(made), **told}
        say_json({"log": str(path), "request": request, "grant": grant, "grant_problem": problem})
        return Exit.CLEAN
    if made["decision"] is None:
        signed = ", ".join(map(printable, made["signed"]))
        say(f"Log: {printable(path)}")
        say(f"Signed by {signed}; {made['signatures']} signatures are wanted: {made['id']}")
        return Exit.CLEAN
    decision = made["decision"]
    word = "approved" if made["state"] == "GRANTED" else "denied"
    say(f"Log: {printable(path)}")
    say(f"{printable(made['tool'])} is {word} by {printable(decision['by'])}: {made['id']}")
    if grant:
        say(f"The standing grant {grant} covers further calls.")
    if made["review"] == "OPEN":
        say(f"Somebody else reviews it: {_command('review', made, path)}")
    return Exit.CLEAN


def _command(decision: str, doc: Doc, path: Path) -> str:
    return f"agent-saga approvals {decision} {doc['id']} --approver WHO {wal_option(path)}"


def _asker(doc: Doc, known: Mapping[str, Asker]) -> Asker:
    return known.get(doc["saga"], UNTOLD)


def _asked(doc: Doc, known: Mapping[str, Asker]) -> dict[str, Any]:
    asker = _asker(doc, known)
    return {**_document(doc), "asker": asker.waiting.value, "asker_told": asker.words}


def _gone_lines(gone: Sequence[Doc], path: Path, known: Mapping[str, Asker]) -> list[str]:
    return [
        f"Gone: {printable(doc['tool'])}, asked at {moment(doc['asked'])} UTC in saga "
        f"{printable(doc['saga'])}; {printable(_asker(doc, known).words)}. "
        f"It can only be denied: {_command('deny', doc, path)}"
        for doc in gone
    ]


def _pending_lines(pending: Sequence[Doc], path: Path, known: Mapping[str, Asker]) -> list[str]:
    if not pending:
        return ["Nothing waits for an approval." if is_there(path) else NO_LOG]
    lines = [f"{counted(len(pending), 'request')} to answer:"]
    for doc in pending:
        asked = ", ".join(map(printable, doc["requesters"]))
        lines += [
            f"{doc['id']}  {printable(doc['tool'])}",
            f"  why: {printable(doc['reason'])} (rule {printable(doc['rule'])})",
            f"  asked by: {asked}, in saga {printable(doc['saga'])}, at {moment(doc['asked'])} UTC",
            f"  arguments: {printable(doc['arguments'])}",
            f"  until: {moment(doc['deadline'])} UTC",
            f"  yes: {_command('approve', doc, path)}",
            f"  no:  {_command('deny', doc, path)}",
        ]
        asker = _asker(doc, known)
        if asker.words:
            lines.insert(-2, f"  {asker.waiting.value.upper()}: {printable(asker.words)}")
        if doc["signatures"]:
            signed = ", ".join(map(printable, doc["signed"])) or "nobody yet"
            lines.append(f"  signatures wanted: {doc['signatures']}; signed by {signed}")
    return lines


def _review_lines(reviews: Sequence[Doc], path: Path) -> list[str]:
    return [
        f"To review: {printable(doc['tool'])}, approved by {printable(doc['decision']['by'])} by "
        f"breaking glass: {_command('review', doc, path)}"
        for doc in reviews
    ]


def _grant_lines(grants: Sequence[Doc], path: Path) -> list[str]:
    lines = []
    for one in grants:
        taken = f"{len(one['shares'])} of {counted(one['uses'], 'use')} taken"
        until = f"until {moment(one['until'])} UTC{_sum_of(one)}"
        lines += [
            f"Granted: {printable(one['tool'])} by {printable(one['by'])}, {until}; {taken}",
            f"  take it back: {_command('revoke', one, path)}",
        ]
    return lines


def _sum_of(grant: Doc) -> str:
    return f", up to {grant['up_to']} of {printable(grant['arg'])}" if grant["up_to"] else ""


def _document(doc: Doc) -> dict[str, Any]:
    return {**doc, "arguments": plain(doc["arguments"])}

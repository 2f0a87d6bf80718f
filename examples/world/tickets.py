"""A ticket service over HTTP: tickets are opened for a team, and cancelled."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .faults import Faults
from .web import Rejected, Service, request, settled

TEAMS = ("billing", "shipping")


class TicketService(Service):
    """The service: `POST /tickets`, `DELETE /tickets/ID`, `GET /tickets`."""

    def __init__(self, faults: Faults) -> None:
        self._tickets: list[dict[str, Any]] = []
        super().__init__(faults)

    def handle(self, method: str, path: list[str], body: Any) -> Any:
        """Do what a request asks and return the answer."""
        match method, path:
            case "GET", ["tickets"]:
                return self._tickets
            case "POST", ["tickets"]:
                return self._open(body["team"], body["text"])
            case "DELETE", ["tickets", number]:
                self._tickets[int(number) - 1]["status"] = "cancelled"
                return {}
        return super().handle(method, path, body)

    def operation(self, method: str, path: list[str]) -> str:
        """Return what a request is called, for `Faults`."""
        return {"POST": "open_ticket", "DELETE": "cancel"}.get(method, "")

    def _open(self, team: str, text: str) -> dict[str, Any]:
        if team not in TEAMS:
            raise Rejected(f"there is no team {team!r}")
        number = len(self._tickets) + 1
        self._tickets.append({"id": number, "team": team, "text": text, "status": "open"})
        return self._tickets[-1]


class Tickets:
    """What a client of the service sees.

    Args:
        port: where the service listens.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, team: str, text: str, key: str) -> dict[str, Any]:
        """Open a ticket and return it."""
        body = {"team": team, "text": text}
        return dict(request(self.port, "POST", "/tickets", body, key))

    def cancel(self, number: int) -> None:
        """Cancel a ticket; a second time changes nothing."""
        request(self.port, "DELETE", f"/tickets/{number}")

    def settled(self, key: str) -> dict[str, Any] | None:
        """Return the ticket that a key opened, or None after making sure that it never will."""
        ticket: dict[str, Any] | None = settled(self.port, key)
        return ticket

    def state(self) -> dict[str, str]:
        """Return how many open tickets every team has."""
        tickets = request(self.port, "GET", "/tickets")
        teams = Counter(ticket["team"] for ticket in tickets if ticket["status"] == "open")
        return {f"tickets: open for {team}": str(count) for team, count in sorted(teams.items())}

    def traces(self) -> dict[str, int]:
        """Return how many tickets of each status there are."""
        tickets = request(self.port, "GET", "/tickets")
        return dict(Counter(f"{ticket['status']} ticket" for ticket in tickets))

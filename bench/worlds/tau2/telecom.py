"""Rows of the telephone company and of the customer's phone.

Switches are looked at and switched back. What the phone's radio shows is measured anew after each
switch, so it may read otherwise than before: that is declared. Data that was sold, a payment, a
request for one and a permission cannot be taken back by any tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import Final, Left, Read, Write
from bench.worlds.traces import Traces, changed
from bench.worlds.world import Args, Tools

_READINGS: Constant = (
    "phone/device/network_connection_status",
    "phone/device/network_technology_connected",
    "phone/device/network_signal_strength",
)
_WIFI: Constant = (
    "phone/device/wifi_connected",
    "phone/device/wifi_ssid",
    "phone/device/wifi_signal_strength",
)


def _changed(*paths: str) -> Traces:
    return [changed(path) for path in paths]


_TUNNEL: Constant = {
    "server_address": "192.168.1.1",
    "protocol": "OpenVPN",
    "server_performance": "excellent",
}


def _readings(args: Args, before: Any, result: Any) -> Traces:
    """What the radio measured last."""
    return _changed(*_READINGS)


def _line(tools: Tools, args: Args) -> Any:
    line = tools("get_details_by_id", id=args["line_id"])
    return {"roaming": line["roaming_enabled"], "status": line["status"]}


def _set_roaming(tools: Tools, args: Args, before: Any, result: Any) -> None:
    name = "enable_roaming" if before["roaming"] else "disable_roaming"
    tools(name, customer_id=args["customer_id"], line_id=args["line_id"])


def _suspend(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools(
        "suspend_line",
        customer_id=args["customer_id"],
        line_id=args["line_id"],
        reason="as it was before",
    )


def _resume(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("resume_line", customer_id=args["customer_id"], line_id=args["line_id"])


def _was_suspended(args: Args, before: Any) -> str:
    return "" if before["status"] == "Suspended" else "the line was not suspended"


def _since(args: Args, before: Any, result: Any) -> Traces:
    """It is suspended since today, and not since it was first."""
    return _changed(f"db/lines/{args['line_id']}/suspension_start_date", *_READINGS)


def _field(tool: str, name: str) -> Callable[[Tools, Args], Any]:
    """Look at one line "name: value" of what a status tool prints."""

    def look(tools: Tools, args: Args) -> Any:
        lines = dict(line.split(": ", 1) for line in tools(tool).splitlines() if ": " in line)
        return lines[name]

    return look


def _text(tool: str) -> Callable[[Tools, Args], Any]:
    return lambda tools, args: tools(tool)


def _switch(tool: str, look: Callable[[Tools, Args], Any]) -> Write:
    """Return the row of a switch that can be looked at."""

    def back(tools: Tools, args: Args, before: Any, result: Any) -> None:
        if look(tools, args) != before:
            tools(tool)

    return Write(look, back, trace=_readings)


def _flight_mode(tools: Tools, args: Args) -> Any:
    mode = _field("check_network_status", "Airplane Mode")(tools, args)
    return {"mode": mode, "vpn": "connected" in tools("check_vpn_status").split(",")[0]}


def _flight_mode_back(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Flying cuts the tunnel: it is opened again where it was open before that."""
    now = _flight_mode(tools, args)
    if now["mode"] == before["mode"]:
        return
    tools("toggle_airplane_mode")
    if _flight_mode(tools, args)["mode"] != before["mode"]:
        raise RuntimeError("The flight mode did not go back to what it was.")
    if now["vpn"] or (before["vpn"] and before["mode"] == "OFF"):
        tools("connect_vpn")


def _flight_mode_trace(args: Args, before: Any, result: Any) -> Traces:
    """Flying cuts the wireless network and the tunnel; the tunnel is opened again by default."""
    return (*_changed(*_READINGS, *_WIFI), *_tunnel(args, before, result))


def _connect(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if "ON and connected" in before:
        tools("connect_vpn")


def _tunnel(args: Args, before: Any, result: Any) -> Traces:
    """The tunnel that a phone opens by itself is always the same one."""
    place = "phone/device/vpn_details"
    parts = [changed(f"{place}/{field}", value) for field, value in _TUNNEL.items()]
    return (changed(place, _TUNNEL), *parts)


def _disconnect(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if "ON and connected" not in before:
        tools("disconnect_vpn")


def _wifi(tools: Tools, args: Args) -> Any:
    return {
        "wifi": tools("check_wifi_status"),
        "flying": _field("check_network_status", "Airplane Mode")(tools, args),
    }


def _known_network(args: Args, before: Any) -> str:
    """Switched off and on again, the phone is in no network."""
    lost = "connected to '" in before["wifi"] and before["flying"] == "OFF"
    return "the phone would not find back to its wireless network" if lost else ""


def _wifi_back(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if _wifi(tools, args) != before:
        tools("toggle_wifi")


def _mode_back(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("set_network_mode_preference", mode=before)


def _access(tools: Tools, args: Args) -> Any:
    lines = tools("check_apn_settings").splitlines()
    name, url = (line.split(": ", 1)[1] for line in lines[:2])
    return {"apn_name": name, "mmsc_url": None if url == "Not Set" else url}


def _access_back(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("set_apn_settings", apn_settings=before)


def _access_trace(args: Args, before: Any, result: Any) -> Traces:
    """A reset that was asked for earlier is no longer asked for; proxies cannot be read."""
    settings = "phone/device/active_apn_settings"
    unread = {"reset_at_reboot": False, "mms_apn": "mms", "mms_proxy": None, "mms_port": None}
    fields = [changed(f"{settings}/{field}", value) for field, value in unread.items()]
    return (*_changed(*_READINGS), *fields)


def _reset_unseen(args: Args, before: Any, now: Any) -> Any:
    return plans.UNCLEAR


def _usage(tools: Tools, args: Args) -> Any:
    line = {key: args[key] for key in ("customer_id", "line_id")}
    return tools("get_data_usage", **line)["data_refueling_gb"]


def _bill(tools: Tools, args: Args) -> Any:
    return tools("get_details_by_id", id=args["bill_id"])["status"]


def _permissions(tools: Tools, args: Args) -> Any:
    return tools("check_app_permissions", app_name=args["app_name"])


TABLE: Constant[dict[str, plans.Plan]] = {
    "enable_roaming": Write(_line, _set_roaming, trace=_readings),
    "disable_roaming": Write(_line, _set_roaming, trace=_readings),
    "resume_line": Write(_line, _suspend, trace=_since, needs=_was_suspended),
    "suspend_line": Write(_line, _resume, trace=_readings),
    "refuel_data": Final("no tool takes data back that was sold", _usage),
    "send_payment_request": Final("no tool withdraws a request for payment", _bill),
    "make_payment": Final("no tool pays back; none shows whether a request was paid"),
    "grant_app_permission": Final("no tool withdraws a permission", _permissions),
    "reseat_sim_card": Left(
        lambda args: (changed("phone/device/sim_card_missing", False), *_changed(*_READINGS))
    ),
    "toggle_airplane_mode": Write(
        _flight_mode, _flight_mode_back, trace=_flight_mode_trace, restores=False
    ),
    "toggle_data": _switch("toggle_data", _field("check_network_status", "Mobile Data Enabled")),
    "toggle_roaming": _switch(
        "toggle_roaming", _field("check_network_status", "Data Roaming Enabled")
    ),
    "toggle_data_saver_mode": _switch(
        "toggle_data_saver_mode", _text("check_data_restriction_status")
    ),
    "toggle_wifi_calling": _switch("toggle_wifi_calling", _text("check_wifi_calling_status")),
    "set_network_mode_preference": Write(
        _field("check_network_mode_preference", "Network Mode Preference"),
        _mode_back,
        trace=_readings,
    ),
    "disconnect_vpn": Write(_text("check_vpn_status"), _connect, trace=_tunnel, restores=False),
    "reset_apn_settings": Write(
        _access,
        _access_back,
        _reset_unseen,
        _access_trace,
        visible=False,
        harmless=True,
        again=True,
    ),
    "reboot_device": Write(_access, _access_back, trace=_access_trace),
    "connect_vpn": Write(_text("check_vpn_status"), _disconnect),
    "set_apn_settings": Write(_access, _access_back, trace=_access_trace),
    "toggle_wifi": Write(_wifi, _wifi_back, needs=_known_network),
    **dict.fromkeys(
        (
            *("can_send_mms", "check_apn_settings", "check_app_permissions", "check_app_status"),
            *("check_data_restriction_status", "check_installed_apps", "check_status_bar"),
            *("check_network_mode_preference", "check_network_status", "check_payment_request"),
            *("check_sim_status", "check_vpn_status", "check_wifi_calling_status"),
            *("check_wifi_status", "get_bills_for_customer", "get_customer_by_id"),
            *("get_customer_by_name", "get_customer_by_phone", "get_data_usage"),
            *("get_details_by_id", "run_speed_test", "transfer_to_human_agents"),
        ),
        Read(),
    ),
}

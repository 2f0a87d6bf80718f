"""Rows of the car: nearly all of it can be read and set back; fuel cannot be taken out again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from typing import Final as Constant

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Final, Left, Read, Write
from bench.worlds.traces import Traces, changed
from bench.worlds.world import Args, Tools, WorldError

_FORCE: Constant = 1000.0


def _shown(option: str) -> Any:
    def look(tools: Tools, args: Args) -> Any:
        found = dict(tools("displayCarStatus", option=option))
        found.pop("metadata", None)
        return found

    return look


def _set_engine(tools: Tools, args: Args, before: Any, result: Any) -> None:
    """Stop what was started. The tool stops the engine and then calls the mode invalid."""
    if before["engineState"] == "stopped":
        with suppress(WorldError):
            tools("startEngine", ignitionMode="STOP")
    else:
        tools("startEngine", ignitionMode="START")
    if tools("displayCarStatus", option="engine")["engineState"] != before["engineState"]:
        raise RuntimeError("The engine did not go back to what it was.")


def _set_doors(tools: Tools, args: Args, before: Any, result: Any) -> None:
    for unlock, state in ((True, "unlocked"), (False, "locked")):
        doors = [door for door, was in before["doorStatus"].items() if was == state]
        tools("lockDoors", unlock=unlock, door=doors)


def _set_climate(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools(
        "adjustClimateControl",
        temperature=before["currentACTemperature"],
        unit="celsius",
        fanSpeed=before["fanSpeed"],
        mode=before["climateMode"],
    )


def _set_lights(tools: Tools, args: Args, before: Any, result: Any) -> None:
    tools("setHeadlights", mode=before["headlightStatus"])


def _set_parking_brake(tools: Tools, args: Args, before: Any, result: Any) -> None:
    mode = "engage" if before["parkingBrakeStatus"] == "engaged" else "release"
    tools("activateParkingBrake", mode=mode)


def _brake_readings(args: Args, before: Any, result: Any) -> Traces:
    """What the sensors said last; the tool writes its own readings each time."""
    readings = ("_slopeAngle", "_parkingBrakeForce")
    return [changed(f"VehicleControlAPI/{reading}") for reading in readings]


def _set_pedal(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if before["brakePedalStatus"] == "released":
        tools("releaseBrakePedal")
    else:
        tools("pressBrakePedal", pedalPosition=before["brakePedalForce"] / _FORCE)


def _cruise_off(tools: Tools, args: Args, before: Any, result: Any) -> None:
    if before["engineState"] == "stopped":
        return  # it was refused
    distance = args["distanceToNextVehicle"]
    tools("setCruiseControl", speed=0, activate=False, distanceToNextVehicle=distance)


def _cruise_unseen(args: Args, before: Any, now: Any) -> Any:
    return MISSING if before["engineState"] == "stopped" else UNCLEAR


def _cruise(args: Args, before: Any, result: Any) -> Traces:
    """The distance is a reading of the road; a cruise that was on before is off now."""
    if before["engineState"] == "stopped":
        return ()
    distance = changed("VehicleControlAPI/distanceToNextVehicle", args["distanceToNextVehicle"])
    return (distance, changed("VehicleControlAPI/cruiseStatus", "inactive"))


TABLE: Constant[dict[str, plans.Plan]] = {
    "startEngine": Write(_shown("engine"), _set_engine),
    "fillFuelTank": Final("no tool takes fuel out of the tank", _shown("fuel")),
    "lockDoors": Write(_shown("doors"), _set_doors),
    "adjustClimateControl": Write(_shown("climate"), _set_climate),
    "setHeadlights": Write(_shown("headlights"), _set_lights),
    "activateParkingBrake": Write(
        _shown("parkingBrake"), _set_parking_brake, trace=_brake_readings, restores=False
    ),
    "pressBrakePedal": Write(_shown("brakePedal"), _set_pedal),
    "releaseBrakePedal": Write(_shown("brakePedal"), _set_pedal),
    "setCruiseControl": Write(
        *(_shown("engine"), _cruise_off, _cruise_unseen, _cruise),
        restores=False,
        visible=False,
        harmless=True,
        again=True,
    ),
    "set_navigation": Left(
        lambda args: [changed("VehicleControlAPI/destination", args["destination"])]
    ),
    **dict.fromkeys(
        (
            *("displayCarStatus", "get_outside_temperature_from_google", "get_current_speed"),
            *("get_outside_temperature_from_weather_com", "display_log", "liter_to_gallon"),
            *("estimate_drive_feasibility_by_mileage", "gallon_to_liter", "estimate_distance"),
            *("get_zipcode_based_on_city", "check_tire_pressure", "find_nearest_tire_shop"),
        ),
        Read(),
    ),
}

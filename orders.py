# orders.py
from pathlib import Path

from agent_saga import AgentKit

kit = AgentKit("orders")


def note(line):
    with Path("world.txt").open("a") as world:
        print(line, file=world)


@kit.tool("COMPENSABLE")
def reserve(item: str) -> dict:
    note(f"{item} is reserved")
    return {"item": item}


@reserve.undo
def release(result: dict) -> None:
    note(f"{result['item']} is free again")


@kit.tool("COMPENSABLE")
def charge(customer: str, cents: int) -> dict:
    note(f"{customer} has paid {cents}")
    return {"customer": customer, "cents": cents}


@charge.undo
def refund(result: dict) -> None:
    note(f"{result['customer']} has got back {result['cents']}")

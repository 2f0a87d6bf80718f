# order.py
import sys
from pathlib import Path

import orders
from agent_saga import SagaSuspended

number = sys.argv[1]
try:
    with orders.kit.transaction(saga_id=number, resume=True) as saga:
        print("reserved:", orders.reserve("a lamp")["item"])
        if not Path(f"{number}.answer").exists():
            saga.suspend("the customer must agree to the price", deadline=86_400)
        print("charged:", orders.charge("ada", 4900)["cents"])
except SagaSuspended as suspended:
    print(suspended)

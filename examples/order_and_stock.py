#!/usr/bin/env python3
"""An order and its stock in one transaction, with a crash between the work and the commit.

A shop stores an order in its own database and tells two others about it: the warehouse (topic
`stock`) and billing (topic `orders`, a second later). Either both are told and the order is
stored, or neither is, wherever the shop stops.

    make run                                                     # in another terminal
    python3 examples/order_and_stock.py

PUNCTUAL_SERVER names another server. The script plays the shop three times: once all goes well,
once it crashes after its order is stored, once before. After the crashes the broker asks what became
of the transactions, and the shop, started again, looks into its database.
"""

import json
import os
import sqlite3
import sys
import tempfile
import urllib.request

SERVER = os.environ.get("PUNCTUAL_SERVER", "http://127.0.0.1:7070")
RUN = os.getpid()
PRODUCERS = f"shop-{RUN}"
STOCK, ORDERS = f"stock-{RUN}", f"orders-{RUN}"


def call(path, body=None, method="POST"):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(SERVER + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def prepare(order):
    """Half messages: stored, and invisible until the commit. The own ids make it safe to repeat."""
    check = {"first": "1s", "interval": "1s", "max": 15}
    messages = [
        {"topic": STOCK, "id": f"reserve-{order}", "key": str(order), "body": {"order": order}},
        {"topic": ORDERS, "id": f"bill-{order}", "body": {"order": order}, "delay": "1s"},
    ]
    order = {"producer_group": PRODUCERS, "messages": messages, "check": check}
    return call("/v1/transactions", order)["id"]


def place(database, order, crash=None):
    transaction = prepare(order)
    if crash == "before the order is stored":
        return print(f"order {order}: the shop stops {crash}")
    with database:
        database.execute("insert into orders values (?, ?)", (order, transaction))
    if crash == "before the commit":
        return print(f"order {order}: the shop stops {crash}")
    call(f"/v1/transactions/{transaction}/commit")
    print(f"order {order}: committed")


def answer_checks(database, expected):
    """What the shop does after a restart, and all the time: it waits to be asked."""
    while expected:
        checks = call(f"/v1/producer-groups/{PRODUCERS}/checks", {"wait": "20s", "max": 10})["checks"]
        for check in checks:
            transaction = check["transaction"]
            row = database.execute(
                "select number from orders where transaction_id = ?", (transaction,)
            ).fetchone()
            decision = "commit" if row else "rollback"
            call(f"/v1/transactions/{transaction}/{decision}")
            order = json.loads(check["messages"][0]["body"])["order"]
            print(f"asked about order {order}: {decision}")
            expected -= 1


def received(topic, count):
    """What somebody who consumes the topic gets."""
    orders = []
    while len(orders) < count:
        path = f"/v1/topics/{topic}/groups/reader/receive"
        messages = call(path, {"max": 10, "wait": "20s"})["messages"]
        orders += [json.loads(message["body"])["order"] for message in messages]
        receipts = [message["receipt"] for message in messages]
        if receipts:
            call(f"/v1/topics/{topic}/groups/reader/ack", {"receipts": receipts})
    return sorted(orders)


def main():
    with tempfile.TemporaryDirectory() as directory:
        database = sqlite3.connect(os.path.join(directory, "shop.db"))
        database.execute("create table orders (number integer, transaction_id text)")
        place(database, 1)
        place(database, 2, crash="before the commit")
        place(database, 3, crash="before the order is stored")
        answer_checks(database, 2)
        print("the warehouse reserves for orders", received(STOCK, 2))
        print("billing hears of orders", received(ORDERS, 2))
        database.close()
    for topic in (STOCK, ORDERS):
        call(f"/v1/topics/{topic}", method="DELETE")


if __name__ == "__main__":
    sys.exit(main())

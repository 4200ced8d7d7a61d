"""The subscribers of the demonstration with their filters, and the pipeline that serves them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Subscriber(NamedTuple):
    """A subscriber, the way its messages take, and its filter."""

    name: str
    way: str
    filter: str


EU_LARGE: Final = Subscriber(
    "eu-large",
    "pipeline → stream",
    "region = 'EU' AND amount > 1000 AND type IN ('created', 'paid')",
)
DISPUTES: Final = Subscriber("disputes", "pipeline → SQLite queue", "type = 'disputed'")
EXPRESS: Final = Subscriber("express", "pipeline → Parquet", "express AND weight > 5")
FULFILMENT: Final = Subscriber(
    "fulfilment", "pipeline → stream", "type IN ('created', 'paid', 'shipped')"
)
ROUTED: Final = (EU_LARGE, DISPUTES, EXPRESS, FULFILMENT)
UNROUTED: Final = Subscriber("unrouted", "pipeline → dead letters", "no binding matches")

CLERK: Final = Subscriber("clerk", "queue consumer", "type = 'disputed' AND amount > 50")
PAGER: Final = Subscriber(
    "pager", "push, orders.eu.#", "type = 'disputed' AND sys.topic MATCHES 'orders.eu.#'"
)

RARE: Final = Subscriber("islands", "stream", "region = 'ISLANDS' AND type = 'returned'")
ONE_CUSTOMER: Final = Subscriber("one customer", "stream", "customer = 'c-1170' AND amount > 20")
NOTHING: Final = Subscriber("nothing", "stream", "region = 'ATLANTIS'")
READERS: Final = (RARE, EU_LARGE._replace(name="auditor", way="stream"), ONE_CUSTOMER, NOTHING)

REPLAYED: Final = Subscriber("replay", "replay → stream", "type = 'returned' AND region <> 'EU'")

PIPELINE: Final = """\
# The pipeline of the demo: headgate pipeline show pipeline.toml
[pipeline]
name = "demo"

[source]
stream = "orders"

[exchange]
type = "headers"

[[binding]]
queue = "eu-large"
arguments = { x-match = "all", region = "EU" }
filter = "amount > 1000 AND type IN ('created', 'paid')"

[[binding]]
queue = "disputes"
arguments = { x-match = "all", type = "disputed" }

[[binding]]
queue = "express"
arguments = { x-match = "all", express = true }
filter = "weight > 5"

[[binding]]
queue = "fulfilment"
filter = "type IN ('created', 'paid', 'shipped')"

[[sink]]
queue = "eu-large"
to = "stream:eu-large"

[[sink]]
queue = "disputes"
to = "queue:sqlite:///shop.db"

[[sink]]
queue = "express"
to = "parquet:express"

[[sink]]
queue = "fulfilment"
to = "stream:fulfilment"

[dead_letter]
to = "stream:unrouted"
"""

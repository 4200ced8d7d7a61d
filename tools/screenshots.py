"""Write screenshots of every page: light, dark and as wide as a phone. Needs Chromium and the extra `dev`.

python tools/screenshots.py build/screenshots [docs/images]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pika
from playwright.sync_api import Browser, Page, sync_playwright

from headgate import Stream, connect
from headgate.clock import now_us
from headgate.pipelines import Account, Counters, write_account
from headgate.streams.cold.compaction import compact
from headgate.testing import Broker

CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
VIEWS = (
    ("light", "light", 1280, 860),
    ("dark", "dark", 1280, 860),
    ("phone", "light", 390, 844),
    ("phone-dark", "dark", 390, 844),
)
FILTER = "region = 'EU' AND amount > 1000"
IN_README = (
    ("stream", "light"),
    ("playground", "dark"),
    ("overview", "light"),
    ("exchanges", "dark"),
)


def pages() -> dict[str, str]:
    """The path of every page, by name."""

    def path(page: str, **query: str) -> str:
        return f"{page}?{urlencode(query)}" if query else page

    return {
        "login": "/login",
        "overview": "/",
        "queues": "/queues",
        "queue": path("/queue", vhost="/", name="orders"),
        "dead-letters": path("/queue", vhost="/", name="orders.dead"),
        "exchanges": path(
            "/exchanges", vhost="/", exchange="shop", key="orders.eu.paid", headers='{"amount": 70}'
        ),
        "consumers": "/consumers",
        "connections": "/connections",
        "channels": "/channels",
        "streams": "/streams",
        "stream": path("/stream", name="orders", filter=FILTER),
        "stream-empty": path("/stream", name="audit"),
        "sql-queues": "/sql-queues",
        "sql-queue": path("/sql-queue", name="orders", filter="amount > 5000"),
        "sql-dead-letters": path("/sql-queue", name="orders", state="dead"),
        "sql-subscription": path("/sql-queue", name="eu-large"),
        "playground": path("/playground", of="stream:orders", filter=FILTER),
        "playground-problem": path("/playground", of="stream:orders", filter="region = = 'EU'"),
        "message": path("/message", of="stream:orders", at="35999"),
        "pipelines": "/pipelines",
        "policies": "/policies",
        "users": "/users",
        "vhosts": "/vhosts",
        "definitions": "/definitions",
        "missing": path("/stream", name="nothing"),
    }


def orders(rng: random.Random, count: int, regions: list[str]) -> Iterator[dict[str, object]]:
    """Messages of a shop."""
    for number in range(count):
        amount = rng.choice([20, 70, 120, 560, 1200, 5400, 9100])
        body = {"order": number, "amount": amount, "items": [{"sku": f"A-{rng.randint(1, 99)}"}]}
        yield {
            "payload": json.dumps(body).encode(),
            "topic": f"orders.{rng.choice(['created', 'paid', 'shipped'])}",
            "headers": {
                "region": rng.choice(regions),
                "amount": amount,
                "express": rng.random() < 0.2,
                "customer": f"c{rng.randint(1, 400)}",
            },
        }


def fill_streams(root: Path, rng: random.Random) -> None:
    """Streams with hot, sealed and cold segments."""
    began = now_us() - 6 * 3600 * 10**6
    with Stream.create(
        root / "orders", indexed=["region", "customer"], chunk_messages=200, segment_bytes=1 << 18
    ) as stream:
        for part, regions in enumerate((["US"], ["EU", "US"], ["US", "APAC"], ["EU", "US"])):
            with stream.producer() as producer:
                for i, fields in enumerate(orders(rng, 9000, regions)):
                    if (
                        part == 3 and (8999 - i) // 400 % 4
                    ):  # Europe orders in bursts, also at the end
                        fields["headers"]["region"] = "US"  # type: ignore[index]
                    at = began + (part * 9000 + i) * 500_000
                    producer.publish(fields.pop("payload"), timestamp=at, **fields)  # type: ignore[arg-type]
            if part < 3:
                stream.seal(all=True)
            if part == 0:
                compact(root / "orders", created_us=now_us())
        for name, count in (("billing", 30_000), ("shipping", 100)):
            with stream.consume(cursor=name) as consumer:
                for _ in range(count):
                    next(consumer)
                consumer.commit()
    Stream.create(root / "audit").close()


PIPELINE = """
[pipeline]
name = "large-orders"
checkpoint = "checkpoints/large-orders"

[source]
stream = "orders"
filter = "amount > 1000"

[[exchange]]
name = "shop"
type = "topic"

[[binding]]
queue = "paid"
key = "orders.paid"

[[binding]]
queue = "shipped"
key = "orders.shipped"

[[sink]]
queue = "paid"
to = "stream:paid"

[[sink]]
queue = "shipped"
to = "parquet:shipped"
"""


def fill_pipeline(root: Path) -> None:
    """A pipeline with the checkpoint that Spark would have written."""
    (root / "large-orders.toml").write_text(PIPELINE)
    checkpoint = root / "checkpoints" / "large-orders"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    positions = json.dumps({str(root / "orders"): 34_200})
    (checkpoint / "offsets" / "41").write_text(f"v1\n{{}}\n{positions}")
    (checkpoint / "commits" / "41").write_text("v1\n{}")
    queues = {"paid": 4_871, "shipped": 4_790}
    counters = Counters(
        read=14_655, routed=9_661, unroutable=0, chunks_skipped=37, chunks_opened=143,
        bytes_read=1_840_000, bytes_total=2_610_000, queues=queues, scanned=34_200,
    )  # fmt: skip
    write_account(Account("large-orders", batches=42, counters=counters), checkpoint)


def fill_database(url: str, rng: random.Random) -> None:
    with connect(url) as database:
        queue = database.queue("orders", filter_headers=["region"], max_attempts=1)
        database.subscription("eu-large", FILTER)
        for fields in orders(rng, 300, ["EU", "US"]):
            queue.publish(fields.pop("payload"), **fields)  # type: ignore[arg-type]
        for delivery in queue.claim(3, filter="amount > 5000", lease=timedelta(minutes=1)):
            delivery.nack(reason="the card was refused")


@contextmanager
def traffic(broker: Broker, rng: random.Random) -> Iterator[None]:
    """Queues, dead letters, consumers with filters, and messages that keep coming."""
    parameters = pika.URLParameters(broker.url)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_declare("orders.dead", durable=True)
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"}
        channel.queue_declare("orders", durable=True, arguments=dead)
        channel.queue_bind("orders", "shop", "orders.#")
        for region in ("eu", "us"):
            channel.queue_declare(f"reports.{region}", durable=True)
            channel.queue_bind(f"reports.{region}", "shop", f"orders.{region}.*")
        channel.queue_declare("large", durable=True)
        channel.queue_bind("large", "shop", "#", {"x-filter": "amount > 1000"})
        for fields in orders(rng, 400, ["EU", "US"]):
            publish(channel, fields)
        for _ in range(5):
            method, _, _ = channel.basic_get("orders")
            channel.basic_reject(method.delivery_tag, requeue=False)
        channel.basic_qos(prefetch_count=20)
        channel.basic_consume("reports.eu", ignore, consumer_tag="report-eu")
        arguments = {"x-filter": "region = 'EU' AND amount > 1000"}
        channel.basic_consume("orders", ignore, consumer_tag="eu-large", arguments=arguments)
        ended = threading.Event()
        threads = [
            threading.Thread(target=keep_publishing, args=(broker.url, ended, rng)),
            threading.Thread(target=keep_consuming, args=(broker.url, ended)),
        ]
        for thread in threads:
            thread.start()
        put_policy(broker)
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def put_policy(broker: Broker) -> None:
    definition = {"max-length": 100_000, "message-ttl": 86_400_000}
    body = json.dumps({"pattern": "^reports", "definition": definition, "apply-to": "queues"})
    request = Request(f"{broker.http_url}/api/policies/%2F/limits", body.encode(), method="PUT")
    request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    request.add_header("Content-Type", "application/json")
    urlopen(request).close()


def keep_consuming(url: str, ended: threading.Event) -> None:
    """Take and acknowledge what comes to some queues."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=50)
        for queue in ("reports.us", "large", "orders"):
            arguments = {"x-filter": "region = 'US' OR amount < 100"} if queue == "orders" else None
            tag = f"{queue}-desk"
            channel.basic_consume(queue, acknowledge, consumer_tag=tag, arguments=arguments)
        while not ended.is_set():
            connection.process_data_events(0.05)


def acknowledge(channel, method, properties, body) -> None:
    channel.basic_ack(method.delivery_tag)


def ignore(*_: object) -> None:
    """Consume, and acknowledge nothing."""


def publish(channel: pika.adapters.blocking_connection.BlockingChannel, fields: dict) -> None:
    region = fields["headers"]["region"].lower()
    topic = fields["topic"].replace("orders.", f"orders.{region}.")
    properties = pika.BasicProperties(headers=fields["headers"], delivery_mode=2)
    channel.basic_publish("shop", topic, fields["payload"], properties)


def keep_publishing(url: str, ended: threading.Event, rng: random.Random) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        while not ended.wait(0.01):
            for fields in orders(rng, rng.randint(1, 20), ["EU", "US"]):
                publish(channel, fields)


def take(browser: Browser, url: str, into: Path) -> None:
    """Take a picture of every page in every view; report what is too wide, and errors."""
    for view, scheme, width, height in VIEWS:
        context = browser.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": height},
        )
        page = context.new_page()
        page.on("console", lambda m: m.type == "error" and print("console:", m.text, m.location))
        page.on("pageerror", lambda problem: print("error:", problem))
        for name, path in pages().items():
            if name == "overview":
                log_in(page, url)
                page.wait_for_timeout(12_000 if width > 390 else 4_000)  # for the charts
            else:
                page.goto(url + path)
            found = page.evaluate("document.documentElement.scrollWidth")
            if found > width:
                print(f"{name} in {view} is {found} wide, more than {width}")
            page.screenshot(path=into / f"{name}-{view}.png", full_page=True)
            if (name, view) in IN_README:
                page.screenshot(path=into / f"{name}-readme.png")
        context.close()


def log_in(page: Page, url: str) -> None:
    page.goto(f"{url}/login")
    page.fill("[name=username]", "guest")
    page.fill("[name=password]", "guest")
    page.click("button")
    page.wait_for_url(f"{url}/")


def main(into: Path, images: Path | None) -> None:
    into.mkdir(parents=True, exist_ok=True)
    rng = random.Random(5)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        data = Path(directory) / "data"
        data.mkdir()
        fill_streams(data, rng)
        fill_pipeline(data)
        database = f"sqlite:///{data}/queue.db"
        fill_database(database, rng)
        with Broker(data=data, database=database) as broker, traffic(broker, rng):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            take(browser, broker.http_url, into)
            browser.close()
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        for name, _ in IN_README:
            (images / f"{name}.png").write_bytes((into / f"{name}-readme.png").read_bytes())
    print(f"{len(pages()) * len(VIEWS)} screenshots in {into}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)

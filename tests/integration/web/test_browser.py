"""The pages in a real browser: what a person does with them, by mouse and by keyboard."""

import os
import shutil
import threading
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pika
import pytest

from headgate.broker import User, hash_quickly
from headgate.queues import connect
from headgate.streams import Stream
from headgate.testing import Broker

playwright = pytest.importorskip(
    "playwright.sync_api", reason="pip install playwright, and apt install chromium"
)
CHROMIUM = os.environ.get("HEADGATE_CHROMIUM") or shutil.which("chromium") or ""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
ATTACK = "<img src=x onerror=\"window.attacked='yes'\">"
PATIENCE_MS = 15_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: apt install chromium"),
]


@pytest.fixture(scope="module")
def browser():
    playwright.expect.set_options(timeout=PATIENCE_MS)  # its own 5 s are few on a busy machine
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def lively_broker(tmp_path_factory):
    """A broker with a stream, queues, a dead letter, a consumer with a filter, a plain user, and markup everywhere."""
    data = tmp_path_factory.mktemp("data")
    options = {
        "chunk_messages": 10,
        "linger": timedelta(hours=1),
    }  # chunks of ten, on a slow machine too
    with Stream.create(data / "orders", indexed=["region"], **options) as stream:
        with stream.producer() as producer:
            for i in range(200):
                region = "EU" if 50 <= i < 80 else "US"
                headers = {"region": region, "amount": i * 10}
                producer.publish(b'{"n": %d}' % i, topic="orders.new", headers=headers)
            headers = {"region": ATTACK, ATTACK: ATTACK}
            producer.publish(ATTACK.encode(), topic=ATTACK, headers=headers)
    database = f"sqlite:///{data}/queue.db"
    with connect(database) as opened:
        queue = opened.queue(ATTACK, max_attempts=1)
        opened.queue("parcels")
        opened.subscription("large", "amount > 1000")
        for payload in (b"first parcel", b"second parcel", ATTACK.encode()):
            queue.publish(payload, topic=ATTACK, headers={ATTACK: ATTACK})
        for delivery in queue.claim(2, lease=timedelta(minutes=1)):
            delivery.nack()
    with Broker(data, database=database) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("dead")
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("work", arguments=dead)
        channel.queue_declare(ATTACK)
        channel.exchange_declare(ATTACK, "topic")
        channel.queue_bind(ATTACK, ATTACK, ATTACK)
        properties = pika.BasicProperties(headers={ATTACK: ATTACK, "amount": 7})
        channel.basic_publish("", ATTACK, ATTACK.encode(), properties)
        channel.basic_publish("", "work", b"poison", pika.BasicProperties(headers={"amount": 7}))
        method, _, _ = channel.basic_get("work")
        channel.basic_reject(method.delivery_tag, requeue=False)
        channel.queue_declare("filtered")
        arguments = {"x-filter": "amount > 1000"}
        channel.basic_consume("filtered", ignore, consumer_tag="reader", arguments=arguments)

        def add_user():
            access = broker.broker.access
            access.put_user(User("plain", hash_quickly("secret"), ("management",)))
            access.set_permissions("plain", "/", "", "", ".*")

        broker.call(add_user)
        ended = threading.Event()
        serving = threading.Thread(target=serve_connection, args=(connection, ended))
        serving.start()
        yield broker
        ended.set()
        serving.join()
        connection.close()


def ignore(*_):
    """Take a message, and do nothing."""


def serve_connection(connection, ended):
    while not ended.is_set():
        connection.process_data_events(0.1)


@pytest.fixture
def visitor(browser, lively_broker):
    """A page whose errors fail the test."""
    context = browser.new_context(base_url=lively_broker.http_url)
    context.set_default_timeout(PATIENCE_MS)
    page, problems = context.new_page(), []
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    yield page
    attacked = page.evaluate("window.attacked")
    context.close()
    assert attacked is None
    assert problems == []


def log_in(page, name="guest", password="guest"):
    page.goto("/login")
    page.fill("[name=username]", name)
    page.fill("[name=password]", password)
    page.keyboard.press("Enter")
    page.wait_for_url("**/")


@pytest.fixture
def page(visitor):
    log_in(visitor)
    return visitor


def expect(found):
    return playwright.expect(found)


def test_the_playground_marks_matches_and_failing_terms_as_one_types(page):
    page.goto("/playground?of=stream:orders")
    page.locator("textarea[name=filter]").press_sequentially("region = 'US' AND amount > 1980")
    expect(page.get_by_text("1 of 60 recent messages match")).to_be_visible()
    expect(page.locator("tr.yes")).to_have_count(1)
    failed = page.locator("tr.no", has_text="amount is 1980")
    expect(failed.locator("code")).to_have_text("amount > 1980")
    assert "filter=region" in page.url


def test_a_bad_filter_shows_its_caret_as_one_types(page):
    page.goto("/playground?of=stream:orders")
    box = page.locator("textarea[name=filter]")
    box.press_sequentially("region = = 1")
    caret = page.locator("[data-caret]")
    expect(caret).to_contain_text("region = = 1")
    expect(caret).to_contain_text("         ^ unexpected", use_inner_text=False)
    box.fill("region = 'EU'")
    expect(caret).to_be_empty()


def test_the_heat_strip_reflects_the_filter(page):
    page.goto("/stream?name=orders")
    expect(page.locator(".cells .skipped")).to_have_count(0)
    page.locator("textarea[name=filter]").press_sequentially("region = 'EU'")
    expect(page.locator("[data-matches]")).to_have_text("30")
    assert page.locator(".cells .hits, .cells .passed").count() == 3
    assert page.locator(".cells .skipped").count() >= 15
    page.locator(".cells .hits, .cells .passed").first.hover()
    expect(page.locator("[data-cell-text]")).to_contain_text("10 matches")


def test_a_dead_letter_is_requeued(page):
    page.goto("/queue?vhost=%2F&name=dead")
    expect(page.locator(".tag.bad")).to_have_text("rejected in work")
    with page.expect_navigation():
        page.get_by_role("button", name="Requeue").click()
    expect(page.get_by_text("No message is ready")).to_be_visible()
    page.goto("/queue?vhost=%2F&name=work")
    expect(page.get_by_role("cell", name="poison")).to_be_visible()


def test_a_test_message_is_published_and_deleted(page):
    page.goto("/queue?vhost=%2F&name=work&filter=amount+%3D+4711")
    page.fill("[name=headers]", '{"amount": 4711}')
    page.fill("[name=payload]", "hello from the page")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("cell", name="hello from the page")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("No ready message matches")).to_be_visible()


def test_the_filter_of_a_consumer_is_changed_in_place(page):
    page.goto("/queue?vhost=%2F&name=filtered")
    box = page.locator("td textarea[name=filter]")
    expect(box).to_have_value("amount > 1000")
    box.fill("amount > 5")
    with page.expect_navigation():  # the page is loaded again
        page.get_by_role("button", name="Change").click()
    page.goto("/consumers")
    expect(page.get_by_role("link", name="amount > 5")).to_be_visible()


def test_a_dead_letter_of_a_queue_on_sql_is_requeued_from_the_list_of_queues(page):
    page.goto("/sql-queues")
    page.get_by_role("link", name=ATTACK).click()
    dead = page.locator(".figure", has_text="dead letters").locator("b")
    expect(dead).to_have_text("2")
    with page.expect_navigation():
        page.get_by_role("button", name="Requeue", exact=True).last.click()
    expect(dead).to_have_text("1")
    expect(page.get_by_role("row", name="first parcel")).to_contain_text("ready")
    expect(page.get_by_role("row", name="second parcel")).to_contain_text("dead")


def test_the_filter_of_a_subscription_is_changed_in_place(page):
    page.goto("/sql-queue?name=large")
    form = page.locator("form", has=page.get_by_role("button", name="Change"))
    box = form.locator("textarea")
    expect(box).to_have_value("amount > 1000")
    box.fill("amount > 5")
    with page.expect_navigation():  # the page is loaded again
        box.press("Enter")
    page.goto("/sql-queues")
    expect(page.get_by_role("cell", name="amount > 5")).to_be_visible()


def test_a_message_for_a_queue_on_sql_is_published_and_purged(page):
    page.goto("/sql-queue?name=large")
    expect(page.get_by_text("Publish a test message")).to_have_count(0)  # it gets what it matches
    page.goto("/sql-queue?name=parcels")
    ready = page.locator(".figure", has_text="ready").first.locator("b")
    page.fill("[name=headers]", '{"amount": 4711')
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Headers, as JSON: ")).to_be_visible()  # it is no JSON
    page.fill("[name=headers]", '{"amount": 4711}')
    page.fill("[name=payload]", "hello from the page")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("cell", name="hello from the page")).to_be_visible()
    expect(ready).to_have_text("1")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Purge").click()
    expect(ready).to_have_text("0")


def test_a_plain_user_sees_queues_and_no_settings_until_it_logs_out(visitor):
    visitor.goto("/queues")
    assert "/login?next=" in visitor.url
    log_in(visitor, "plain", "secret")
    visitor.goto("/queues")
    expect(visitor.get_by_role("link", name="work", exact=True)).to_be_visible()
    visitor.goto("/policies")
    expect(visitor.get_by_text("Set a policy")).to_have_count(0)
    visitor.get_by_role("button", name="Log out").click()
    visitor.wait_for_url("**/login")
    visitor.goto("/queues")
    assert "/login" in visitor.url


def test_a_user_is_added_granted_permissions_and_deleted(page):
    page.goto("/users")

    def send(button):
        with page.expect_navigation():
            page.get_by_role("button", name=button).click()

    page.fill("[name=name]", "berta")
    page.fill("[name=password]", "secret")
    send("Save")
    row = page.get_by_role("row", name="berta")
    expect(row).to_contain_text("none")
    for button in ("Grant", "Withdraw"):
        form = page.locator("form", has=page.get_by_role("button", name=button))
        form.locator("[name=user]").select_option("berta")
        send(button)
        expect(row).to_contain_text({"Grant": "/", "Withdraw": "none"}[button])
    page.once("dialog", lambda dialog: dialog.accept())
    with page.expect_navigation():
        row.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)


def test_everything_is_reached_by_the_keyboard(page):
    page.goto("/playground?of=stream:orders")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "filter":
            break
    page.keyboard.type("reg")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(" = 'US'")
    page.keyboard.press("Escape")
    expect(page.get_by_text("recent messages match")).to_be_visible()
    expect(page.locator("textarea[name=filter]")).to_have_value("region = 'US'")
    page.goto("/queues")
    page.get_by_role("button", name="queue", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    assert "sort=0.0" in page.url


def test_markup_in_names_headers_payloads_and_filters_stays_inert(page):
    queue = urlencode({"vhost": "/", "name": ATTACK})
    for path in (
        "/",
        "/queues",
        f"/queue?{queue}",
        "/exchanges",
        "/exchanges?" + urlencode({"exchange": ATTACK, "key": ATTACK, "vhost": "/"}),
        "/stream?name=orders",
        "/message?of=stream:orders&at=200",
        "/sql-queues",
        "/sql-queue?" + urlencode({"name": ATTACK, "filter": f"region = '{ATTACK}'"}),
        "/message?" + urlencode({"of": f"sql:{ATTACK}", "at": 3}),
        "/playground?" + urlencode({"of": f"sql:{ATTACK}", "filter": "amount = 7"}),
        "/playground?" + urlencode({"of": "stream:orders", "filter": f"region = '{ATTACK}'"}),
        "/playground?" + urlencode({"of": f"queue:%2F/{ATTACK}", "filter": "amount = 7"}),
    ):
        page.goto(path)
        assert page.locator("img").count() == 0
        assert page.evaluate("window.attacked") is None
    page.goto("/playground?of=stream:orders")
    page.locator("textarea[name=filter]").press_sequentially(f"region = {ATTACK}")
    expect(page.locator("[data-caret]")).to_contain_text("^")
    assert page.locator("img").count() == 0


def test_live_charts_move_without_errors(page):
    page.goto("/")
    expect(page.locator("svg[data-spark=in] .spark")).not_to_have_attribute("points", "")


def test_the_theme_is_chosen_and_kept(page):
    page.get_by_role("button", name="Switch between light and dark").click()
    chosen = page.evaluate("document.documentElement.dataset.theme")
    page.goto("/queues")
    assert page.evaluate("document.documentElement.dataset.theme") == chosen == "dark"


PAGES = (
    "/",
    "/queues",
    "/queue?vhost=%2F&name=work",
    "/queue?vhost=%2F&name=dead",
    "/queue?vhost=%2F&name=filtered",
    "/exchanges?vhost=/&exchange=amq.topic&key=a.b",
    "/consumers",
    "/connections",
    "/channels",
    "/policies",
    "/users",
    "/vhosts",
    "/definitions",
    "/streams",
    "/stream?name=orders&filter=region+%3D+'EU'",
    "/message?of=stream:orders&at=1",
    "/sql-queues",
    "/sql-queue?" + urlencode({"name": ATTACK}),
    "/sql-queue?name=large",
    "/pipelines",
    "/playground?of=stream:orders&filter=amount+%3E+1000",
    "/playground?of=stream:orders&filter=amount+%3E+%3E",
)
CHECK = (Path(__file__).parent / "accessibility.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_named_labelled_and_readable(page, scheme):
    page.emulate_media(color_scheme=scheme)
    found = {}
    for path in PAGES:
        page.goto(path)
        if problems := page.evaluate(CHECK):
            found[path] = problems
    assert found == {}


def test_what_has_the_focus_is_seen(page):
    page.goto("/stream?name=orders")
    style = """() => { const s = getComputedStyle(document.activeElement);
        return [document.activeElement.tagName, s.outlineStyle, s.outlineWidth]; }"""
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline, width = page.evaluate(style)
        if name == "BODY":
            break
        assert outline != "none", name
        assert width != "0px", name


def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_present_page_is_in_sight(page):
    page.set_viewport_size({"width": 390, "height": 844})
    for path in PAGES:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto("/definitions")
    box = page.locator(".side nav [aria-current]").bounding_box()
    assert 0 <= box["x"] < 390 - box["width"] + 1


UNSORTED = """[...document.querySelectorAll("table")].flatMap((table) => table.dataset.sortable === undefined ? ["a table"]
    : [...table.querySelectorAll("th")].filter((th) => !th.querySelector("[data-sort], .visually-hidden")).map((th) => th.textContent))"""
BYTES = """performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource"))
    .reduce((sum, each) => sum + each.encodedBodySize, 0)"""


def test_every_table_sorts_by_every_column_and_no_page_is_heavy(page):
    for path in PAGES:
        page.goto(path)
        assert page.evaluate(UNSORTED) == [], path
        assert 0 < page.evaluate(BYTES) < 300_000, path


def test_a_sorted_table_stays_sorted_on_the_next_page_and_with_another_filter(page):
    page.goto("/stream?name=orders")
    page.get_by_role("button", name="topic").click()
    assert "sort=0.2" in page.url
    page.get_by_role("link", name="Older").click()
    expect(page.locator("th[aria-sort]")).to_have_text("topic")
    page.locator("textarea[name=filter]").fill("amount > 100")
    page.keyboard.press("Enter")
    page.wait_for_url("**filter=amount*")
    expect(page.locator("th[aria-sort]")).to_have_text("topic")


def test_a_filter_that_is_typed_is_in_the_address(page):
    page.goto("/stream?name=orders")
    page.locator("textarea[name=filter]").press_sequentially("region = 'EU'")
    expect(page.locator("[data-matches]")).to_have_text("30")
    assert "filter=region" in page.url


def test_an_open_overview_tells_what_comes_to_need_attention(page, lively_broker):
    page.goto("/")
    with pika.BlockingConnection(pika.URLParameters(lively_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("forgotten")
        channel.basic_publish("", "forgotten", b"x")
        expect(page.get_by_role("link", name="forgotten")).to_be_visible()
        channel.basic_publish("", "filtered", b"x", pika.BasicProperties(headers={"amount": -1}))
        expect(page.locator(".figure.alert")).to_contain_text("unmatched")
        channel.queue_delete("forgotten")
        channel.queue_purge("filtered")
    expect(page.locator(".figure.alert")).to_have_count(0)

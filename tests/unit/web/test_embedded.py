"""The pages beside an embedded application: streams and queues to look at, nothing to change."""

import asyncio

import httpx
import pytest

from headgate.queues import connect
from headgate.streams import Stream
from headgate.web import Site, make_embedded_app

ATTACK = "<script>alert(1)</script>"


@pytest.fixture
def site(tmp_path):
    """A stream and a queue, with markup wherever a user can put it."""
    with Stream.create(tmp_path / "orders", indexed=["region"], chunk_messages=10) as stream:
        with stream.producer() as producer:
            for i in range(50):
                region = "EU" if i < 10 else "US"
                producer.publish(b"%d" % i, topic="orders.new", headers={"region": region, "n": i})
            producer.publish(ATTACK.encode(), topic=ATTACK, headers={ATTACK: ATTACK, "n": 1})
    url = f"sqlite:///{tmp_path}/queue.db"
    with connect(url) as database:
        database.queue("work").publish(ATTACK.encode(), headers={"n": 7})
    return Site(tmp_path, url)


@pytest.fixture
def get(site):
    """Get a path of the site; the arguments are its query."""
    runner = asyncio.Runner()
    transport = httpx.ASGITransport(make_embedded_app(site), raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost:15673")

    def get(path, method="GET", headers=None, **query):
        return runner.run(client.request(method, path, params=query or None, headers=headers))

    yield get
    runner.run(client.aclose())
    runner.close()


def test_streams_are_listed_and_one_is_shown_with_chunks_and_messages(get):
    assert 'href="/stream?name=orders"' in get("/streams").text
    page = get("/stream", name="orders", filter="region = 'EU'").text
    assert page.count('class="hits"') >= 1
    assert 'class="skipped"' in page
    assert "<b data-matches>10</b>" in page


def test_the_url_carries_the_page_and_pages_follow_each_other(get):
    first = get("/stream", name="orders", filter="n >= 0").text
    link = first.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    assert "filter=" in link
    second = get(link).text
    assert "at=0" in second
    assert "at=50" not in second


def test_a_bad_filter_shows_its_caret_on_every_page_that_has_one(get):
    for path, name in (("/stream", {"name": "orders"}), ("/playground", {"of": "stream:orders"})):
        answer = get(path, filter="n = = 1", **name)
        assert answer.status_code == 200
        assert "    ^ unexpected" in answer.text
    assert get("/filter/check", filter="n = = 1").json()["at"] == 4


def test_the_playground_names_the_term_that_failed(get):
    page = get("/playground", of="stream:orders", filter="region = 'EU' AND n > 8").text
    assert "1 of 51 recent messages match" in page
    assert "FALSE: region is &#39;US&#39;" in page
    assert "headgate stream tail" in page


def test_names_and_values_are_offered_from_recent_messages(get):
    offered = get("/filter/fields", of="stream:orders").json()
    assert offered["region"] == ["US", "EU"]


def test_queues_on_sql_are_browsed(get):
    assert "work" in get("/sql-queues").text
    assert "at=1" in get("/sql-queue", name="work", filter="n = 7").text
    assert "No message here" in get("/sql-queue", name="work", filter="n = 8").text
    assert "No message here" in get("/sql-queue", name="work", state="dead").text
    assert "data-api" not in get("/sql-queue", name="work").text  # nothing to change


def test_a_filter_that_no_index_answers_is_told_with_the_header_to_declare(get):
    page = get("/sql-queue", name="work", filter="n = 7").text
    assert "headgate queue index add work n" in page
    assert "as filter headers" not in get("/sql-queue", name="work").text


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/stream", {"name": "orders"}),
        ("/stream", {"name": "orders", "filter": f"n = 1 {ATTACK}"}),
        ("/stream", {"name": ATTACK}),
        ("/message", {"of": "stream:orders", "at": "50"}),
        ("/sql-queue", {"name": "work"}),
        ("/message", {"of": "sql:work", "at": "1"}),
        ("/playground", {"of": "stream:orders", "filter": f"n = '{ATTACK}'"}),
        ("/playground", {"of": ATTACK, "filter": "n = 1"}),
    ],
)
def test_markup_in_names_headers_payloads_and_filters_stays_text(get, path, query):
    page = get(path, **query).text
    assert ATTACK not in page
    assert "&lt;script&gt;" in page


def test_a_body_is_downloaded_as_a_file_and_never_shown_as_a_page(get):
    answer = get("/download", of="stream:orders", at=50)
    assert answer.content == ATTACK.encode()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["../..", "/etc", "orders/../..", "a\0b", "", ".", "orders/inbox"])
def test_a_name_does_not_lead_out_of_the_directory(get, name):
    answer = get("/stream", name=name)
    assert answer.status_code == 404
    assert "Not found" in answer.text


def test_static_files_do_not_lead_out_of_their_directory(get):
    assert get("/static/headgate.css").status_code == 200
    assert get("/static/../pages/visit.py").status_code == 404
    assert get("/static/%2e%2e/pages/visit.py").status_code == 404


def test_nothing_can_be_changed_and_other_names_of_this_machine_are_refused(get):
    assert get("/stream", method="POST", name="orders").status_code == 405
    assert get("/streams", headers={"Host": "evil.example:15673"}).status_code == 400


def test_pages_allow_no_inline_script_and_no_other_origin(get):
    for path in ("/streams", "/playground"):
        answer = get(path)
        assert "unsafe-inline" not in answer.headers["content-security-policy"]
        assert " style=" not in answer.text
        assert "<script>" not in answer.text
        assert "http://" not in answer.text

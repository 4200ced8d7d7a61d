"""The heat strip of a stream."""

from functools import partial

import pytest

from headgate import insights
from headgate.clock import now_us
from headgate.streams import Stream
from headgate.streams.cold.compaction import compact
from headgate.streams.format import OUTLINES_FILE
from headgate.streams.read import ScanStats, measure, measure_chunks
from tests.patience import PATIENCE

heat_strip = partial(insights.heat_strip, budget_s=PATIENCE)


@pytest.fixture
def tiers(tmp_path):
    """Ten chunks each in a cold, a sealed and a hot segment; only the hot one has messages from Asia."""
    path = tmp_path / "orders"
    with Stream.create(path, indexed=["region"], chunk_messages=10) as stream:
        for region in ("EU", "US", "ASIA"):
            with stream.producer() as producer:
                for i in range(100):
                    producer.publish(b"x", headers={"region": region, "n": i})
            if region != "ASIA":
                stream.seal(all=True)
            if region == "EU":
                compact(path, created_us=now_us())
    return path


def test_every_chunk_is_counted_once_and_tiers_stay_apart(tiers):
    strip = heat_strip(tiers)
    assert [tier for tier, _ in strip.tiers] == ["cold", "sealed", "hot"]
    assert strip.total("chunks") == strip.total("passed")
    assert strip.total("matches") == 300
    assert strip.complete


def test_a_filter_skips_the_tiers_without_a_match(tiers):
    strip = heat_strip(tiers, "region = 'ASIA' AND n < 50")
    assert strip.total("matches") == 50
    by_tier = {tier: {cell.heat for cell in cells} for tier, cells in strip.tiers}
    assert by_tier["cold"] == by_tier["sealed"] == {"skipped"}
    assert "hits" in by_tier["hot"]
    assert 0 < strip.total("bytes_read") < strip.total("bytes")


def test_many_chunks_are_grouped_into_few_cells_with_the_same_sums(tiers):
    fine, coarse = heat_strip(tiers, "n = 7"), heat_strip(tiers, "n = 7", most_cells=4)
    assert len(coarse.cells) <= 4 + 3  # one more for each tier
    for name in ("chunks", "skipped", "scanned", "hits", "bytes", "bytes_read", "matches"):
        assert fine.total(name) == coarse.total(name)


def test_the_strip_agrees_with_the_measurement_of_explain(tiers):
    strip = heat_strip(tiers, "n = 7")
    with Stream.open(tiers) as stream:
        measured = measure(stream, "n = 7")
    assert strip.total("hits") == measured.hits
    assert strip.total("chunks") == measured.chunks
    assert strip.total("matches") == measured.stats.rows_matched == 3


def test_without_time_to_read_the_undecided_chunks_stay_open(tiers):
    strip = heat_strip(tiers, "n + 1 = 8", budget_s=-1)
    assert not strip.complete
    assert strip.total("open") > 0


def test_chunks_of_segments_that_were_not_looked_at_are_counted_too(tiers):
    strip = heat_strip(tiers, "n + 1 = 8", budget_s=-1)
    assert strip.total("chunks") == heat_strip(tiers, "n + 1 = 8").total("chunks")


def test_a_log_that_is_sealed_meanwhile_is_left_out(tmp_path):
    with Stream.create(tmp_path / "s", segment_bytes=4096) as stream:
        with stream.producer() as producer:
            for _ in range(2):
                producer.publish(bytes(5000))
                producer.flush()
        (stream.path / OUTLINES_FILE).unlink(missing_ok=True)
        measures = measure_chunks(stream.path, None, until=-1, stats=ScanStats())
        assert next(measures).first_offset == 1
        stream.seal()
        assert list(measures) == []

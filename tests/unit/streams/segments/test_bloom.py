"""Bloom filters: RabbitMQ's error rates, no false negatives, no false positive that repeats everywhere."""

import math

import numpy as np
import pytest

from headgate.filters.nodes import Field
from headgate.streams.segments import bloom
from headgate.streams.segments.bloom import (
    BloomShape,
    build,
    hash_numbers,
    hash_texts,
    hash_value,
    probe,
    salts,
)
from headgate.streams.segments.summary import bloom_shape

FILTER_VALUE = Field("sys", "filter_value")
AMOUNT = Field("header", "amount")


def filters_of(shape, chunks, values_each):
    """One filter a chunk, each with values of its own; and the first offsets."""
    firsts = np.arange(chunks) * 1000
    built = [
        build(
            shape,
            hash_texts(FILTER_VALUE, [f"{c}-{v}" for v in range(values_each)]),
            int(firsts[c]),
        )
        for c in range(chunks)
    ]
    return np.stack(built), firsts


@pytest.mark.parametrize(
    ("values", "size", "rate"), [(10, 16, 0.02), (30, 16, 0.14), (200, 128, 0.10)]
)
def test_the_error_rates_are_those_rabbitmq_publishes(values, size, rate):
    shape = BloomShape(size, 2)
    filters, firsts = filters_of(shape, 400, values)
    absent = [hash_value(FILTER_VALUE, f"absent-{i}") for i in range(60)]
    hits = sum(int(probe(shape, filters, salts(firsts), value).sum()) for value in absent)
    assert hits / (400 * 60) == pytest.approx(rate, abs=0.01)


def test_seven_hashes_and_ten_bits_a_value_give_one_percent():
    shape = BloomShape(1024, 7)
    filters, firsts = filters_of(shape, 100, 819)
    absent = [hash_value(FILTER_VALUE, f"absent-{i}") for i in range(100)]
    hits = sum(int(probe(shape, filters, salts(firsts), value).sum()) for value in absent)
    assert hits / (100 * 100) == pytest.approx(0.01, abs=0.005)


@pytest.mark.parametrize(("values", "rate"), [(100, 0.01), (8192, 0.01), (16_384, 0.024)])
def test_a_sealed_chunk_of_unique_ids_has_room_for_all_of_them(values, rate):
    shape = bloom_shape(values)
    found = (1 - math.exp(-shape.hashes * values / shape.bits)) ** shape.hashes
    assert found == pytest.approx(rate, rel=0.1)


def test_a_value_in_the_filter_is_always_found():
    shape = BloomShape(16, 2)
    filters, firsts = filters_of(shape, 50, 30)
    for chunk in range(50):
        for value in range(30):
            found = probe(
                shape, filters, salts(firsts), hash_value(FILTER_VALUE, f"{chunk}-{value}")
            )
            assert found[chunk]


def test_a_false_positive_in_one_chunk_says_nothing_about_the_next():
    shape = BloomShape(16, 2)
    same = hash_texts(FILTER_VALUE, [f"v{i}" for i in range(30)])
    firsts = np.arange(500) * 7
    filters = np.stack([build(shape, same, int(first)) for first in firsts])
    shares = [
        probe(shape, filters, salts(firsts), hash_value(FILTER_VALUE, f"absent-{i}")).mean()
        for i in range(40)
    ]
    assert max(shares) < 0.25  # RabbitMQ's would be 1.0 for every seventh value
    assert min(shares) > 0.05


def test_numbers_that_a_filter_calls_equal_are_one_value():
    assert hash_value(AMOUNT, 1) == hash_value(AMOUNT, 1.0)
    assert hash_value(AMOUNT, 0.0) == hash_value(AMOUNT, -0.0)
    assert hash_value(AMOUNT, 2**53 + 1) == hash_value(AMOUNT, float(2**53 + 1))


def test_equal_values_of_other_kinds_or_fields_hash_differently():
    hashes = [hash_value(AMOUNT, value) for value in (1, True, "1")]
    assert len(set(hashes)) == 3
    assert hash_value(AMOUNT, "x") != hash_value(Field("header", "price"), "x")
    assert hash_value(AMOUNT, "x") != hash_value(Field("property", "amount"), "x")


def test_many_values_hash_like_each_alone():
    texts = ["", "a", "ab", "é", "😀" * 100, "x" * 300, "a" * 256]
    assert hash_texts(AMOUNT, texts).tolist() == [list(hash_value(AMOUNT, text)) for text in texts]
    numbers = np.array([0, -1, 2**62])
    assert hash_numbers(AMOUNT, numbers).tolist() == [
        list(hash_value(AMOUNT, n)) for n in (0, -1, 2**62)
    ]


def test_texts_with_a_common_beginning_hash_differently():
    texts = ["", "a", "aa", "ab", "ba", "a" * 256, "a" * 257]
    assert len({tuple(row) for row in hash_texts(AMOUNT, texts).tolist()}) == len(texts)


def test_a_slice_of_an_array_hashes_like_its_texts():
    import pyarrow as pa

    texts = pa.array(["one", "two", "three", "four"]).slice(1, 2)
    assert hash_texts(AMOUNT, texts).tolist() == hash_texts(AMOUNT, ["two", "three"]).tolist()


@pytest.mark.parametrize(
    "texts",
    [["v1", "w2", "x3"], ["a" * 256, "b" * 256], ["a", "bcd", ""], ["é" * 200, "x"], ["", ""]],
)
def test_a_text_hashes_to_the_polynomial_of_format_md(texts):
    seeds = bloom._keys(AMOUNT, "s").tolist()
    bases = [base | 1 for base in bloom._keys(AMOUNT, "p").tolist()]

    def unmixed(text, seed, base):
        raw = text.encode()
        terms = ((byte + 1) * base**i for i, byte in enumerate(raw[: bloom.HASHED_BYTES]))
        return (seed + len(raw) + sum(terms)) % 2**64

    promised = [[unmixed(text, *keys) for keys in zip(seeds, bases, strict=True)] for text in texts]
    assert np.array_equal(hash_texts(AMOUNT, texts), bloom.mix(np.array(promised, np.uint64)))

"""FORMAT.md is the law: another reader, written from it alone with nothing but the standard library, agrees."""

import json
import struct
import zlib
from hashlib import blake2b

import pytest

from headgate.message import Message
from headgate.streams.format import index_path, log_path
from headgate.streams.stream import Stream

WORD = 2**64


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Log and index of a small stream with two chunks."""
    path = tmp_path_factory.mktemp("format") / "s"
    restricted = {"r": ["us", "eu"], "v": ["1"]}
    with Stream.create(
        path, indexed=["r", "n"], filter_size=64, restrict_same_values=restricted
    ) as stream:
        with stream.producer("pos-1") as producer:
            for i in range(40):
                headers = {"r": "eu", "v": "1", "n": i, "w": i / 2}
                producer.publish(
                    Message(b"payload %d" % i, "a.b", headers, i % 3, 1000 + i, filter_value="EU")
                )
        with stream.producer() as producer:
            producer.publish(Message(b"last", headers={"n": True}))
    return log_path(path, 0).read_bytes(), index_path(path, 0).read_bytes()


def chunks(log):
    """(position, header fields, columns by name, meta, body) of every chunk."""
    position = 40 + struct.unpack_from("<I", log, 12)[0]
    while position < len(log):
        fields = struct.unpack_from("<4sBBHIIIIqqqIIBBHI", log, position)
        header_length, names_length, meta_length = fields[4:7]
        header = log[position : position + header_length]
        assert zlib.crc32(header[:60] + header[64:]) == fields[-1]
        names_at = 64 + 36 * fields[3]
        names = header[names_at : names_at + names_length].decode().split("\0")
        table = [struct.unpack_from("<BBHIIIIIIII", header, 64 + 36 * i) for i in range(fields[3])]
        meta = header[names_at + names_length :][:meta_length]
        body = log[position + header_length :][: fields[11]]
        yield (
            position,
            fields,
            dict(zip(names, table, strict=False)),
            json.loads(meta or "{}"),
            body,
        )
        position += header_length + fields[11]


def buffers(column, body):
    *_, start = column[:7]
    found = []
    for length in column[7:]:
        found.append(body[start : start + length])
        start += -(-length // 8) * 8
    assert zlib.crc32(body[column[6] : start]) == column[5]
    return found


def entries(index):
    meta_length, width = struct.unpack_from("<II", index, 12)
    at = 48 + meta_length + 16
    return [index[i : i + width] for i in range(at, len(index), width)]


def test_the_header_of_the_log(files):
    log, _ = files
    magic, version, meta_length, first_offset, _, zero, crc = struct.unpack_from("<8sIIqqII", log)
    assert (magic, version, first_offset, zero) == (b"HEADGLOG", 1, 0, 0)
    meta = log[40 : 40 + meta_length]
    assert json.loads(meta) == {"producers": {}}
    assert zlib.crc32(log[:36] + meta) == crc


def test_the_header_of_a_chunk(files):
    (_, first, _, meta, _), (_, second, _, other, _) = chunks(files[0])
    assert first[:3] == second[:3] == (b"HGCK", 1, 0)
    assert (first[7:11], first[12:15]) == ((40, 0, 1000, 1039), (40, 0, 2))
    assert second[7:9] == (1, 40)
    assert meta == {"producers": {"pos-1": 39}, "properties": {"r": "eu", "v": "1"}}
    assert other == {}


def test_the_columns_of_a_chunk(files):
    _, _, columns, _, body = next(chunks(files[0]))
    assert list(columns) == [
        "timestamp", "topic", "filter_value", "priority", "payload", "h.s.r", "h.s.v", "h.i.n", "h.f.w",
    ]  # fmt: skip
    assert struct.unpack("<40q", buffers(columns["timestamp"], body)[1]) == tuple(range(1000, 1040))
    assert list(buffers(columns["priority"], body)[1]) == [i % 3 for i in range(40)]
    assert struct.unpack("<40d", buffers(columns["h.f.w"], body)[1]) == tuple(
        i / 2 for i in range(40)
    )
    _, offsets, data, _ = buffers(columns["payload"], body)
    ends = struct.unpack("<41i", offsets)
    assert [data[ends[i] : ends[i + 1]] for i in range(40)] == [
        b"payload %d" % i for i in range(40)
    ]
    kind, width, _, nulls, words, *_ = columns["h.s.r"]
    assert (kind, width, nulls, words) == (7, 1, 0, 1)
    validity, codes, offsets, data = buffers(columns["h.s.r"], body)
    assert (validity, codes, struct.unpack("<2i", offsets), data) == (b"", bytes(40), (0, 2), b"eu")


def test_the_header_of_the_index(files):
    log, index = files
    magic, version, meta_length, width, bloom, hashes, log_crc, first, _, crc = struct.unpack_from(
        "<8sIIIIIIqII", index
    )
    assert (magic, version, bloom, hashes, first) == (b"HEADGIDX", 1, 64, 7, 0)
    assert width == 72 + 64 + 8
    assert log_crc == struct.unpack_from("<I", log, 36)[0]
    meta = index[48 : 48 + meta_length]
    assert zlib.crc32(index[:44] + meta) == crc
    assert json.loads(meta) == {
        "indexed": ["r", "n"],
        "restrict_same_values": {"r": ["us", "eu"], "v": ["1"]},
    }
    settled, inverse = struct.unpack_from("<QQ", index, 48 + meta_length)
    assert settled == len(log)
    assert settled ^ inverse == WORD - 1


def test_the_entries_of_the_index(files):
    log, index = files
    for entry, (position, fields, *_) in zip(entries(index), chunks(log), strict=True):
        known = struct.unpack_from("<qqqIIqqBBHIQQ", entry)
        assert known[:3] == (fields[8], position, fields[4] + fields[11])
        assert known[3:7] == (fields[7], fields[12], fields[9], fields[10])
        assert known[7:11] == (fields[13], fields[14], fields[2], fields[16])
        assert known[11] == 0b111
    tuples = [struct.unpack_from("<Q", entry, 64)[0] for entry in entries(index)]
    assert tuples == [2 + 3 * 1, 0]


def test_the_checksum_of_an_entry(files):
    for entry in entries(files[1]):
        *words, checksum = struct.unpack(f"<{len(entry) // 8}Q", entry)
        total, state = 0x9E3779B97F4A7C15, 0x853C49E6748FEA9B
        for word in words:
            state = (state * 6364136223846793005 + 1442695040888963407) % WORD
            total += word * (state | 1)
        assert total % WORD == checksum


# ---- the Bloom filter --------------------------------------------------------------------------------


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % WORD
    return x ^ (x >> 31)


def hashes(scope, name, value):
    def keys(purpose):
        return struct.unpack(
            "<QQ", blake2b(f"{purpose}.{scope}.{name}".encode(), digest_size=16).digest()
        )

    if isinstance(value, str):
        content, found = value.encode(), []
        for seed, base in zip(keys("s"), keys("p"), strict=True):
            total = sum((byte + 1) * pow(base | 1, j, WORD) for j, byte in enumerate(content[:256]))
            found.append(mix((seed + len(content) + total) % WORD))
        return found
    bits = struct.unpack("<Q", struct.pack("<d", float(value) + 0.0))[0]
    return [mix(bits ^ key) for key in keys("b" if isinstance(value, bool) else "n")]


def holds(bloom, count, first_offset, scope, name, value):
    h1, h2 = hashes(scope, name, value)
    for i in range(count):
        state = mix((h1 + i * h2 + mix(first_offset)) % WORD)
        bit = (state >> 32) * len(bloom) * 8 >> 32
        if not bloom[bit // 8] >> bit % 8 & 1:
            return False
    return True


def test_the_bloom_filter_is_built_as_format_md_says(files):
    first, second = (entry[72:-8] for entry in entries(files[1]))
    assert holds(first, 7, 0, "sys", "filter_value", "EU")
    assert holds(first, 7, 0, "header", "r", "eu")
    assert all(holds(first, 7, 0, "header", "n", i) for i in range(40))
    assert holds(second, 7, 40, "header", "n", True)
    assert sum(holds(first, 7, 0, "header", "n", i) for i in range(1000, 2000)) < 100
    assert not holds(second, 7, 40, "header", "n", 1)

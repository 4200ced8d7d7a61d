"""Arrow arrays survive the way through bare buffers, sliced, null and all."""

from random import Random

import pyarrow as pa
import pytest

from headgate.streams.segments.hot_framing import StoredColumn, frame, rebuild

KINDS = {
    "int": ([None, 1, -5, 2**62], pa.int64()),
    "byte": ([3, 200], pa.uint8()),
    "float": ([None, 0.5, -0.0], pa.float64()),
    "bool": ([True, False], pa.bool_()),
    "bool with nulls": ([None, True, False], pa.bool_()),
    "text": (["", "a", "é" * 5], pa.string()),
    "text with nulls": ([None, "", "a"], pa.string()),
    "bytes": ([None, b"", b"xx"], pa.binary()),
}


def through(array):
    framed = frame(array)
    stored = tuple(pa.py_buffer(bytes(memoryview(buffer))) for buffer in framed.buffers)
    found = rebuild(StoredColumn(*framed[:4], stored), len(array))
    found.validate(full=True)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_their_slices_are_rebuilt(kind):
    values, type_ = KINDS[kind]
    rng = Random(kind)
    for length in (*range(1, 20), 64, 65):
        array = pa.array([rng.choice(values) for _ in range(length)], type_)
        start = rng.randrange(length)
        part = array.slice(start, rng.randint(1, length - start))
        assert through(array).to_pylist() == array.to_pylist()
        assert through(part).to_pylist() == part.to_pylist()


def test_dictionaries_are_rebuilt_with_the_narrowest_codes():
    for distinct, code_type in ((100, pa.int8()), (1000, pa.int16()), (40_000, pa.int32())):
        words = [f"w{i}" for i in range(distinct)]
        array = pa.DictionaryArray.from_arrays(
            pa.array(range(distinct), pa.int32()), pa.array(words)
        )
        found = through(array)
        assert found.type.index_type == code_type
        assert found.to_pylist() == words


def test_a_slice_of_a_dictionary_with_nulls_is_rebuilt():
    array = pa.array(["a", None, "b", "a", None, "c"]).dictionary_encode()
    for start in range(6):
        part = array.slice(start)
        assert through(part).to_pylist() == part.to_pylist()


def test_only_the_used_values_of_a_large_dictionary_are_stored():
    words = pa.array([f"w{i}" for i in range(500)])
    array = pa.DictionaryArray.from_arrays(pa.array([499, None, 7], pa.int32()), words)
    assert frame(array).dictionary <= 3
    assert through(array).to_pylist() == ["w499", None, "w7"]


def test_the_bytes_behind_a_null_are_not_stored():
    codes = pa.array([1, 77, 0], pa.int32())
    hidden = pa.Array.from_buffers(pa.int32(), 3, [pa.py_buffer(b"\x05"), codes.buffers()[1]], 1)
    array = pa.DictionaryArray.from_arrays(hidden, pa.array(["a", "b"]), safe=False)
    assert bytes(frame(array).buffers[1]) == b"\x01\x00\x00"

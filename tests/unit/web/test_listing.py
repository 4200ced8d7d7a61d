"""Long lists are made in slices: what else runs in the event loop has its turn in between."""

import asyncio

from headgate.web.api.listing import in_slices
from headgate.web.endpoints import LONG, encode_json, encode_long


async def count_turns(work):
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    result = await work
    task.cancel()
    return result, turns


def test_rows_are_made_in_slices():
    rows, turns = asyncio.run(count_turns(in_slices(range(2_000))))
    assert rows == list(range(2_000))
    assert turns >= 10


def test_a_long_list_is_encoded_in_slices():
    rows = [{"n": number} for number in range(4 * LONG + 1)]
    data, turns = asyncio.run(count_turns(encode_long(rows)))
    assert data == encode_json(rows)
    assert turns >= 4

"""Publishing from tasks: a message is taken in when publish is called, not when its task begins to run."""

import asyncio

import pytest

from headgate import aio
from headgate.errors import InvalidMessage
from headgate.message import Message


def test_headers_can_be_used_again_as_soon_as_publish_was_called():
    async def published():
        async with await aio.connect("memory://") as db:
            queue, wanted = await db.queue("q"), await db.subscription("s", "n >= 0")
            headers, tasks = {}, []
            for i in range(3):
                headers["n"] = i
                tasks.append(asyncio.create_task(queue.publish(b"", headers=headers)))
                batch = [Message(b"", headers=headers)]
                tasks.append(asyncio.create_task(queue.publish_many(batch)))
                batch.clear()
                tasks.append(asyncio.create_task(db.publish(b"", headers=headers)))
            headers["n"] = 9
            await asyncio.gather(*tasks)
            return [
                sorted(d.message.headers["n"] for d in await each.claim(20))
                for each in (queue, wanted)
            ]

    in_queue, in_subscription = asyncio.run(published())
    assert in_queue == [0, 0, 1, 1, 2, 2]
    assert in_subscription == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_an_invalid_message_is_refused_by_the_call_itself():
    async def refused():
        async with await aio.connect("memory://") as db:
            queue = await db.queue("q")
            with pytest.raises(InvalidMessage):
                queue.publish(b"", headers={"n": 2**70})

    asyncio.run(refused())

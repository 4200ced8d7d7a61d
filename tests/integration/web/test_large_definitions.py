"""A large document of definitions is imported while others are served."""

from __future__ import annotations

import asyncio

import httpx

from headgate.server import Server, ServerOptions

QUEUES = 3_000


def test_other_work_goes_on_while_many_queues_are_declared() -> None:
    async def go() -> int:
        server = Server(ServerOptions(data=None, amqp_port=0, http_port=0))
        await server.start()
        url, auth = f"http://127.0.0.1:{server.http_port}", ("guest", "guest")
        queues = server.broker.vhosts["/"].queues
        partial = 0
        try:
            async with httpx.AsyncClient(base_url=url, auth=auth, timeout=60) as client:
                document = {"queues": [{"name": f"queue.{n}"} for n in range(QUEUES)]}
                asked = asyncio.create_task(client.post("/api/definitions", json=document))
                while not asked.done():
                    await asyncio.sleep(0)
                    partial += 0 < len(queues) < QUEUES
                assert (await asked).status_code == 204
                assert len(queues) == QUEUES
                bad = {"queues": [{"name": "one more"}, {"name": "q", "vhost": "nowhere"}]}
                refused = await client.post("/api/definitions", json=bad)
                assert refused.status_code == 400
                assert "queues, entry 2 (q)" in refused.json()["reason"]
                assert len(queues) == QUEUES
        finally:
            await server.stop()
        return partial

    assert asyncio.run(go()) > 0

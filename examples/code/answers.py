"""The third example's step: a question about each airport, to a service that takes a while (examples/answer_service.py)."""

from __future__ import annotations

from typing import Any

import aiohttp

from checkpointed_writes import row_key


class Ask:
    """A row step that waits. `setup` runs once per process, on the event loop on which all calls run."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def setup(self) -> None:
        # Refusals (429) and failures (5xx) are raised, and then tried again as the manifest says.
        self.session = aiohttp.ClientSession(raise_for_status=True)

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        question = f"What is worth a visit near {row['name']}?"
        async with self.session.post(self.url, json={"question": question}, headers={"Idempotency-Key": row_key()}) as response:
            answered = await response.json()
        return {"airport": row["faa"], "question": question, "answer": answered["answer"], "tokens": answered["tokens"]}

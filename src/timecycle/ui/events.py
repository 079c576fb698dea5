"""Events that the server tells every open page at once, as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

_KEEP_ALIVE_SECONDS = 15
_MAX_WAITING = 200  # a page that does not read them any more is not told more


class Events:
    """Subscriptions of open pages."""

    def __init__(self) -> None:
        self._pages: set[asyncio.Queue[str | None]] = set()

    def tell(self, kind: str, **content: Any) -> None:
        """Tell every page something."""
        message = f"data: {json.dumps({'kind': kind, **content})}\n\n"
        for page in self._pages:
            if page.qsize() < _MAX_WAITING:
                page.put_nowait(message)

    def close(self) -> None:
        """End every stream: a server waits for its answers to end before it stops."""
        for page in self._pages:
            page.put_nowait(None)

    async def stream(self) -> AsyncIterator[str]:
        """Yield what one page is told, from now on."""
        page: asyncio.Queue[str | None] = asyncio.Queue()
        self._pages.add(page)
        try:
            yield ": connected\n\n"
            while True:
                try:
                    message = await asyncio.wait_for(page.get(), _KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    message = ": still here\n\n"
                if message is None:
                    return
                yield message
        finally:
            self._pages.discard(page)

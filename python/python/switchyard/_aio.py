"""A namespace for coroutines: a queue whose file descriptor the event loop polls.

Requests made in one iteration of the loop are sent together. If the queue is full, requests wait in
order.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._native import Namespace, Switchboard

if TYPE_CHECKING:
    from typing_extensions import Buffer


class AsyncNamespace:
    """A namespace for coroutines of the event loop and thread in which it was created.

    >>> async with AsyncNamespace(disk) as aio:
    ...     await aio.write(0, b"\\x07" * 4096)
    ...     async with asyncio.timeout(0.1):
    ...         data = await aio.read(0, 4096)

    Cancelling a coroutine cancels its request. A cancelled write may have taken effect; later
    writes to its blocks wait until the outcome is known.
    """

    def __init__(
        self,
        namespace: Namespace,
        depth: int = 128,
        *,
        request_class: str | None = None,
        switchboard: Switchboard | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue = namespace.queue(depth, request_class=request_class, switchboard=switchboard)
        self._futures: dict[int, asyncio.Future[bytes | None]] = {}
        self._waiting: deque[tuple[asyncio.Future[bytes | None], Callable[[int], None]]] = deque()
        self._next = 0
        self._kicks = False
        self._closed = False
        self._descriptor = self._queue.fileno()
        self._loop.add_reader(self._descriptor, self._ready)

    async def read(self, offset: int, length: int) -> bytes:
        """Reads ``length`` bytes at ``offset``, at most ``max_request_bytes``."""
        queue = self._queue
        data = await self._request(lambda tag: queue.submit_read(tag, offset, length))
        assert data is not None
        return data

    async def write(self, offset: int, data: Buffer, *, durable: bool = False) -> None:
        """Writes ``data`` at ``offset``; with ``durable`` returns when it is on stable storage."""
        queue = self._queue
        content = data
        future = self._request(
            lambda tag: queue.submit_write(tag, offset, content, durable=durable)
        )
        # The program may change it while the write waits for a place in the queue.
        if self._waiting and self._waiting[-1][0] is future and not isinstance(data, bytes):
            content = bytes(memoryview(data))
        await future

    async def flush(self) -> None:
        """Flushes all earlier writes to stable storage."""
        await self._request(self._queue.submit_flush)

    async def discard(self, offset: int, length: int) -> None:
        """Discards (deallocates) ``length`` bytes at ``offset``."""
        queue = self._queue
        await self._request(lambda tag: queue.submit_discard(tag, offset, length))

    async def write_zeroes(self, offset: int, length: int) -> None:
        """Makes ``length`` bytes at ``offset`` read as zeroes."""
        queue = self._queue
        await self._request(lambda tag: queue.submit_write_zeroes(tag, offset, length))

    def close(self) -> None:
        """Closes the queue. Outstanding requests fail, and may or may not take effect."""
        self._end(OSError(errno.ECANCELED, "the namespace was closed"))

    def _end(self, error: Exception) -> None:
        """Closes the queue; outstanding requests fail with the error."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._descriptor)
        waiting = [future for future, _ in self._waiting]
        for future in [*self._futures.values(), *waiting]:
            if not future.done():
                future.set_exception(error)
        self._futures.clear()
        self._waiting.clear()
        self._queue.close()

    async def __aenter__(self) -> AsyncNamespace:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()

    def _request(self, submit: Callable[[int], None]) -> asyncio.Future[bytes | None]:
        if self._closed:
            raise OSError(errno.EBADF, "the namespace is closed; open it again")
        future: asyncio.Future[bytes | None] = self._loop.create_future()
        if self._waiting or not self._submit(future, submit):
            self._waiting.append((future, submit))
        return future

    def _submit(
        self, future: asyncio.Future[bytes | None], submit: Callable[[int], None]
    ) -> bool:
        """Submits a request; returns False if the queue is full."""
        tag = self._next
        try:
            submit(tag)
        except BlockingIOError:
            return False
        except Exception as error:
            future.set_exception(error)
            return True
        self._next += 1
        self._futures[tag] = future
        future.add_done_callback(lambda done: self._cancel(tag) if done.cancelled() else None)
        if not self._kicks:
            self._kicks = True
            self._loop.call_soon(self._kick)
        return True

    def _cancel(self, tag: int) -> None:
        if not self._closed and tag in self._futures:
            self._queue.cancel(tag)

    def _kick(self) -> None:
        self._kicks = False
        if not self._closed:
            self._queue.kick()

    def _ready(self) -> None:
        try:
            finished = self._queue.reap_for_coroutines()
        except OSError as error:
            # The thread's io_uring failed: no request will complete.
            self._end(error)
            return
        for tag, error, data in finished:
            future = self._futures.pop(tag)
            # The coroutine was cancelled.
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(data)
        while self._waiting:
            future, submit = self._waiting[0]
            if not future.done() and not self._submit(future, submit):
                break
            self._waiting.popleft()

"""Limits and cancellation, against a target that stands still for a while."""

import asyncio
import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from conftest import stopped

import switchyard

SHORT = timedelta(milliseconds=50)


def test_calls_have_limits(serve, disk):
    disk.write(0, bytes([1]) * 4096)
    bounded = disk.with_timeout(SHORT)
    with stopped(serve):
        with pytest.raises(TimeoutError):
            bounded.read(0, 4096)
        with pytest.raises(TimeoutError):
            disk.with_timeout(SHORT.total_seconds()).write(0, bytes([2]) * 4096)
    disk.write(0, bytes([3]) * 4096)
    assert disk.read(0, 4096) == bytes([3]) * 4096
    assert bounded.with_timeout(None).read(0, 4096) == bytes([3]) * 4096


def test_times_are_seconds_or_timedeltas(serve, disk):
    for limit in (30, 30.0, timedelta(seconds=30)):
        times = {"connect_timeout": limit, "command_timeout": limit, "loss_timeout": limit}
        with switchyard.connect(serve.address, **times) as target, target.namespace() as other:
            assert other.with_timeout(limit).read(0, 4096) == bytes(4096)
        with disk.queue(8) as queue:
            queue.set_timeout(limit)
            queue.submit_read(1, 0, 4096)
            assert queue.reap(1, limit) == [(1, 0, bytes(4096))]
    for limit in (-1, -0.5, float("nan"), float("inf"), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="0 or more seconds"):
            disk.with_timeout(limit)
        with pytest.raises(ValueError, match="0 or more seconds"):
            switchyard.connect(serve.address, loss_timeout=limit)
    for limit in ("1", []):
        with pytest.raises(TypeError, match="a timedelta, or None"):
            disk.with_timeout(limit)


def test_calls_are_cancelled_by_another_thread(serve, disk):
    with pytest.raises(OSError) as refused:
        disk.cancel()
    assert refused.value.errno == errno.EINVAL
    theirs = disk.cancellable()
    assert theirs.read(0, 4096) == bytes(4096)
    with stopped(serve), ThreadPoolExecutor() as pool:
        calls = [pool.submit(theirs.read, 0, 4096) for _ in range(2)]
        time.sleep(SHORT.total_seconds())
        theirs.cancel()
        for call in calls:
            assert call.exception().errno == errno.ECANCELED
    with pytest.raises(OSError) as late:
        theirs.with_timeout(SHORT).flush()
    assert late.value.errno == errno.ECANCELED
    assert disk.read(0, 4096) == bytes(4096)


def test_requests_of_a_queue_have_limits_and_are_cancelled(serve, disk):
    with disk.queue(8) as queue:
        queue.submit_read(1, 0, 4096)
        assert queue.reap(1) == [(1, 0, bytes(4096))]
        with stopped(serve):
            queue.set_timeout(SHORT)
            queue.submit_read(2, 0, 4096)
            assert queue.reap(1) == [(2, errno.ETIMEDOUT, None)]
            with pytest.raises(TimeoutError):
                queue.read_many([0, 4096], 4096)
            queue.set_timeout(None)
            queue.submit_write(3, 0, bytes([1]) * 4096)
            queue.submit_read(4, 0, 4096)
            assert queue.reap(0) == []
            assert queue.cancel(3) and queue.cancel(4)
            assert not queue.cancel(5)
            done = queue.reap(2)
            assert sorted(done) == [(3, errno.ECANCELED, None), (4, errno.ECANCELED, None)]
        queue.write_many([0], bytes([2]) * 4096)
        assert queue.read_many([0], 4096) == [bytes([2]) * 4096]


def test_coroutines_that_are_cancelled_give_their_requests_up(serve, disk):
    async def main() -> None:
        async with switchyard.AsyncNamespace(disk) as aio:
            await aio.write(0, bytes([1]) * 4096)
            with stopped(serve):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(SHORT.total_seconds()):
                        await aio.write(0, bytes([2]) * 4096)
                read = asyncio.ensure_future(aio.read(0, 4096))
                await asyncio.sleep(0)
                read.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await read
            await aio.write(0, bytes([3]) * 4096)
            assert await aio.read(0, 4096) == bytes([3]) * 4096

    asyncio.run(main())


class Interrupted(Exception):
    """Raised by the handler of a signal."""


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """A signal comes soon, of which the handler raises."""

    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    began = time.monotonic()
    try:
        with pytest.raises(Interrupted):
            yield
        assert time.monotonic() - began < 10
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_waits_of_a_queue_are_interrupted(serve, disk):
    disk.write(0, bytes([1]) * 4096)
    with disk.queue(8) as queue:
        with stopped(serve):
            queue.submit_read(1, 0, 4096)
            with interrupted():
                queue.reap(1)
            with interrupted():
                queue.reap(1, timedelta(seconds=60))
            with interrupted():
                queue.read_many([4096] * 20, 4096)
        assert queue.reap(1) == [(1, 0, bytes([1]) * 4096)]
        # Nothing of the batch that was given up is taken for one of this.
        assert queue.read_many([0] * 20, 4096) == [bytes([1]) * 4096] * 20
        assert queue.outstanding == 0


def test_a_batch_within_a_batch_is_refused(serve, disk):
    """Each took completions of the other for its own: data went to the wrong one, or was left out."""
    blocks = [bytes([index]) * 4096 for index in range(20)]
    offsets = [index * 4096 for index in range(20)]
    raised = []

    def handler(*_: object) -> None:
        os.kill(serve.process.pid, signal.SIGCONT)
        try:
            queue.read_many([19 * 4096] * 4, 4096)
        except RuntimeError as error:
            raised.append(str(error))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with disk.queue(8) as queue:
            queue.write_many(offsets, b"".join(blocks))
            with stopped(serve):
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                assert queue.read_many(offsets, 4096) == blocks
            assert len(raised) == 1 and "a batch of this queue is in progress" in raised[0]
            assert queue.read_many(offsets, 4096) == blocks
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_calls_are_interrupted(serve, disk):
    with stopped(serve), interrupted():
        disk.read(0, 4096)
    disk.write(0, bytes([1]) * 4096)
    assert disk.read(0, 4096) == bytes([1]) * 4096

"""Queues through a switchboard: threads of both classes share its lanes."""

import asyncio
import errno
import os
import threading

import pytest

import switchyard

BLOCK = 4096


def pattern(number: int, length: int = BLOCK) -> bytes:
    return bytes([number % 251]) * length


def test_threads_of_both_classes_read_what_they_wrote(disk):
    core = min(os.sched_getaffinity(0))
    failures = []

    def work(number: int, board: switchyard.Switchboard, request_class: str) -> None:
        try:
            length = BLOCK if request_class == "latency" else 16 * BLOCK
            with disk.queue(8, request_class=request_class, switchboard=board) as queue:
                assert queue.depth == 8
                offsets = [number * (1 << 20) + i * length for i in range(16)]
                for turn in range(20):
                    data = b"".join(pattern(number + turn + i, length) for i in range(16))
                    queue.write_many(offsets, data, durable=turn == 0)
                    room = bytearray(16 * length)
                    queue.read_many_into(offsets, length, room)
                    assert room == data
                    queue.write_many(offsets, room)
                    assert b"".join(queue.read_many(offsets, length)) == data
        except BaseException as failure:
            failures.append(failure)

    with switchyard.Switchboard([core]) as board:
        classes = ["latency", "throughput", "throughput"]
        threads = [
            threading.Thread(target=work, args=(number, board, request_class))
            for number, request_class in enumerate(classes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_single_requests_and_coroutines(disk):
    with switchyard.Switchboard() as board:
        queue = disk.queue(4, switchboard=board)

        async def main() -> None:
            async with switchyard.AsyncNamespace(disk, 8, switchboard=board) as aio:
                await asyncio.gather(*(aio.write(i * BLOCK, pattern(i)) for i in range(20)))
                assert await aio.read(7 * BLOCK, BLOCK) == pattern(7)

        asyncio.run(main())
    # The queue keeps what it needs.
    with queue:
        queue.submit_write(1, 0, bytearray(pattern(9)))
        assert queue.reap(1) == [(1, 0, None)]
        queue.submit_read(2, 0, BLOCK)
        assert queue.reap(1) == [(2, 0, pattern(9))]
        queue.submit_flush(3)
        assert queue.reap(1) == [(3, 0, None)]


def test_what_cannot_be_is_refused(disk):
    for cores in ([1023], [], [0, 0]):
        with pytest.raises(OSError) as refused:
            switchyard.Switchboard(cores)
        assert refused.value.errno == errno.EINVAL
    board = switchyard.Switchboard()
    with pytest.raises(ValueError, match="connections"):
        disk.queue(4, connections=2, switchboard=board)
    with disk.queue(4, switchboard=board) as queue, pytest.raises(OSError) as refused:
        queue.submit_read(1, 0, 1 << 20)
    assert refused.value.errno == errno.EINVAL
    board.close()
    with pytest.raises(OSError) as refused:
        disk.queue(4, switchboard=board)
    assert refused.value.errno == errno.EBADF

"""Queues: batches, single requests, and the thread that they belong to."""

import errno
import gc
import random
import select
import threading
from datetime import timedelta

import pytest


def blocks(count: int) -> bytes:
    return b"".join(bytes([i % 251]) * 4096 for i in range(count))


def test_batches_of_any_length(disk):
    with disk.queue(32) as queue:
        offsets = [i * 4096 for i in range(500)]
        random.Random(1).shuffle(offsets)
        data = blocks(500)
        queue.write_many(offsets, data)
        queue.write_many(offsets[:10], memoryview(data)[: 10 * 4096], durable=True)
        assert b"".join(queue.read_many(offsets, 4096)) == data
        room = bytearray(len(data))
        queue.read_many_into(offsets, 4096, room)
        assert room == data
        assert queue.read_many([], 4096) == []
        queue.write_many([], b"")
        assert queue.outstanding == 0


def test_queues_may_be_collected_while_another_one_works(disk):
    """Each link is garbage as soon as the one before is collected, which may be within a call."""

    class Link:
        def __init__(self):
            self.itself = self
            self.queue = disk.queue(1)

        def __del__(self):
            if links:
                links.pop()

    links = [Link() for _ in range(16)]
    data = bytearray(blocks(40))
    offsets = [i * 4096 for i in range(40)]
    room = bytearray(len(data))
    threshold = gc.get_threshold()
    with disk.queue(8) as queue:
        gc.set_threshold(1, 1, 1)
        try:
            links.pop()
            queue.write_many(offsets, data)
            queue.read_many_into(offsets, 4096, room)
        finally:
            gc.set_threshold(*threshold)
        assert room == data
        while links:
            links.pop()
            gc.collect()
        assert b"".join(queue.read_many(offsets, 4096)) == data


def test_data_of_any_object_is_written(disk):
    data = bytearray(blocks(20))
    with disk.queue(4) as queue:
        offsets = [i * 4096 for i in range(20)]
        # One in one piece, and one of every second byte.
        queue.write_many(offsets, data)
        queue.write_many(offsets[10:], memoryview(data)[::2], durable=True)
        expected = bytes(data[: 10 * 4096]) + bytes(data[::2])
        assert b"".join(queue.read_many(offsets, 4096)) == expected
        queue.submit_write(1, 0, data[4096:8192], durable=True)
        queue.submit_write(2, 4096, memoryview(data)[:8192:2])
        assert sorted(queue.reap(2)) == [(1, 0, None), (2, 0, None)]
        assert queue.read_many([0, 4096], 4096) == [data[4096:8192], data[:8192:2]]
        with pytest.raises(OSError) as error:
            queue.submit_write(3, 0, bytearray(4095))
        assert error.value.errno == errno.EINVAL
        with pytest.raises(BufferError):
            queue.read_many_into([0], 2048, memoryview(data)[:4096:2])
        with pytest.raises(BufferError):
            queue.read_many_into([0], 4096, bytes(4096))


def peak() -> int:
    """The most memory in bytes that this process had since the last call."""
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return int(lines["VmHWM"].split()[0]) * 1024


def test_a_batch_takes_no_memory_of_the_size_of_its_buffer(disk):
    memory = bytearray(b"\x01" * (64 << 20))
    offsets = [0] * 256
    with disk.queue(4) as queue:
        length = len(memory) // len(offsets)
        # It has its own buffers by now.
        queue.write_many(offsets[:8], memory[: 8 * length])
        peak()
        before = peak()
        queue.write_many(offsets, memory)
        queue.read_many_into(offsets, length, memory)
        assert peak() - before < 32 << 20


def test_a_batch_that_fails_leaves_the_queue_as_it_was(disk):
    with disk.queue(8) as queue:
        with pytest.raises(OSError) as error:
            queue.read_many([0, 4096, 16 << 20], 4096)
        assert error.value.errno == errno.ERANGE
        with pytest.raises(ValueError):
            queue.write_many([0, 4096], bytes(4097))
        with pytest.raises(ValueError):
            queue.read_many_into([0], 4096, bytearray(4095))
        assert queue.outstanding == 0
        assert queue.read_many([0], 4096) == [bytes(4096)]


def test_a_batch_that_fails_keeps_no_buffers(disk):
    with disk.queue(128) as queue:
        with pytest.raises(OSError) as error:
            queue.read_many([0] * 127 + [16 << 20], 1 << 20)
        assert error.value.errno == errno.ERANGE
        for tag in range(8):
            queue.submit_read(tag, 0, disk.max_request_bytes)
        assert len(queue.reap(8)) == 8


def test_single_requests_beside_batches(disk):
    with disk.queue(4) as queue:
        for tag in range(queue.depth):
            queue.submit_write(tag, tag * 4096, blocks(10)[tag * 4096 :][:4096])
        with pytest.raises(BlockingIOError):
            queue.submit_flush(9)
        assert len(queue.read_many([8192] * 20, 4096)) == 20
        done = queue.reap(queue.depth)
        assert sorted(done) == [(tag, 0, None) for tag in range(4)]
        queue.submit_read(7, 4096, 4096)
        queue.kick()
        assert queue.reap(1, timedelta(seconds=30)) == [(7, 0, bytes([1]) * 4096)]
        queue.submit_flush(1)
        queue.submit_discard(2, 0, 4096)
        queue.submit_write_zeroes(3, 4096, 4096)
        assert len(queue.reap(3)) == 3
        assert queue.reap(5) == []
        with pytest.raises(ValueError):
            queue.submit_flush(1 << 62)


def test_the_descriptor_tells_of_completions(disk):
    with disk.queue(4) as queue:
        poll = select.poll()
        poll.register(queue.fileno(), select.POLLIN)
        for tag in range(200):
            queue.submit_read(tag, 0, 4096)
            queue.kick()
            done = []
            while not done:
                assert poll.poll(30_000)
                done = queue.reap(0)
            assert done[0][0] == tag


def test_the_descriptor_tells_of_completions_that_a_batch_found(disk):
    with disk.queue(4) as queue:
        poll = select.poll()
        poll.register(queue.fileno(), select.POLLIN)
        # More of them than the queue has buffers.
        tag = 0
        while tag < 100:
            try:
                queue.submit_read(tag, 0, 4096)
                tag += 1
            except BlockingIOError:
                queue.read_many([0], 4096)
                assert poll.poll(0)
                queue.kick()
                assert poll.poll(0)
        done = queue.reap(100)
        assert sorted(done) == [(tag, 0, bytes(4096)) for tag in range(100)]


def test_a_queue_that_is_forgotten_is_closed(disk):
    # The controller grants fewer queues than this.
    for _ in range(200):
        assert disk.queue(4).read_many([0], 4096) == [bytes(4096)]


def test_a_queue_belongs_to_its_thread(disk):
    queue = disk.queue(4)
    failures = []

    def work() -> None:
        for call in (lambda: queue.read_many([0], 4096), queue.close, queue.fileno):
            try:
                call()
            except PermissionError as error:
                failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(failures) == 3
    queue.close()

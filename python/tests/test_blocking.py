"""Blocking calls, and errors of every kind."""

import errno
import subprocess
import sys
import threading

import pytest
from conftest import Serve

import switchyard


def test_what_was_written_is_read(disk):
    assert disk.size == 16 << 20
    assert disk.block_bytes in (512, 4096)
    assert disk.max_request_bytes >= 4096
    assert not disk.read_only
    data = bytes(i % 251 for i in range(3 << 20))
    disk.write(4096, data)
    disk.flush()
    assert disk.read(4096, len(data)) == data
    back = bytearray(8192)
    disk.read_into(4096, back)
    assert back == data[:8192]
    disk.read_into(8192, memoryview(back)[4096:])
    assert back[4096:] == data[4096:8192]
    disk.write(0, bytearray(4096), durable=True)
    disk.write(0, memoryview(data)[:4096])
    assert disk.read(0, 4096) == data[:4096]
    disk.write_zeroes(0, 4096)
    disk.discard(4096, 4096)
    assert disk.read(0, 8192) == bytes(8192)
    assert disk.read(0, 0) == b""


@pytest.mark.parametrize(
    ("offset", "length", "code"),
    [(1, 4096, errno.EINVAL), (0, 1, errno.EINVAL), (16 << 20, 4096, errno.ERANGE)],
)
def test_ranges_that_cannot_be_are_refused(disk, offset, length, code):
    for call in (
        lambda: disk.read(offset, length),
        lambda: disk.write(offset, bytes(length)),
        lambda: disk.discard(offset, length),
    ):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == code
        assert error.value.strerror


def test_wrong_arguments_are_refused(disk):
    with pytest.raises(OSError) as error:
        disk.read(0, 1 << 62)
    assert error.value.errno == errno.ERANGE
    with pytest.raises(BufferError):
        disk.read_into(0, bytes(4096))
    with pytest.raises(TypeError):
        disk.write(0, "text")
    with pytest.raises(OverflowError):
        disk.read(-1, 4096)
    with pytest.raises(ValueError):
        disk.queue(8, request_class="urgent")


# Its memory has room for the large buffer, and not for a copy of it.
MEMORY_PROGRAM = """
import errno, mmap, os, resource, sys
import switchyard

LARGE = 64 << 30
with switchyard.connect(sys.argv[1]) as target, target.namespace() as disk, disk.queue(4) as queue:
    try:
        disk.read(disk.size - 4096, disk.size)
    except OSError as error:
        assert error.errno == errno.ERANGE, error
    file = os.memfd_create("large")
    os.ftruncate(file, LARGE)
    large = mmap.mmap(file, LARGE)
    with open("/proc/self/statm") as statm:
        most = int(statm.read().split()[0]) * mmap.PAGESIZE + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for call in (
        lambda: disk.read(0, LARGE),
        lambda: disk.read_into(0, large),
        lambda: disk.write(0, large),
    ):
        try:
            call()
        except MemoryError:
            continue
        sys.exit("there is memory")
    assert disk.read(0, 4096) == bytes(4096)
    # A batch takes no copy of the whole buffer.
    for call in (queue.write_many, lambda data, room: queue.read_many_into(data, 1 << 20, room)):
        try:
            call([1 << 50] * (LARGE >> 20), large)
        except OSError as error:
            assert error.errno == errno.ERANGE, error
            continue
        sys.exit("there are blocks")
"""


def test_memory_that_cannot_be_had_is_an_error():
    target = Serve("--listen", "127.0.0.1:0", "--null", "1P")
    program = [sys.executable, "-c", MEMORY_PROGRAM, target.address]
    try:
        subprocess.run(program, check=True)
    finally:
        target.kill()


def test_connections_that_fail_say_what_to_do(serve):
    with pytest.raises(ConnectionRefusedError, match="start the target"):
        switchyard.connect("127.0.0.1:1")
    with pytest.raises(PermissionError, match="NQN"):
        switchyard.connect(serve.address, "nqn.2026-11.io.switchyard:other")
    with pytest.raises(OSError) as error:
        switchyard.connect("nowhere")
    assert error.value.errno == errno.EINVAL
    options = {"host_nqn": "nqn.2026-11.io.switchyard:python", "request_class": "latency"}
    digests = {"header_digest": True, "data_digest": True, "loss_timeout": 10.0}
    with switchyard.connect(serve.address, **options, **digests) as target:
        assert target.namespaces() == [1]
        with pytest.raises(OSError) as error:
            target.namespace(9)
        assert error.value.errno == errno.ENXIO


def test_threads_call_by_a_path(serve):
    with pytest.raises(ValueError, match="sync"):
        switchyard.connect(serve.address, path="shortest")
    with switchyard.connect(serve.address, path="sync") as target, target.namespace() as disk:
        data = bytes(i % 241 for i in range(3 << 20))

        def use():
            disk.write(0, data)
            assert disk.read(0, len(data)) == data

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        use()


def test_what_was_closed_is_refused(serve):
    target = switchyard.connect(serve.address)
    disk = target.namespace()
    queue = disk.queue(4)
    target.close()
    target.close()
    assert disk.read(0, 4096) == bytes(4096)
    disk.close()
    assert queue.read_many([0], 4096) == [bytes(4096)]
    queue.close()
    for call in (target.namespace, lambda: disk.read(0, 4096), lambda: queue.read_many([0], 4096)):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EBADF


def test_threads_run_while_others_wait(disk):
    def work(number: int) -> None:
        for round in range(50):
            data = bytes([number * 50 + round]) * 4096
            disk.write(number * 4096, data)
            assert disk.read(number * 4096, 4096) == data

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = b"".join(bytes([number * 50 + 49]) * 4096 for number in range(4))
    assert disk.read(0, 4 * 4096) == expected

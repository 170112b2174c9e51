"""Coroutines on one event loop."""

import asyncio
import errno
import os
import tempfile

import pytest
from conftest import Serve, own_address

import switchyard


def test_coroutines_share_a_queue(disk):
    async def work(aio: switchyard.AsyncNamespace, number: int) -> None:
        for round in range(20):
            data = bytes([number ^ round]) * 4096
            await aio.write(number * 4096, data, durable=round == 0)
            assert await aio.read(number * 4096, 4096) == data

    async def main() -> None:
        # More coroutines than the queue has places.
        async with switchyard.AsyncNamespace(disk, depth=8) as aio:
            await asyncio.gather(*(work(aio, number) for number in range(100)))
            await aio.flush()
            await aio.write_zeroes(0, 4096)
            await aio.discard(4096, 4096)
            assert await aio.read(0, 8192) == bytes(8192)

    asyncio.run(main())


def test_a_write_that_waits_for_a_place_has_the_data_of_its_call(disk):
    async def main() -> None:
        async with switchyard.AsyncNamespace(disk, depth=1) as aio:
            data = bytearray(b"\x01" * 4096)
            writes = [asyncio.ensure_future(aio.write(at, data)) for at in (0, 4096)]
            # Both were asked for; the second one waits for the first.
            await asyncio.sleep(0)
            data[:] = b"\x02" * 4096
            await asyncio.gather(*writes)
            assert await aio.read(0, 8192) == b"\x01" * 8192

    asyncio.run(main())


def rings() -> set[int]:
    """The descriptors of this process that are io_urings."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if "io_uring" in os.readlink(f"/proc/self/fd/{name}"):
                found.add(int(name))
        except FileNotFoundError:
            # That of the directory itself.
            pass
    return found


def test_every_coroutine_hears_of_a_ring_that_breaks(disk):
    async def main() -> None:
        before = rings()
        aio = switchyard.AsyncNamespace(disk, depth=4)
        assert await aio.read(0, 4096) == bytes(4096)
        (ring,) = rings() - before
        nothing = os.open("/dev/null", os.O_RDWR)
        os.dup2(nothing, ring)
        os.close(nothing)
        # More of them than the queue has places.
        reads = [asyncio.ensure_future(aio.read(0, 4096)) for _ in range(8)]
        done, left = await asyncio.wait(reads, timeout=30)
        assert not left
        assert all(isinstance(read.exception(), OSError) for read in done)
        with pytest.raises(OSError) as error:
            await aio.flush()
        assert error.value.errno == errno.EBADF
        aio.close()

    asyncio.run(main())


def test_errors_and_cancellation_concern_their_own_request(disk):
    async def main() -> None:
        aio = switchyard.AsyncNamespace(disk)
        with pytest.raises(OSError) as error:
            await aio.read(1, 4096)
        assert error.value.errno == errno.EINVAL
        reads = [asyncio.ensure_future(aio.read(0, 4096)) for _ in range(50)]
        await asyncio.sleep(0)
        for read in reads[::2]:
            read.cancel()
        assert await asyncio.gather(*reads[1::2]) == [bytes(4096)] * 25
        left = asyncio.ensure_future(aio.read(0, 4096))
        await asyncio.sleep(0)
        aio.close()
        with pytest.raises(OSError) as error:
            await left
        assert error.value.errno == errno.ECANCELED
        with pytest.raises(OSError) as error:
            await aio.flush()
        assert error.value.errno == errno.EBADF

    asyncio.run(main())


def test_errors_have_the_text_of_those_of_blocking_calls(serve):
    async def main() -> None:
        with switchyard.connect(serve.address, loss_timeout=0.1) as target, target.namespace() as disk:
            async with switchyard.AsyncNamespace(disk) as aio:
                serve.kill()
                with pytest.raises(OSError) as error:
                    await aio.read(0, 4096)
                with pytest.raises(OSError) as blocking:
                    disk.read(0, 4096)
                assert error.value.args == blocking.value.args

    asyncio.run(main())


def test_a_target_that_is_killed_is_waited_for():
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(16 << 20)
        target = Serve("--listen", f"{own_address()}:0", "--file", file.name)

        async def main() -> None:
            nonlocal target
            with switchyard.connect(target.address) as connected, connected.namespace() as disk:
                async with switchyard.AsyncNamespace(disk) as aio:
                    for round in range(5):
                        data = bytes([round + 1]) * 4096
                        write = asyncio.gather(*(aio.write(i * 4096, data) for i in range(64)))
                        await asyncio.sleep(0)
                        target.kill()
                        target = Serve("--listen", target.address, "--file", file.name)
                        await write
                        reads = (aio.read(i * 4096, 4096) for i in range(64))
                        assert await asyncio.gather(*reads) == [data] * 64

        try:
            asyncio.run(main())
        finally:
            target.kill()

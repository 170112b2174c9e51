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


def test_a_board_begins_with_a_preset_and_what_differs():
    core = min(os.sched_getaffinity(0))
    with switchyard.Switchboard(
        [core],
        preset="linux",
        knobs={"doorbell": "immediate", "caravan": False, "direct_submitters": 2},
    ) as board:
        assert board.cores == [core]
        knobs = board.knobs
        assert knobs["lanes"] == "shared"
        assert knobs["doorbell"] == "immediate"
        assert knobs["prioritisation"] is False
        assert knobs["direct_submitters"] == 2
        assert "doorbell_delay_us" not in knobs
        with pytest.raises(TypeError):
            knobs["doorbell"] = "fixed"
        # Together, whatever their order.
        board.set_knobs({"doorbell_delay_us": 80, "doorbell": "fixed"})
        assert board.knobs["doorbell_delay_us"] == 80
        board.set_knobs(knobs)
        assert board.knobs == knobs
    for ask in (lambda: board.knobs, lambda: board.set_knobs({}), board.counters):
        with pytest.raises(OSError) as refused:
            ask()
        assert refused.value.errno == errno.EBADF


@pytest.mark.parametrize(
    ("knobs", "possible"),
    [
        ({"dorbell": "fixed"}, "use one of lanes, "),
        ({"doorbell": "loud"}, "immediate or fixed or adaptive"),
        ({"quantum_bytes": 1}, "4096 to "),
        ({"quantum_bytes": True}, "4096 to "),
        ({"doorbell_delay_us": 50}, "doorbell=fixed"),
    ],
)
def test_knobs_that_there_are_not_are_refused(knobs, possible):
    with pytest.raises(ValueError, match=possible):
        switchyard.Switchboard(knobs=knobs)
    with switchyard.Switchboard() as board:
        before = board.knobs
        with pytest.raises(ValueError, match=possible):
            board.set_knobs({"direct_submitters": 0, **knobs})
        assert board.knobs == before


def test_what_stays_and_what_is_no_preset_is_said():
    with pytest.raises(ValueError, match="use one of switchyard, linux"):
        switchyard.Switchboard(preset="windows")
    with pytest.raises(TypeError):
        switchyard.Switchboard(knobs={"quantum_bytes": 1.5})
    with switchyard.Switchboard() as board:
        with pytest.raises(ValueError, match="after the start of a switchboard"):
            board.set_knobs({"polling": "never"})
        with pytest.raises(ValueError, match="has no core 1023"):
            board.counters(1023)


def test_a_knob_changes_the_way_of_requests_and_counters_show_it(disk):
    core = min(os.sched_getaffinity(0))
    with switchyard.Switchboard([core]) as board:
        with disk.queue(4, request_class="latency", switchboard=board) as queue:
            # It sends for itself once its lane is open.
            asked = 0
            while board.counters()["direct_requests"] < 8:
                queue.read_many([0], BLOCK)
                asked += 1
            board.set_knobs({"direct_submitters": 0})
            before = board.counters(core)
            # Those of the first requests, which passed the core, may be 10 ms old.
            while before["direct_requests"] + before["latency_requests"] < asked:
                before = board.counters(core)
            for _ in range(8):
                queue.read_many([0], BLOCK)
            # They may be 10 ms old.
            while board.counters()["latency_requests"] < before["latency_requests"] + 8:
                pass
            after = board.counters(core)
            assert after["direct_requests"] == before["direct_requests"]
            assert after["latency_bytes"] == before["latency_bytes"] + 8 * BLOCK
            assert after["throughput_requests"] == 0


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

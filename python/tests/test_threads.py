"""Other threads run while one waits, also where nothing says that it does."""

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from conftest import Serve, stopped

import switchyard


def others_run_during(serve: Serve, wait: Callable[[], object], turns: int = 5) -> bool:
    """Makes a call that waits for the target, which stands still until another thread has had so
    many turns, of 10 ms and more. Returns False if the call ended before."""
    begun = threading.Event()
    ran = threading.Event()

    def work() -> None:
        begun.wait()
        for _ in range(turns):
            time.sleep(0.01)
        ran.set()
        os.kill(serve.process.pid, signal.SIGCONT)

    other = threading.Thread(target=work)
    other.start()
    with stopped(serve):
        begun.set()
        wait()
        in_time = ran.is_set()
        other.join()
    return in_time


def test_while_a_target_that_is_forgotten_is_left(serve):
    held = [switchyard.connect(serve.address)]
    assert others_run_during(serve, held.clear)


def test_while_a_namespace_that_is_forgotten_is_left(serve):
    with switchyard.connect(serve.address) as target:
        held = [target.namespace()]
    assert others_run_during(serve, held.clear)


def test_while_a_queue_that_is_forgotten_is_closed(serve):
    with switchyard.connect(serve.address) as target, target.namespace() as disk:
        held = [disk.queue(4)]
    assert others_run_during(serve, held.clear)


def others_run_while_the_last_call_ends(serve: Serve) -> bool | None:
    """Returns None if the namespace was not closed during the call, but before or after it, as
    happens where the machine keeps a thread waiting."""
    with switchyard.connect(serve.address) as target, target.namespace() as disk:
        bounded = disk.with_timeout(timedelta(seconds=1))
    closes = threading.Timer(0.3, bounded.close)
    was_closed_during = False

    def wait() -> None:
        nonlocal was_closed_during
        closes.start()
        try:
            bounded.read(0, 4096)
        except TimeoutError:
            was_closed_during = not closes.is_alive()
        except OSError:
            pass

    # The call ends, and its handle with it, long before the target goes on.
    in_time = others_run_during(serve, wait, turns=150)
    closes.join()
    return in_time if was_closed_during else None


def test_while_a_call_ends_that_was_the_last_of_its_namespace(serve):
    attempts = (others_run_while_the_last_call_ends(serve) for _ in range(20))
    assert next(done for done in attempts if done is not None)

"""A target in a process of its own, for each test that asks for one."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

import switchyard


class Serve:
    """``switchyard serve``, killed at the end."""

    def __init__(self, *arguments: str) -> None:
        program = os.environ["SWITCHYARD_BIN"]
        end = time.monotonic() + 120
        while True:
            self.process = subprocess.Popen(
                [program, "serve", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            if line.startswith("listening on "):
                break
            # The port of one that was killed may be in use for a moment yet.
            _, error = self.process.communicate()
            assert "Address already in use" in error and time.monotonic() < end, error
        self.address = line.split()[2]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def stopped(serve: Serve) -> Iterator[None]:
    """The target stands still."""
    process = serve.process.pid
    os.kill(process, signal.SIGSTOP)
    while True:
        with open(f"/proc/{process}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "T":
                break
        time.sleep(0.001)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def own_address() -> str:
    """A loopback address that no other process uses, so that none takes a port of a target that was
    killed: what connects comes from 127.0.0.1."""
    _, high, middle, low = os.getpid().to_bytes(4)
    return f"127.{1 + high % 128}.{middle}.{low}"


@pytest.fixture
def serve() -> Iterator[Serve]:
    target = Serve("--listen", "127.0.0.1:0", "--ram", "16M")
    yield target
    target.kill()


@pytest.fixture
def disk(serve: Serve) -> Iterator[switchyard.Namespace]:
    with switchyard.connect(serve.address) as target, target.namespace(1) as namespace:
        yield namespace

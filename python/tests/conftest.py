"""A target in a process of its own, for each test that asks for one."""

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

import switchyard


class Serve:
    """``switchyard serve``, killed at the end."""

    def __init__(self, *arguments: str) -> None:
        program = os.environ["SWITCHYARD_BIN"]
        end = time.monotonic() + 30
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
            # A host that tries to connect may have the port for a moment.
            _, error = self.process.communicate()
            assert "Address already in use" in error and time.monotonic() < end, error
        self.address = line.split()[2]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    target = Serve("--listen", "127.0.0.1:0", "--ram", "16M")
    yield target
    target.kill()


@pytest.fixture
def disk(serve: Serve) -> Iterator[switchyard.Namespace]:
    with switchyard.connect(serve.address) as target, target.namespace(1) as namespace:
        yield namespace

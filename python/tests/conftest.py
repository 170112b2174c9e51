"""A target in a process of its own, for each test that asks for one."""

import os
import subprocess
from collections.abc import Iterator

import pytest

import switchyard


class Serve:
    """``switchyard serve``, killed at the end."""

    def __init__(self, *arguments: str) -> None:
        program = os.environ["SWITCHYARD_BIN"]
        self.process = subprocess.Popen(
            [program, "serve", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.address = line.split()[2]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    target = Serve("--listen", "127.0.0.1:0", "--ram", "16M")
    yield target
    target.kill()


@pytest.fixture
def disk(serve: Serve) -> Iterator[switchyard.Namespace]:
    with switchyard.connect(serve.address) as target, target.namespace(1) as namespace:
        yield namespace

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Self

from typing_extensions import Buffer

__version__: str

def connect(
    address: str,
    nqn: str,
    *,
    host_nqn: str | None = None,
    request_class: str | None = None,
    header_digest: bool = False,
    data_digest: bool = False,
    connect_timeout: float | timedelta | None = None,
    command_timeout: float | timedelta | None = None,
    loss_timeout: float | timedelta | None = None,
    path: str | None = None,
) -> Target: ...

class Target:
    """A connected subsystem."""

    def namespace(self, nsid: int = 1) -> Namespace: ...
    def namespaces(self) -> list[int]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Switchboard:
    """Lanes that the queues of the process's threads share: requests of class "latency" go before
    those of "throughput" on each of its ``cores``, numbers of processors (``None``: all that the
    calling thread may run on). Each has a thread of the module's and a connection for each class and
    target. Its knobs begin as those of a ``preset`` ("switchyard", the default, or another stack to
    compare with, as "linux") with the differences in ``knobs``. Queues go on when it is closed.
    Raises OSError (EINVAL) for processors that the process may not use, and ValueError for a preset
    or knobs that there are not, which says those that there are."""

    def __init__(
        self,
        cores: Sequence[int] | None = None,
        *,
        preset: str | None = None,
        knobs: Mapping[str, bool | int | str] | None = None,
    ) -> None: ...
    @property
    def cores(self) -> list[int]: ...
    @property
    def knobs(self) -> Mapping[str, bool | int | str]:
        """All knobs that count, as they are now; ``switchyard switch knobs`` has their meanings.
        One that counts only with another one is there while that is. A copy, to read."""

    def set_knobs(self, knobs: Mapping[str, bool | int | str]) -> None:
        """Changes knobs together, while requests are under way. Raises ValueError for a name or a
        value that there is not, knobs that do not go together, and those that stay as they were when
        the switchboard was made (``lanes``, ``latency_threads``, ``polling``); nothing
        has changed then."""

    def counters(self, core: int | None = None) -> dict[str, int]:
        """Counters of one of its cores, or the sums of all, at most 10 ms old. Those of a class begin
        with its name, as ``latency_requests``. Raises ValueError for another core."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Namespace:
    """An open namespace, for blocking calls of any length from any thread."""

    @property
    def size(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def max_request_bytes(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    def read(self, offset: int, length: int) -> bytes: ...
    def read_into(self, offset: int, buffer: Buffer) -> None:
        """Reads into a writable buffer in one piece, by way of as much memory of the module's own,
        because other threads may use the buffer meanwhile. It is unchanged if the call fails."""

    def write(self, offset: int, data: Buffer, *, durable: bool = False) -> None:
        """Writes the data; that of other objects than ``bytes`` is copied before, so that other
        threads may change it meanwhile."""

    def flush(self) -> None: ...
    def discard(self, offset: int, length: int) -> None: ...
    def write_zeroes(self, offset: int, length: int) -> None: ...
    def with_timeout(self, timeout: float | timedelta | None) -> Namespace:
        """The same namespace, of which each call may take so long; then it raises TimeoutError."""

    def cancellable(self) -> Namespace:
        """The same namespace, of which ``cancel`` gives up the calls, from any thread."""

    def cancel(self) -> None:
        """Gives up the calls of an object that ``cancellable`` made, also those that begin later:
        they raise OSError with ECANCELED, unless they are answered first."""

    def queue(
        self,
        depth: int = 128,
        *,
        connections: int = 1,
        request_class: str | None = None,
        switchboard: Switchboard | None = None,
    ) -> Queue:
        """A queue of the calling thread, with connections of its own, or through a switchboard; a
        request of such a queue has at most 262,144 bytes. Raises OSError with EMFILE where the
        controller grants fewer I/O queues than the switchboard needs."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Queue:
    """Requests and completions of the thread that made it. A batch that a handler of a signal begins
    while another of the queue is waited for is refused: ``RuntimeError``."""

    @property
    def depth(self) -> int: ...
    @property
    def outstanding(self) -> int: ...
    def read_many(self, offsets: Sequence[int], length: int) -> list[bytes]: ...
    def read_many_into(self, offsets: Sequence[int], length: int, buffer: Buffer) -> None:
        """Reads into a writable buffer in one piece, one block after the other, with one copy from
        the memory that they were received into. Some are there if the batch fails."""

    def write_many(self, offsets: Sequence[int], data: Buffer, *, durable: bool = False) -> None:
        """Writes equal parts of the data at the offsets, each with one copy into the memory that it
        is sent from. Data that another thread changes meanwhile is written as it is at the time."""

    def submit_read(self, tag: int, offset: int, length: int) -> None: ...
    def submit_write(
        self, tag: int, offset: int, data: Buffer, *, durable: bool = False
    ) -> None: ...
    def submit_flush(self, tag: int) -> None: ...
    def submit_discard(self, tag: int, offset: int, length: int) -> None: ...
    def submit_write_zeroes(self, tag: int, offset: int, length: int) -> None: ...
    def set_timeout(self, timeout: float | timedelta | None) -> None:
        """Gives requests that are submitted from now on so long; then they end with ETIMEDOUT."""

    def cancel(self, tag: int) -> bool:
        """Gives up the single requests with this tag, which end with ECANCELED unless they are
        answered first. Returns False if there is none."""

    def kick(self) -> None: ...
    def reap(
        self, min: int = 0, timeout: float | timedelta | None = None
    ) -> list[tuple[int, int, bytes | None]]: ...
    def reap_for_coroutines(self) -> list[tuple[int, OSError | None, bytes | None]]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

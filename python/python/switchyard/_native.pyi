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
    """Threads and connections that queues of all threads share.

    Each of its ``cores`` (CPU numbers; ``None``: all CPUs that the calling thread may use) has a
    thread and one connection per class and target, and serves class "latency" before "throughput".
    ``preset`` sets the switch parameters ("switchyard", the default, or another stack for
    comparison, such as "linux"), and ``knobs`` the parameters that differ. Queues continue after
    ``close``. Raises OSError (EINVAL) for unavailable CPUs, and ValueError for an unknown preset or
    parameter."""

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
        """A copy of the current switch parameters that have an effect in the current mode;
        ``switchyard switch knobs`` describes them."""

    def set_knobs(self, knobs: Mapping[str, bool | int | str]) -> None:
        """Changes switch parameters atomically, without interrupting requests. Raises ValueError for
        an unknown name or value, contradicting parameters, and those that are fixed at the start
        (``lanes``, ``latency_threads``, ``polling``); then nothing has changed."""

    def counters(self, core: int | None = None) -> dict[str, int]:
        """Counters of one core, or the sums over all cores, at most 10 ms old. Names of counters of a
        class start with the class, such as ``latency_requests``. Raises ValueError for a core that
        is not part of the switchboard."""

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
        """Reads into a contiguous writable buffer, through an internal copy, because other threads
        may access the buffer during the call. The buffer is unchanged after an error."""

    def write(self, offset: int, data: Buffer, *, durable: bool = False) -> None:
        """Writes the data. Objects other than ``bytes`` are copied first, so that other threads may
        change them during the call."""

    def flush(self) -> None: ...
    def discard(self, offset: int, length: int) -> None: ...
    def write_zeroes(self, offset: int, length: int) -> None: ...
    def with_timeout(self, timeout: float | timedelta | None) -> Namespace:
        """The same namespace, whose calls raise TimeoutError after ``timeout``."""

    def cancellable(self) -> Namespace:
        """The same namespace, whose calls ``cancel`` can cancel from any thread."""

    def cancel(self) -> None:
        """Cancels current and later calls of an object of ``cancellable``: they raise OSError with
        ECANCELED, unless they complete first."""

    def queue(
        self,
        depth: int = 128,
        *,
        connections: int = 1,
        request_class: str | None = None,
        switchboard: Switchboard | None = None,
    ) -> Queue:
        """A queue of the calling thread, with its own connections, or with a switchboard (requests
        of at most 262,144 bytes). Raises OSError with EMFILE if the controller grants fewer I/O
        queues than the switchboard needs."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Queue:
    """A queue of requests of the thread that created it. A batch started by a signal handler while
    another batch of the queue is in progress raises ``RuntimeError``."""

    @property
    def depth(self) -> int: ...
    @property
    def outstanding(self) -> int: ...
    def read_many(self, offsets: Sequence[int], length: int) -> list[bytes]: ...
    def read_many_into(self, offsets: Sequence[int], length: int, buffer: Buffer) -> None:
        """Reads into consecutive parts of a contiguous writable buffer, with one copy. After an error
        some parts may be filled."""

    def write_many(self, offsets: Sequence[int], data: Buffer, *, durable: bool = False) -> None:
        """Writes equal parts of the data at the offsets, with one copy. If another thread changes the
        data during the call, either content may be written."""

    def submit_read(self, tag: int, offset: int, length: int) -> None: ...
    def submit_write(
        self, tag: int, offset: int, data: Buffer, *, durable: bool = False
    ) -> None: ...
    def submit_flush(self, tag: int) -> None: ...
    def submit_discard(self, tag: int, offset: int, length: int) -> None: ...
    def submit_write_zeroes(self, tag: int, offset: int, length: int) -> None: ...
    def set_timeout(self, timeout: float | timedelta | None) -> None:
        """Sets the time-out of later requests, which then end with ETIMEDOUT."""

    def cancel(self, tag: int) -> bool:
        """Cancels the requests with this tag, which end with ECANCELED unless they complete first.
        Returns False if there is none."""

    def kick(self) -> None: ...
    def reap(
        self, min: int = 0, timeout: float | timedelta | None = None
    ) -> list[tuple[int, int, bytes | None]]: ...
    def reap_for_coroutines(self) -> list[tuple[int, OSError | None, bytes | None]]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

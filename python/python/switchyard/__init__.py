"""NVMe/TCP block storage from Python.

>>> import switchyard
>>> with switchyard.connect("127.0.0.1:4420") as target, target.namespace(1) as disk:
...     disk.write(0, b"\\x07" * 4096)
...     disk.flush()
...     data = disk.read(0, 4096)

Offsets and lengths are in bytes, and multiples of ``disk.block_bytes``. Errors are ``OSError``, of
the subclass that Python has for the errno value, with a text that says what is wrong. Calls that
wait let other threads run. Targets, namespaces and switchboards may be used by any thread, a queue
by the thread that made it; none of them after ``os.fork()``.
"""

from __future__ import annotations

from datetime import timedelta

from . import _native
from ._aio import AsyncNamespace
from ._native import Namespace, Queue, Switchboard, Target, __version__

__all__ = [
    "AsyncNamespace",
    "DEFAULT_NQN",
    "Namespace",
    "Queue",
    "Switchboard",
    "Target",
    "connect",
]

DEFAULT_NQN = "nqn.2026-11.io.switchyard:default"


def connect(
    address: str,
    nqn: str = DEFAULT_NQN,
    *,
    host_nqn: str | None = None,
    request_class: str | None = None,
    header_digest: bool = False,
    data_digest: bool = False,
    connect_timeout: float | timedelta | None = None,
    command_timeout: float | timedelta | None = None,
    loss_timeout: float | timedelta | None = None,
    path: str | None = None,
) -> Target:
    """Connects to the subsystem ``nqn`` at ``address`` ("HOST:PORT").

    ``request_class`` is "latency" or "throughput". Times are seconds or a ``timedelta``; ``None``
    is the default. With a ``path``, as "sync" or "stm:handover_us=500", each thread that makes
    blocking calls has a connection of its own.
    """
    return _native.connect(
        address,
        nqn,
        host_nqn=host_nqn,
        request_class=request_class,
        header_digest=header_digest,
        data_digest=data_digest,
        connect_timeout=connect_timeout,
        command_timeout=command_timeout,
        loss_timeout=loss_timeout,
        path=path,
    )

"""NVMe/TCP block storage from Python.

>>> import switchyard
>>> with switchyard.connect("127.0.0.1:4420") as target, target.namespace(1) as disk:
...     disk.write(0, b"\\x07" * 4096)
...     disk.flush()
...     data = disk.read(0, 4096)

Offsets and lengths are in bytes, and multiples of ``disk.block_bytes``. Errors are ``OSError`` (or
its subclass for the errno value) with a message. Blocking calls release the GIL. Targets,
namespaces and switchboards are thread-safe; a queue may only be used by the thread that created it.
None of them may be used after ``os.fork()``.
"""

from __future__ import annotations

from datetime import timedelta
from os import PathLike

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
    tls_key_file: str | PathLike[str] | None = None,
    chap_secret_file: str | PathLike[str] | None = None,
    chap_controller_secret_file: str | PathLike[str] | None = None,
) -> Target:
    """Connects to the subsystem ``nqn`` at ``address`` ("HOST:PORT").

    ``request_class`` is "latency" or "throughput" (default). Times are seconds or a ``timedelta``;
    ``None`` is the default. ``path`` is the I/O path of blocking calls, such as "sync" or
    "stm:handover_us=500"; each calling thread then has its own connection. With
    ``tls_key_file``, the connections use TLS 1.3 with a key of this file, whose mode is 0600.
    ``chap_secret_file`` has the DH-HMAC-CHAP secret of this host, and
    ``chap_controller_secret_file`` that by which the target must prove itself; mode 0600 as well.
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
        tls_key_file=tls_key_file,
        chap_secret_file=chap_secret_file,
        chap_controller_secret_file=chap_controller_secret_file,
    )

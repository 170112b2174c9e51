//! The NVMe/TCP host: discovery, connections, recovery; a remote namespace is a device.

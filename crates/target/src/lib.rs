//! The NVMe/TCP target: subsystems, controllers, discovery, and the connections of a core.

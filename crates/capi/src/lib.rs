//! The C API of the host, `libswitchyard`: handles, blocking calls and completion queues over
//! [`host`]. `include/switchyard.h` is generated from it.
//!
//! A handle is an index into a table, stored in a pointer that is never dereferenced, so a closed
//! handle is detected. Targets, namespaces and switchboards are in tables of the process, queues in
//! a table of their thread. Only `memory` dereferences pointers. Invariants: no panic reaches the
//! caller; a caller's memory is not used after its request; unknown flags and fields are refused.

mod error;
mod handles;
mod memory;
mod namespace;
mod options;
mod queue;
mod requests;
mod switchboard;
mod target;
mod version;

pub use error::{SW_EPANIC, sw_error_message, sw_strerror};
pub use namespace::{
    Namespace, NamespaceInfo, SW_FUA, sw_cancel, sw_cancellable, sw_close, sw_discard, sw_flush,
    sw_namespace_info, sw_open, sw_read, sw_readv, sw_set_timeout, sw_write, sw_write_zeroes,
    sw_writev,
};
pub use options::{
    Options, QueueOptions, SW_CLASS_DEFAULT, SW_CLASS_LATENCY, SW_CLASS_THROUGHPUT, SW_DATA_DIGEST,
    SW_HEADER_DIGEST, SW_NEVER, SW_POLL_ALWAYS, SW_POLL_AUTO, SW_POLL_NEVER, SW_STEERED,
    Switchboard, SwitchboardOptions,
};
pub use queue::{
    Completion, Queue, sw_buffer_alloc, sw_buffer_free, sw_queue_cancel, sw_queue_create,
    sw_queue_depth, sw_queue_destroy, sw_queue_discard, sw_queue_fd, sw_queue_flush, sw_queue_kick,
    sw_queue_outstanding, sw_queue_read, sw_queue_readv, sw_queue_reap, sw_queue_set_timeout,
    sw_queue_write, sw_queue_write_zeroes, sw_queue_writev,
};
pub use switchboard::{
    Counter, SW_ALL_CORES, sw_switchboard_counters, sw_switchboard_create, sw_switchboard_destroy,
    sw_switchboard_get_knob, sw_switchboard_set_knob,
};
pub use target::{Target, sw_connect, sw_disconnect};
pub use version::{SWITCHYARD_ABI_VERSION, sw_abi_version, sw_version};

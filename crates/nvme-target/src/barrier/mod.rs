//! Barriers: the order of a tenant's commands over all queues (docs/decisions/0015-barrier.md).

pub(crate) mod core;
pub(crate) mod registry;

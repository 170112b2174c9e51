//! Tenants: their access to blocks, their tokens, their SLOs. `[ReFlex §3, §4]`

pub(crate) mod access;
pub(crate) mod core;
pub(crate) mod device;
pub(crate) mod record;
pub(crate) mod snapshot;

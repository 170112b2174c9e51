//! Recovery from a lost association.

pub(crate) mod backoff;
pub(crate) mod epoch;
pub(crate) mod fences;
pub(crate) mod range_locks;
pub(crate) mod span;
pub(crate) mod status;
pub(crate) mod unflushed;

//! Fig. 6: how far threads, tenants and connections go, measured and simulated.

pub(in crate::figure) mod measured;
pub(in crate::figure) mod simulated;

//! Fig. 6: scaling with threads, tenants and connections, measured and simulated.

pub(in crate::figure) mod measured;
pub(in crate::figure) mod simulated;

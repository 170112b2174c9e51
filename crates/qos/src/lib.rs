//! Quality of service for tenants: costs, admission, tokens and access. Decisions without I/O.
//!
//! An operator declares tenants. The measured curve of a device determines which SLOs it can meet.
//! Threads of a target spend tokens for each request, and delay requests without tokens. The
//! modules:
//!
//! - [`tokens`]: the currency. [`cost`]: what a request costs; [`share`]: whether the load only
//!   reads.
//! - [`slo`]: the request of a tenant. [`curve`]: the capacity of the device. [`admission`]:
//!   matches the one with the other; [`tenants`]: the registry that puts it into force.
//!   [`overrun`]: tenants that ask for more than their SLOs say.
//! - [`fit`]: from what was measured to costs and curve. [`live`]: from what was seen of a device
//!   that serves to a newer curve.
//! - [`token_pool`] and [`account`]: what threads share of a device and of a tenant.
//!   [`token_scheduler`]: what each thread does with it, once a turn.
//! - [`access`]: the tenant of a connection, and the blocks that it may touch. [`limits`]: how far
//!   all goes.
//!
//! Pure: no clock, I/O, logs or threads. The I/O path does not allocate. A [`TokenScheduler`]
//! belongs to one thread; shared state is atomic, without locks. Integer arithmetic without lost
//! fractions, except in [`fit`].
//!
//! Citations name the paper's section: `[ReFlex §3.2]` (Klimovic et al., ASPLOS 2017).

pub mod access;
pub mod account;
pub mod admission;
pub mod cost;
pub mod curve;
pub mod fit;
pub mod limits;
pub mod live;
pub mod overrun;
pub mod share;
pub mod slo;
pub mod tenants;
pub mod token_pool;
pub mod token_scheduler;
pub mod tokens;

pub use access::{Assignments, Permissions};
pub use account::{Account, Contract};
pub use admission::{Admission, Plan, Refusal};
pub use cost::{CostModel, PricedOperation, Prices, units};
pub use curve::Curve;
pub use fit::Fit;
pub use slo::{Declaration, Percentile, Slo, TenantId, Weight};
pub use tenants::Tenants;
pub use token_pool::{Algorithm, TokenPool, TokenPoolRules};
pub use token_scheduler::{TenantKey, TokenScheduler};
pub use tokens::{TokenRate, Tokens};

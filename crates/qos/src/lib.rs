//! Tenants and what they are promised: costs, admission, tokens, access. Decisions, without I/O.
//!
//! An operator declares tenants; the device's measured curve says which promises can be kept; the
//! threads of a target spend tokens for every request, and hold back what is not paid for. One file
//! per noun:
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
//! Pure: this crate takes `now`, requests and limits, and returns decisions. It reads no clock,
//! does no I/O, logs nothing, spawns nothing; the request path allocates nothing. A
//! [`TokenScheduler`] is owned by one thread; what threads share is atomics, without a lock. All
//! arithmetic is in integers, and no fraction of a token is lost; but for [`fit`], which no request
//! waits for.
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

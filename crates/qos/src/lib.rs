//! Tenants and their SLOs: costs, admission, tokens, access. Decisions, without I/O.
//!
//! An operator declares tenants; the device's measured curve shows which SLOs can be met; the
//! threads of a target spend tokens for every request, and delay requests that cannot pay. Modules:
//!
//! - [`tokens`]: the unit of load. [`cost`]: the cost of a request; [`share`]: whether the load is
//!   read-only.
//! - [`slo`]: the declaration of a tenant. [`curve`]: the capacity of the device, and
//!   [`device_model`] with its prices. [`admission`]: compares both; [`tenants`]: the registry that
//!   applies it. [`overrun`]: tenants that exceed their SLOs.
//! - [`placement`]: chooses the target of a volume in a cluster.
//! - [`fit`]: costs and curve from measurements. [`live`]: a newer curve from observations of a
//!   device in service.
//! - [`token_pool`] and [`account`]: state that threads share of a device and of a tenant.
//!   [`token_scheduler`]: the use that each thread makes of it, once a turn.
//! - [`access`]: the tenant of a connection, and the blocks that it may access. [`limits`]: limits
//!   and defaults.
//!
//! Pure: this crate takes `now`, requests and limits, and returns decisions. It reads no clock,
//! does no I/O, logs nothing, spawns nothing; the request path allocates nothing. A
//! [`TokenScheduler`] is owned by one thread; threads share atomics, without a lock. All arithmetic
//! is in integers without loss of fractions, except in [`fit`], which is not on the request path.
//!
//! Citations name the paper's section: `[ReFlex §3.2]` (Klimovic et al., ASPLOS 2017).

pub mod access;
pub mod account;
pub mod admission;
pub mod cost;
pub mod curve;
pub mod device_model;
pub mod fit;
pub mod limits;
pub mod live;
pub mod overrun;
pub mod placement;
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
pub use device_model::DeviceModel;
pub use fit::Fit;
pub use slo::{Declaration, Percentile, Slo, TenantId, Weight};
pub use tenants::Tenants;
pub use token_pool::{Algorithm, TokenPool, TokenPoolRules};
pub use token_scheduler::{TenantKey, TokenScheduler};
pub use tokens::{TokenRate, Tokens};

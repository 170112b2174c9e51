//! Answers of the interface, as values and in words: what the server sends, and clients print.

mod events;
mod switch;
mod tenants;

pub use events::{EventLine, Events};
pub use switch::SwitchAnswer;
pub use tenants::{
    DEFAULT_REFUSED, DEFAULT_SERVED, ServedTenant, SharedDevice, TenantAnswer, TenantList,
};

//! The entry points of the fuzz targets: one function for each, which takes any bytes and panics
//! when something is wrong.
//!
//! `fuzz/` runs them under libFuzzer; the test `smoke` runs them on the kept corpus and on random
//! bytes from fixed seeds. Entry points that need `wire` alone are in
//! `crates/wire/tests/all/fuzz_entry`.

mod chap;
mod descriptor_chain;
mod host_session;
mod http;
mod mangle;
mod nbd;
mod target_session;
mod text;
mod tls;

pub use chap::chap;
pub use descriptor_chain::descriptor_chain;
pub use host_session::host_session;
pub use http::http;
pub use nbd::nbd;
pub use target_session::target_session;
pub use text::{configuration, device_model};
pub use tls::tls;

//! Both ends as threads of this process.

use std::time::Duration;

use serde::Serialize;

use super::case::RawCase;
use super::client::{RawResult, run_client};
use super::error::RawError;
use super::server::RawServer;

/// Measurements of both ends of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairResult {
    /// The client's measurements.
    #[serde(flatten)]
    pub client: RawResult,
    /// CPU seconds of the server's thread, including the warm-up.
    pub server_cpu_seconds: f64,
}

/// Runs one exchange: a server thread on `server_core`, a client thread on `client_core`.
///
/// # Errors
/// As [`RawServer::start`] and [`run_client`]. If the server ended early, its error is returned.
pub fn run_pair(
    case: &RawCase,
    server_core: Option<usize>,
    client_core: Option<usize>,
    warmup: Duration,
    measured: Duration,
) -> Result<PairResult, RawError> {
    let server = RawServer::start(*case, server_core)?;
    match run_client(case, server.addr(), client_core, warmup, measured) {
        Ok(client) => {
            let server_cpu_seconds = server.finish()?.cpu_seconds;
            Ok(PairResult {
                client,
                server_cpu_seconds,
            })
        }
        Err(error) => Err(server.stop().unwrap_or(error)),
    }
}

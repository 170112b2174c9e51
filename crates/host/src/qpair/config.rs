//! Configuration of a queue pair's connection.

use crate::options::ConnectOptions;
use base::Nanos;
use reactor::SocketOptions;
use std::net::SocketAddr;

/// Configuration of a connection.
#[derive(Clone, Debug)]
pub(crate) struct QpairConfig {
    pub(crate) address: SocketAddr,
    pub(crate) socket: SocketOptions,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    pub(crate) sq_flow_control: bool,
    pub(crate) step_timeout: Nanos,
    pub(crate) command_timeout: Nanos,
}

impl QpairConfig {
    /// The configuration of the admin queue's connection, or of an I/O queue's.
    pub(crate) fn new(options: &ConnectOptions, admin: bool) -> Self {
        Self {
            address: options.address,
            socket: options.socket.clone(),
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            sq_flow_control: options.sq_flow_control,
            step_timeout: options.connect_timeout,
            command_timeout: if admin {
                options.connect_timeout
            } else {
                options.command_timeout
            },
        }
    }
}

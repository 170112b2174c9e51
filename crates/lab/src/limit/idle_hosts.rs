//! Hosts that connect and then stay idle.
//!
//! Their queues are connected [by hand](testing::Client), to controllers without keep-alive, so
//! neither end sends anything and the target's cost is that of idle connections alone. This
//! project's host would send keep-alive commands, and connects its queues on demand.

use crate::peer::Peer;
use anyhow::{Context as _, Result};
use testing::Client;
use wire::nvme::{AdminCommand, IoOpcode};

/// Most I/O queues of each controller; eight controllers make a thousand connections.
const QUEUES_MAX: u16 = 124;

/// Entries of an I/O queue: the default of the Linux host.
const ENTRIES: u16 = 128;

const HOST_NQN: &str = "nqn.2026-11.io.switchyard:idle-host";

/// Connected queues; each controller's admin queue precedes its I/O queues.
#[derive(Debug)]
pub(crate) struct IdleHosts {
    /// Each with its QID: 0 for an admin queue.
    queues: Vec<(u16, Client)>,
}

impl IdleHosts {
    /// Connects `connections` queues to a target.
    ///
    /// # Errors
    /// A target that refuses a connection, or does not answer.
    pub(crate) fn connect(peer: &Peer, connections: u16) -> Result<Self> {
        let mut queues = Vec::with_capacity(connections.into());
        let mut controller = 0;
        for index in 0..connections {
            let id = index % (QUEUES_MAX + 1);
            let queue = if id == 0 {
                Client::admin(peer.address, &peer.nqn, HOST_NQN).map(|(admin, joined)| {
                    controller = joined;
                    admin
                })
            } else {
                peer.queue(HOST_NQN, (controller, id), ENTRIES)
            };
            let number = index + 1;
            let queue = queue.with_context(|| format!("cannot open idle connection {number}"))?;
            queues.push((id, queue));
        }
        Ok(Self { queues })
    }

    /// Returns the queues, each with its QID.
    pub(crate) fn into_queues(self) -> Vec<(u16, Client)> {
        self.queues
    }

    /// Executes a command on every queue, to check that it is still connected.
    ///
    /// # Errors
    /// A queue is not connected.
    pub(super) fn prove_alive(&mut self) -> Result<()> {
        for (number, (id, queue)) in (1..).zip(&mut self.queues) {
            let command = match id {
                0 => AdminCommand::KeepAlive.encode(0),
                _ => testing::blocks(IoOpcode::FLUSH, 1, 0, 1),
            };
            queue
                .succeed(command, &[])
                .with_context(|| format!("idle connection {number} is lost"))?;
        }
        Ok(())
    }
}

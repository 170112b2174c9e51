//! Hosts that connect and then do nothing at all.
//!
//! What is this: queues that are connected [by hand](testing::Client), of controllers without
//! keep-alive, so neither end ever has anything to say, and what the target costs is what idle
//! connections cost it. The host of this program would send keep-alive commands, and connects its
//! queues when there is work for them.

use crate::peer::Peer;
use anyhow::{Context as _, Result};
use testing::Client;
use wire::nvme::{AdminCommand, IoOpcode};

/// I/O queues of each controller, at most; eight controllers make a thousand connections.
const QUEUES_MAX: u16 = 124;

/// Entries of an I/O queue: what the Linux host asks for.
const ENTRIES: u16 = 128;

const HOST_NQN: &str = "nqn.2026-11.io.switchyard:idle-host";

/// Connected queues, the admin queue of each controller before its I/O queues.
#[derive(Debug)]
pub(super) struct IdleHosts {
    /// With the QID of each: 0 for an admin queue.
    queues: Vec<(u16, Client)>,
}

impl IdleHosts {
    /// Connects so many queues to a target.
    ///
    /// # Errors
    /// A target that refuses one, or does not answer.
    pub(super) fn connect(peer: &Peer, connections: u16) -> Result<Self> {
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

    /// Has a command answered on every queue, which shows that it is still connected.
    ///
    /// # Errors
    /// When one is not.
    pub(super) fn prove_alive(&mut self) -> Result<()> {
        for (number, (id, queue)) in (1..).zip(&mut self.queues) {
            let command = match id {
                0 => AdminCommand::KeepAlive.encode(0),
                _ => testing::blocks(IoOpcode::FLUSH, 1, 0, 1),
            };
            queue
                .succeed(command, &[])
                .with_context(|| format!("idle connection {number} is gone"))?;
        }
        Ok(())
    }
}

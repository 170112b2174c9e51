//! A scripted host's view of the target under test.

use anyhow::Result;
use std::net::SocketAddr;
use switch::Class;
use testing::{Client, Dialect};
use wire::nvme::feature::FeatureId;
use wire::nvme::vendor::HostExtensions;
use wire::nvme::{AdminCommand, Command, IoOpcode, SetFeatures, SglDescriptor};

/// Target and namespace of a host.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Address of the target.
    pub address: SocketAddr,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// Bytes of its blocks.
    pub block_bytes: u32,
}

impl Peer {
    /// A command on blocks of the namespace.
    pub(crate) fn command(&self, opcode: IoOpcode, slba: u64, blocks: u32) -> Command {
        testing::blocks(opcode, self.nsid, slba, blocks)
    }

    /// A read, with its identifier.
    pub(crate) fn read(&self, cid: u16, slba: u64, blocks: u32) -> Command {
        let mut command = self.command(IoOpcode::READ, slba, blocks);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(blocks * self.block_bytes));
        command
    }

    /// Connects an I/O queue of a controller, with this number of entries.
    pub(crate) fn queue(&self, host: &str, ids: (u16, u16), entries: u16) -> Result<Client> {
        let mut client = Client::open(self.address, Dialect::default())?;
        client.join(&self.nqn, host, ids, entries, 0)?;
        Ok(client)
    }

    /// Connects an I/O queue of class `Latency`, of the controller with this admin queue.
    pub(crate) fn latency_queue(
        &self,
        admin: &mut Client,
        host: &str,
        ids: (u16, u16),
        entries: u16,
    ) -> Result<Client> {
        let meant = HostExtensions {
            queue_classes: true,
        };
        let set = SetFeatures::new(FeatureId::HOST_EXTENSIONS, meant.to_dword());
        admin.succeed(AdminCommand::SetFeatures(set).encode(0), &[])?;
        let mut client = Client::open(self.address, Dialect::default())?;
        let priority = Class::Latency.wire_priority();
        client.join(&self.nqn, host, ids, entries, priority)?;
        Ok(client)
    }
}

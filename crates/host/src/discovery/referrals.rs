//! A discovery that follows referrals. `[NVMe Base 2.0 §3.1.2.3]`

use crate::client::Host;
use crate::controller::Controller;
use crate::error::HostError;
use crate::info::{DiscoveryEntry, SubsystemKind};
use crate::limits::{REFERRAL_DEPTH_MAX, REFERRALS_MAX};
use crate::options::{ConnectOptions, HostIdentity};
use base::Nanos;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use wire::nvme::Nqn;
use wire::tcp::limits::DISCOVERY_PORT;

impl Host {
    /// Asks a discovery controller what there is, and every one that it refers to; duplicates are
    /// left out. `[NVMe Base 2.0 §3.1.2.3]`
    ///
    /// # Errors
    /// When the first controller does not answer. One that was referred to and does not is left
    /// out: it may be down, and the rest is still true.
    pub fn discover(&self, address: &str) -> Result<Vec<DiscoveryEntry>, HostError> {
        let mut options = self.template().clone();
        options.resolve(address, DISCOVERY_PORT)?;
        let mut asked = BTreeSet::from([options.address]);
        asked.extend(&options.further_addresses);
        let mut entries = self.discover_one(options)?;
        let mut level = referrals(&entries);
        for _ in 0..REFERRAL_DEPTH_MAX {
            let mut next = Vec::new();
            for address in level {
                if asked.len() >= REFERRALS_MAX || !asked.insert(address) {
                    continue;
                }
                let options = ConnectOptions {
                    address,
                    ..self.template().clone()
                };
                if let Ok(more) = self.discover_one(options) {
                    next.extend(referrals(&more));
                    for entry in more {
                        if !entries.contains(&entry) {
                            entries.push(entry);
                        }
                    }
                }
            }
            level = next;
        }
        Ok(entries)
    }

    fn discover_one(&self, mut options: ConnectOptions) -> Result<Vec<DiscoveryEntry>, HostError> {
        options.subsystem = Nqn::discovery();
        // Asked once and left: there is nothing to keep alive.
        options.keep_alive = Nanos::ZERO;
        let association = Controller::associate(options);
        self.settle(&association)?;
        let log = association.discovery_log();
        association.close();
        Ok(log)
    }
}

/// Asks a discovery controller at `address` what there is, as `identity`.
///
/// # Errors
/// As [`Host::discover`].
pub fn discover(address: &str, identity: &HostIdentity) -> Result<Vec<DiscoveryEntry>, HostError> {
    let host = Host::builder().identity(identity.clone()).build()?;
    host.discover(address)
}

fn referrals(entries: &[DiscoveryEntry]) -> Vec<SocketAddr> {
    let referrals = entries
        .iter()
        .filter(|entry| entry.kind == SubsystemKind::Referral);
    referrals.filter_map(|entry| entry.socket_address).collect()
}

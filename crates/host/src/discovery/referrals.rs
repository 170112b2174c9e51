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

/// The result of a discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Entries of all discovery logs that were read, without duplicates.
    pub entries: Vec<DiscoveryEntry>,
    /// Referrals that were not followed, or not to the end of the discovery log.
    pub failed: Vec<FailedReferral>,
}

/// A referral without a discovery log in the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedReferral {
    /// TRADDR and TRSVCID, as `[::1]:8009`.
    pub address: String,
    /// The reason.
    pub reason: String,
}

impl Discovery {
    /// Adds a discovery log. Returns the addresses that it refers to.
    fn add(&mut self, log: Vec<DiscoveryEntry>) -> Vec<SocketAddr> {
        let mut referrals = Vec::new();
        for entry in log {
            if self.entries.contains(&entry) {
                continue;
            }
            if entry.kind == SubsystemKind::Referral {
                match entry.socket_address {
                    Some(address) => referrals.push(address),
                    None => self.fail(
                        entry.address_text(),
                        format!(
                            "transport {}: only tcp with a numeric address is supported",
                            entry.transport
                        ),
                    ),
                }
            }
            self.entries.push(entry);
        }
        referrals
    }

    fn fail(&mut self, address: impl ToString, reason: impl ToString) {
        self.failed.push(FailedReferral {
            address: address.to_string(),
            reason: reason.to_string(),
        });
    }
}

impl Host {
    /// Reads the log of a discovery controller, and those of all that it refers to.
    /// `[NVMe Base 2.0 §3.1.2.3]`
    ///
    /// # Errors
    /// When the first controller does not answer. A referral that fails is reported in the result.
    pub fn discover(&self, address: &str) -> Result<Discovery, HostError> {
        let mut options = self.template().clone();
        options.resolve(address, DISCOVERY_PORT)?;
        let mut asked = BTreeSet::from([options.address]);
        asked.extend(&options.further_addresses);
        let mut found = Discovery::default();
        let mut level = found.add(self.discover_one(options)?);
        for depth in 0.. {
            let mut next = Vec::new();
            for address in level {
                if asked.contains(&address) {
                    continue;
                }
                if depth == REFERRAL_DEPTH_MAX || asked.len() >= REFERRALS_MAX {
                    found.fail(
                        address,
                        format!(
                            "limit of {REFERRALS_MAX} discovery controllers or a depth of \
                             {REFERRAL_DEPTH_MAX} referrals reached"
                        ),
                    );
                    continue;
                }
                let options = ConnectOptions {
                    address,
                    ..self.template().clone()
                };
                asked.insert(address);
                match self.discover_one(options) {
                    Ok(log) => next.extend(found.add(log)),
                    Err(error) => found.fail(address, error),
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        Ok(found)
    }

    fn discover_one(&self, mut options: ConnectOptions) -> Result<Vec<DiscoveryEntry>, HostError> {
        options.subsystem = Nqn::discovery();
        // Used for one inquiry and then closed, so no keep-alive is needed.
        options.keep_alive = Nanos::ZERO;
        let association = Controller::associate(options);
        self.settle(&association)?;
        let log = association.discovery_log();
        association.close();
        Ok(log)
    }
}

/// Reads the discovery log of the controller at `address`, as `identity`.
///
/// # Errors
/// As [`Host::discover`].
pub fn discover(address: &str, identity: &HostIdentity) -> Result<Discovery, HostError> {
    let host = Host::builder().identity(identity.clone()).build()?;
    host.discover(address)
}

//! `switchyard discover`.

use crate::args::DiscoverArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::Result;
use host::{DiscoveryEntry, SubsystemKind};
use serde::Serialize;
use std::fmt;

/// The discovery log page, as JSON and as a table.
#[derive(Debug, Serialize)]
struct Offers {
    entries: Vec<Offer>,
}

#[derive(Debug, Serialize)]
struct Offer {
    nqn: String,
    kind: &'static str,
    transport: String,
    address: String,
    service: String,
    port_id: u16,
    secure_channel: bool,
}

impl Offer {
    fn of(entry: DiscoveryEntry) -> Self {
        Self {
            kind: match entry.kind {
                SubsystemKind::Referral => "referral",
                SubsystemKind::Nvm => "nvm",
                SubsystemKind::CurrentDiscovery => "discovery",
                SubsystemKind::Other(_) => "unknown",
            },
            nqn: entry.subsystem,
            transport: entry.transport,
            address: entry.address,
            service: entry.service,
            port_id: entry.port_id,
            secure_channel: entry.secure_channel,
        }
    }
}

impl fmt::Display for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.entries.iter().map(|offer| offer.nqn.len());
        let nqn = lengths.max().unwrap_or(0).max("SUBSYSTEM".len());
        write!(
            f,
            "{:nqn$}  {:9}  {:9}  ADDRESS",
            "SUBSYSTEM", "KIND", "TRANSPORT"
        )?;
        for offer in &self.entries {
            let at = match offer.address.contains(':') {
                true => format!("[{}]:{}", offer.address, offer.service),
                false => format!("{}:{}", offer.address, offer.service),
            };
            let Offer {
                nqn: name,
                kind,
                transport,
                ..
            } = offer;
            write!(f, "\n{name:nqn$}  {kind:9}  {transport:9}  {at}")?;
        }
        Ok(())
    }
}

/// Asks, and prints what is offered.
///
/// # Errors
/// When the discovery controller does not answer.
pub fn run(args: &DiscoverArgs, output: Output) -> Result<Outcome> {
    let host = args.host.builder().build()?;
    let entries = host.discover(&args.address)?;
    let offers = Offers {
        entries: entries.into_iter().map(Offer::of).collect(),
    };
    output.result(&offers, &offers)?;
    let leads_somewhere = |offer: &Offer| offer.kind != "discovery";
    if offers.entries.iter().any(leads_somewhere) {
        return Ok(Outcome::Done);
    }
    output.note(format_args!(
        "nothing is offered to {}; a target shows a host only the subsystems that allow it",
        host.identity().nqn
    ));
    Ok(Outcome::Negative)
}

//! `switchyard discover`.

use crate::args::DiscoverArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::Result;
use base::printable;
use host::{DiscoveryEntry, SubsystemKind};
use serde::Serialize;
use std::fmt;

/// The discovery log page, as JSON and as a table.
#[derive(Debug, Serialize)]
struct Offers {
    entries: Vec<Offer>,
    failed_referrals: Vec<FailedReferral>,
}

/// A referral that was not followed.
#[derive(Debug, Serialize)]
struct FailedReferral {
    address: String,
    reason: String,
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

    /// Its columns; control characters from the target are escaped.
    fn row(&self) -> [String; 4] {
        let [nqn, transport, address, service] =
            [&self.nqn, &self.transport, &self.address, &self.service]
                .map(|text| printable(text).into_owned());
        let at = match address.contains(':') {
            true => format!("[{address}]:{service}"),
            false => format!("{address}:{service}"),
        };
        let transport = match self.secure_channel {
            true => format!("{transport}+tls"),
            false => transport,
        };
        [nqn, self.kind.to_owned(), transport, at]
    }
}

impl fmt::Display for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.entries.iter().map(Offer::row).collect();
        let lengths = rows.iter().map(|[nqn, ..]| nqn.chars().count());
        let nqn = lengths.max().unwrap_or(0).max("SUBSYSTEM".len());
        write!(
            f,
            "{:nqn$}  {:9}  {:9}  ADDRESS",
            "SUBSYSTEM", "KIND", "TRANSPORT"
        )?;
        for [name, kind, transport, at] in rows {
            write!(f, "\n{name:nqn$}  {kind:9}  {transport:9}  {at}")?;
        }
        Ok(())
    }
}

/// Prints the discovery log.
///
/// # Errors
/// No connection to the discovery controller.
pub fn run(args: &DiscoverArgs, output: Output) -> Result<Outcome> {
    let host = args.host.builder().build()?;
    let found = host.discover(&args.address)?;
    let failed = |host::FailedReferral { address, reason }| FailedReferral { address, reason };
    let offers = Offers {
        entries: found.entries.into_iter().map(Offer::of).collect(),
        failed_referrals: found.failed.into_iter().map(failed).collect(),
    };
    output.result(&offers, &offers)?;
    for FailedReferral { address, reason } in &offers.failed_referrals {
        output.note(format_args!(
            "skipped the referral to {}: {}",
            printable(address),
            printable(reason)
        ));
    }
    let leads_somewhere = |offer: &Offer| offer.kind != "discovery";
    if offers.entries.iter().any(leads_somewhere) {
        return Ok(Outcome::Done);
    }
    output.note(format_args!(
        "no subsystem for host {}; a target lists only the subsystems that the host may access",
        host.identity().nqn
    ));
    Ok(Outcome::Negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_target_stays_in_its_column() {
        let offer = |nqn: &str, address: &str| Offer {
            nqn: nqn.to_owned(),
            kind: "nvm",
            transport: "tcp".to_owned(),
            address: address.to_owned(),
            service: "44\u{9b}20".to_owned(),
            port_id: 1,
            secure_channel: false,
        };
        let entries = vec![
            offer("nqn.a\nnqn.forged  nvm", "10.0.0.1\u{1b}[2J"),
            offer("nqn.\u{fffd}", "::1"),
        ];
        let shown = Offers {
            entries,
            failed_referrals: Vec::new(),
        }
        .to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(
            lines[1..],
            [
                r"nqn.a\nnqn.forged  nvm  nvm        tcp        10.0.0.1\u{1b}[2J:44\u{9b}20",
                "nqn.\u{fffd}                   nvm        tcp        [::1]:44\\u{9b}20",
            ]
        );
    }
}

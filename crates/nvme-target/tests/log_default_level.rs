//! At the default level, every line that uses the log budget is visible.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.

#[path = "all/common/mod.rs"]
mod common;

use common::{Bed, Client, Dialect, HOST, eventually, log, violate};
use switchyard_target::limits::LOG_LINES_PER_PEER;
use tracing::Level;
use wire::fabrics::ConnectData;

/// Regression: refused Connects were logged at INFO and used up the budget of visible lines about
/// violations, including the number of suppressed lines.
#[test]
fn refusals_are_seen_and_take_no_line_unseen() {
    log::keep(Level::WARN);
    let bed = Bed::new();
    for _ in 1..LOG_LINES_PER_PEER {
        let mut fresh = Client::dial(bed.address(), Dialect::default());
        let data = Client::connect_data("nqn.2026-11.io.example:none", ConnectData::CNTLID_DYNAMIC);
        let refused = fresh.connect(&Client::connect_command(0, 31, 0), &data);
        assert!(!refused.status.is_success());
    }
    violate(bed.address(), b"no PDU at all");
    eventually("a violation", || {
        bed.handle().snapshot().cores[0].terminations_sent == 1
    });
    let lines = log::lines();
    let of_peer: Vec<_> = lines.iter().filter(|l| l.contains(" peer=")).collect();
    assert_eq!(of_peer.len(), LOG_LINES_PER_PEER as usize, "{lines:#?}");
    for refusal in &of_peer[..of_peer.len() - 1] {
        assert!(refusal.contains("refused Connect"), "{refusal}");
        assert!(refusal.contains("parameter="), "{refusal}");
        assert!(refusal.contains(HOST), "{refusal}");
    }
}

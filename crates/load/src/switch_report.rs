//! Counters of the host's side of the switch during a load: in `bench --json`, and as text.

use host::Switchboard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use switch::doorbell::Reason;

/// Counters of one process's switchboard since its start, including the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwitchReport {
    /// By core.
    pub cores: Vec<CoreSwitchReport>,
    /// Threads that application steering moved, by class.
    pub moved_threads: BTreeMap<String, u64>,
    /// Knobs that were changed while the load was measured, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub turned: Vec<Turned>,
}

/// A knob change during a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turned {
    /// Time of the change, in seconds of the measured time.
    pub at_seconds: f64,
    /// The knob's name.
    pub knob: String,
    /// Its new value.
    pub value: String,
}

/// Counters of the switchboard on one core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreSwitchReport {
    /// The core's number.
    pub core: u32,
    /// The priority of its thread: "nice" (−20) or "unprivileged".
    #[serde(default)]
    pub privilege: String,
    /// Why the thread is not "nice" although that was requested, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub privilege_refused: Option<String>,
    /// Latency requests that their threads sent themselves, in addition to those of the ingress
    /// queue.
    #[serde(default)]
    pub direct: u64,
    /// Requests that left through another core.
    pub steered: u64,
    /// Requests that left through their own core.
    pub stayed: u64,
    /// The part of these that stayed because every other core was overloaded as well.
    pub nowhere: u64,
    /// Notifications of completions to an app.
    #[serde(default)]
    pub told: u64,
    /// Completions in these notifications.
    #[serde(default)]
    pub told_of: u64,
    /// Latency requests that arrived while latency activity was sparse.
    #[serde(default)]
    pub sparse_arrivals: u64,
    /// By class.
    pub classes: BTreeMap<String, ClassSwitchReport>,
}

/// Counters of the switchboard on one core for one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassSwitchReport {
    /// Requests taken from the ingress queue.
    pub requests: u64,
    /// Their bytes of data.
    pub bytes: u64,
    /// Moving average of outstanding bytes, at the end.
    pub load_bytes: u64,
    /// Caravans by the reason why the doorbell rang; only reasons that occurred.
    pub rings: BTreeMap<String, u64>,
    /// Caravans by size: of 1 request, 2 to 3, 4 to 7, and so on.
    pub sizes: Vec<u64>,
    /// Requests in all caravans.
    pub sent_requests: u64,
    /// Bytes passed to TCP with them: capsules, data and digests.
    pub sent_bytes: u64,
}

impl SwitchReport {
    /// Returns the counters of this switchboard so far.
    #[must_use]
    pub fn of(board: &Switchboard) -> Self {
        let counters = board.counters();
        let priorities = board.priorities();
        let cores = board.cores().iter().zip(&counters).zip(&priorities);
        let cores = cores.map(|((core, did), priority)| {
            let classes = did.requests.iter().map(|(class, &requests)| {
                let departures = &did.caravans[class];
                let rang = |reason: Reason| {
                    let count = departures.rings[reason.index()];
                    (count > 0).then(|| (reason.name().to_owned(), count))
                };
                let report = ClassSwitchReport {
                    requests,
                    bytes: did.bytes[class],
                    load_bytes: did.load_bytes[class],
                    rings: Reason::ALL.into_iter().filter_map(rang).collect(),
                    sizes: departures.sizes.buckets().to_vec(),
                    sent_requests: departures.requests,
                    sent_bytes: departures.bytes,
                };
                (class.to_string(), report)
            });
            CoreSwitchReport {
                core: core.0,
                privilege: priority.privilege().name().to_owned(),
                privilege_refused: priority.refusal(),
                direct: did.direct_requests,
                steered: did.steering.steered,
                stayed: did.steering.stayed,
                nowhere: did.steering.nowhere,
                told: did.notifications,
                told_of: did.notified_completions,
                sparse_arrivals: did.sparse_arrivals,
                classes: classes.collect(),
            }
        });
        let moved = board.moved_threads();
        Self {
            cores: cores.collect(),
            moved_threads: moved
                .iter()
                .map(|(class, &threads)| (class.to_string(), threads))
                .collect(),
            turned: Vec::new(),
        }
    }
}

impl fmt::Display for SwitchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for core in &self.cores {
            write!(f, "switchboard, core {}:", core.core)?;
            for (class, did) in &core.classes {
                let caravans: u64 = did.rings.values().sum();
                write!(
                    f,
                    " {class} {} requests in {caravans} caravans,",
                    did.requests
                )?;
            }
            writeln!(f, " {} direct, {} steered", core.direct, core.steered)?;
            write!(
                f,
                "switchboard, core {}: thread priority {}",
                core.core, core.privilege
            )?;
            match &core.privilege_refused {
                Some(reason) => writeln!(f, " ({reason})")?,
                None => writeln!(f)?,
            }
        }
        for (class, moved) in &self.moved_threads {
            writeln!(f, "switchboard, {class}: {moved} thread moves")?;
        }
        for Turned {
            at_seconds,
            knob,
            value,
        } in &self.turned
        {
            writeln!(f, "switchboard: {knob}={value} set after {at_seconds:.3} s")?;
        }
        Ok(())
    }
}

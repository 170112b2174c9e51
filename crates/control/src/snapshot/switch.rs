//! What the switch of a target did, by core and class.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use switch::doorbell::{DoorbellCounters, Reason};

/// What one core's switch did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchSnapshot {
    /// The core's number.
    pub core: u32,
    /// By what its thread goes before others: "real-time", "nice" or "unprivileged".
    pub privilege: String,
    /// Why by nothing although it was asked for, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privilege_refused: Option<String>,
    /// Its thread is in use; otherwise it sleeps, and has no connection.
    pub in_use: bool,
    /// Steps of application steering; only the core that steers takes any.
    pub steering_steps: u64,
    /// Queues that thread scaling brought here.
    pub scaled_in: u64,
    /// Queues that thread scaling took away.
    pub scaled_out: u64,
    /// Times that latency commands came while these were sparse, so that sends beside them were
    /// larger.
    pub sparse_arrivals: u64,
    /// What it did for each class, by the class's name.
    pub classes: BTreeMap<String, ClassSnapshot>,
}

/// Which threads of a target are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadsSnapshot {
    /// How many: those of the first so many cores.
    pub active: u64,
    /// Never fewer.
    pub min: u64,
    /// Never more.
    pub max: u64,
    /// Threads that were taken into use since the start.
    pub grown: u64,
    /// Threads that were put to sleep since the start.
    pub shrunk: u64,
    /// Times that a busy thread shared its queues with another one in use.
    pub balanced: u64,
}

/// What one core's switch did for one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassSnapshot {
    /// I/O queues open now.
    pub queues: u64,
    /// Bytes of data that devices work on now.
    pub outstanding_bytes: u64,
    /// The moving average of the same.
    pub load_bytes: u64,
    /// Caravans that left.
    pub caravans: CaravanSnapshot,
    /// Service of what arrived.
    pub receive: ServiceSnapshot,
    /// Service of what was to be sent.
    pub send: ServiceSnapshot,
    /// Queues that application steering brought here.
    pub moved_in: u64,
    /// Queues that application steering took away.
    pub moved_out: u64,
}

/// Caravans that left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaravanSnapshot {
    /// How many, by why the doorbell rang.
    pub rings: BTreeMap<String, u64>,
    /// How many, by what they carried.
    pub sizes: Vec<SizeBucket>,
    /// Answers and R2Ts that they carried.
    pub requests: u64,
    /// Bytes that were handed to TCP with them: data, headers and digests.
    pub bytes: u64,
}

/// Caravans of at most so many requests, and more than in the bucket before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// The bound, itself included; without one in the last bucket.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub up_to_requests: Option<u64>,
    /// How many caravans.
    pub count: u64,
}

impl From<&DoorbellCounters> for CaravanSnapshot {
    fn from(counters: &DoorbellCounters) -> Self {
        let buckets = counters.sizes.buckets();
        let last = buckets.len() - 1;
        let sizes = buckets.iter().enumerate();
        let reasons = Reason::ALL.into_iter();
        Self {
            rings: reasons
                .map(|reason| (reason.name().to_owned(), counters.rings[reason.index()]))
                .collect(),
            sizes: sizes
                .map(|(power, &count)| SizeBucket {
                    up_to_requests: (power < last).then(|| (2 << power) - 1),
                    count,
                })
                .collect(),
            requests: counters.requests,
            bytes: counters.bytes,
        }
    }
}

/// Prioritised service of one class in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSnapshot {
    /// Quanta that were served.
    pub quanta: u64,
    /// Bytes served.
    pub bytes: u64,
    /// Times that an earlier class took over while the class had more to do.
    pub preemptions: u64,
    /// Quanta out of turn, because the floor owed them.
    pub floor_turns: u64,
}

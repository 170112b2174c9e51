//! Counters of a switchboard, by core and class.

use std::sync::{Mutex, PoisonError};
use switch::doorbell::Reason;
use switch::{Class, Coalescer, PerClass, doorbell, request_steering};

/// Counters of one dataplane thread since its start, published within 10 ms.
#[derive(Clone, Debug, Default)]
pub struct CoreCounters {
    /// `Latency` requests that their submitters sent over direct lanes, in addition to those of the
    /// ingress.
    pub direct_requests: u64,
    /// Requests taken from the ingress, by class.
    pub requests: PerClass<u64>,
    /// Their bytes of data.
    pub bytes: PerClass<u64>,
    /// Counters of request steering.
    pub steering: request_steering::RequestSteeringCounters,
    /// Average outstanding bytes, by class.
    pub load_bytes: PerClass<u64>,
    /// Caravans: their sizes, and the reasons for which they were sent.
    pub caravans: PerClass<doorbell::DoorbellCounters>,
    /// Notifications of completions to submitters; each wakes its submitter if that sleeps.
    pub notifications: u64,
    /// Completions covered by these notifications.
    pub notified_completions: u64,
    /// Arrivals of a `Latency` request while such requests were sparse
    /// ([`switch::latency_activity`]).
    pub sparse_arrivals: u64,
}

impl CoreCounters {
    /// Counts the notification of a submitter about held completions.
    pub(super) fn notify(&mut self, held_completions: &mut Coalescer) {
        self.notifications += 1;
        self.notified_completions += u64::from(held_completions.notified());
    }

    /// Returns all counters with their names, in a fixed order; used by the bindings of other
    /// languages. Counters of a class begin with its name: `latency_requests`. Of its caravans:
    /// their number, their requests and bytes (`sent_requests`, `sent_bytes`), and the number sent
    /// for each [`Reason`] (`latency_rings_timer`), without their sizes.
    #[must_use]
    pub fn named(&self) -> Vec<(String, u64)> {
        // The pattern lists every field, so a new counter must be named here.
        let Self {
            direct_requests,
            requests,
            bytes,
            steering,
            load_bytes,
            caravans,
            notifications,
            notified_completions,
            sparse_arrivals,
        } = self;
        let of_core = [
            ("direct_requests", *direct_requests),
            ("stayed", steering.stayed),
            ("steered", steering.steered),
            ("preferred", steering.preferred),
            ("nowhere", steering.nowhere),
            ("notifications", *notifications),
            ("notified_completions", *notified_completions),
            ("sparse_arrivals", *sparse_arrivals),
        ];
        let mut all: Vec<_> = of_core.map(|(name, n)| (name.to_owned(), n)).into();
        for class in Class::ALL {
            let caravans = &caravans[class];
            let of_class = [
                ("requests", requests[class]),
                ("bytes", bytes[class]),
                ("load_bytes", load_bytes[class]),
                ("caravans", caravans.rings.iter().sum()),
                ("sent_requests", caravans.requests),
                ("sent_bytes", caravans.bytes),
            ];
            all.extend(of_class.map(|(name, n)| (format!("{class}_{name}"), n)));
            let rings = Reason::ALL.map(|reason| (reason.name(), caravans.rings[reason.index()]));
            all.extend(rings.map(|(name, n)| (format!("{class}_rings_{name}"), n)));
        }
        all
    }

    /// Adds the counters of another thread of the same core.
    pub fn merge(&mut self, other: &Self) {
        self.direct_requests += other.direct_requests;
        for (class, requests) in other.requests.iter() {
            self.requests[class] += requests;
            self.bytes[class] += other.bytes[class];
            self.load_bytes[class] += other.load_bytes[class];
            self.caravans[class].merge(&other.caravans[class]);
        }
        self.notifications += other.notifications;
        self.notified_completions += other.notified_completions;
        self.sparse_arrivals += other.sparse_arrivals;
        self.steering.stayed += other.steering.stayed;
        self.steering.steered += other.steering.steered;
        self.steering.preferred += other.steering.preferred;
        self.steering.nowhere += other.steering.nowhere;
    }
}

/// The counters as last published by their thread.
#[derive(Debug, Default)]
pub(super) struct PublishedCounters {
    counters: Mutex<CoreCounters>,
}

impl PublishedCounters {
    pub(super) fn publish(&self, counters: CoreCounters) {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }

    pub(super) fn read(&self) -> CoreCounters {
        let counters = self.counters.lock();
        counters.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

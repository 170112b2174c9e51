//! Counters of the requests that front ends submit to a device.

use block::{IoCounts, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switch::{Class, PerClass};

#[derive(Debug, Default)]
struct ClassCounters {
    begun: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
}

/// Counters of one core. Only its thread writes them, any thread may read them. The alignment gives
/// them cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IoCounters {
    classes: PerClass<ClassCounters>,
}

impl IoCounters {
    /// Counts a request that begins. Only for the core's thread, as [`finish`](Self::finish).
    pub(crate) fn begin(&self, class: Class) {
        add(&self.classes[class].begun, 1);
    }

    /// Counts a finished request of `bytes` bytes. Only the core's thread may call it: concurrent
    /// callers would lose counts.
    pub(crate) fn finish(&self, class: Class, operation: Operation, bytes: u64, succeeded: bool) {
        let counters = &self.classes[class];
        let (requests, data) = match operation {
            Operation::Read => (&counters.reads, Some(&counters.read_bytes)),
            Operation::Write { .. } => (&counters.writes, Some(&counters.written_bytes)),
            _ => (&counters.others, None),
        };
        add(requests, 1);
        match data {
            Some(data) if succeeded => add(data, bytes),
            _ => {}
        }
        if !succeeded {
            add(&counters.errors, 1);
        }
    }

    /// Returns the sums over `cores`, by class.
    #[must_use]
    pub fn total(cores: &[Arc<Self>]) -> PerClass<IoCounts> {
        PerClass::from_fn(|class| {
            let sum = |counter: fn(&ClassCounters) -> &AtomicU64| {
                let values = cores.iter().map(|core| counter(&core.classes[class]));
                values.map(|value| value.load(Ordering::Relaxed)).sum()
            };
            IoCounts {
                begun: sum(|c| &c.begun),
                reads: sum(|c| &c.reads),
                writes: sum(|c| &c.writes),
                others: sum(|c| &c.others),
                read_bytes: sum(|c| &c.read_bytes),
                written_bytes: sum(|c| &c.written_bytes),
                errors: sum(|c| &c.errors),
            }
        })
    }
}

/// Adds to a counter that has a single writer, without a locked instruction.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_cores_are_added_up_by_class() {
        let cores = [Arc::new(IoCounters::default()), Arc::default()];
        cores[0].begin(Class::Latency);
        cores[0].finish(Class::Latency, Operation::Read, 4096, true);
        cores[1].finish(Class::Latency, Operation::Read, 512, true);
        cores[1].finish(Class::Latency, Operation::Flush, 0, true);
        let write = Operation::Write { durable: true };
        cores[1].finish(Class::Throughput, write, 8192, false);
        let total = IoCounters::total(&cores);
        let expected = IoCounts {
            begun: 1,
            reads: 2,
            others: 1,
            read_bytes: 4608,
            ..IoCounts::default()
        };
        assert_eq!(total[Class::Latency], expected);
        assert_eq!(total[Class::Latency].requests(), 3);
        let expected = IoCounts {
            writes: 1,
            errors: 1,
            ..IoCounts::default()
        };
        assert_eq!(total[Class::Throughput], expected);
    }
}

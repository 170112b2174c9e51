//! The bound on requests between the kernel and the dataplane thread.

use super::limits::{REQUESTS_MAX, SPARE_BYTES_MAX, WRITE_BYTES_MAX};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Admits requests while there is room, and lets the session thread wait otherwise: what does not
/// fit stays in the kernel.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: usize,
    /// Bytes of data that these requests hold.
    bytes: usize,
    /// Set in the end: no request is admitted any more.
    shut: bool,
    /// Memory without content, for reuse.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

/// The place of an admitted request, with the data of a write; free again when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    gate: Arc<Gate>,
    data: Vec<u8>,
    depth: usize,
}

impl Permit {
    /// The data of a write.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Requests that were under way when this one was admitted, itself included.
    pub(super) const fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut data = std::mem::take(&mut self.data);
        let mut state = self.gate.lock();
        state.requests -= 1;
        state.bytes -= data.len();
        data.clear();
        if data.capacity() > 0 && state.spare_bytes + data.capacity() <= SPARE_BYTES_MAX {
            state.spare_bytes += data.capacity();
            state.spare.push(data);
        }
        drop(state);
        self.gate.changed.notify_all();
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Counters are changed in one step, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a request with `data` (empty for others than writes), and
    /// copies it; `None` once the gate is [shut](Self::shut).
    pub(super) fn enter(self: &Arc<Self>, data: &[u8]) -> Option<Permit> {
        let mut state = self.lock();
        loop {
            if state.shut {
                return None;
            }
            // The first may be of any size, so that it does not wait for ever.
            let fits = state.bytes == 0 || state.bytes + data.len() <= WRITE_BYTES_MAX;
            if state.requests < REQUESTS_MAX && fits {
                break;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.requests += 1;
        state.bytes += data.len();
        let depth = state.requests;
        let mut copy = Vec::new();
        if !data.is_empty()
            && let Some(spare) = state.spare.pop()
        {
            state.spare_bytes -= spare.capacity();
            copy = spare;
        }
        drop(state);
        copy.extend_from_slice(data);
        Some(Permit {
            gate: Arc::clone(self),
            data: copy,
            depth,
        })
    }

    /// Admits no request any more.
    pub(super) fn shut(&self) {
        self.lock().shut = true;
        self.changed.notify_all();
    }

    /// Waits until no request is under way, at most for `most`; returns true if none is.
    pub(super) fn drained(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut state = self.lock();
        while state.requests > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_waits_and_a_shut_one_refuses() {
        let gate = Arc::new(Gate::default());
        let mut permits: Vec<_> = (0..REQUESTS_MAX).map(|_| gate.enter(b"ab")).collect();
        assert!(permits.iter().all(Option::is_some));
        let depth = permits
            .last()
            .and_then(|permit| Some(permit.as_ref()?.depth()));
        assert_eq!(depth, Some(REQUESTS_MAX));
        assert_eq!(permits[0].as_ref().expect("admitted").data(), b"ab");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.enter(b"cde").map(|permit| permit.data().len()));
            permits.pop();
            assert_eq!(waiting.join().expect("it ends"), Some(3));
        });
        assert!(!gate.drained(Duration::ZERO));
        permits.clear();
        assert!(gate.drained(Duration::ZERO));
        gate.shut();
        assert!(gate.enter(b"").is_none());
    }
}

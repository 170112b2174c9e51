//! The end of an application before its time.

use super::{Client, RequestKind, Way};

impl Client {
    /// Asks for nothing more.
    pub(crate) fn leave(&mut self) {
        self.leaves = true;
        self.work.workload.requests = self.issued;
    }

    /// Its thread dies, and its host goes on. By an I/O path other threads have some of its requests.
    pub(crate) fn dies(&mut self) {
        self.outlived = matches!(self.channel, Way::Any(_));
    }
}

/// A crashed application reads nothing more; what was being written may still take effect, as long as
/// a controller of its host is there.
impl Drop for Client {
    fn drop(&mut self) {
        let Ok(mut oracle) = self.oracle.try_borrow_mut() else {
            return;
        };
        for (_, request) in self.in_flight.iter() {
            match request.kind {
                RequestKind::Read(began) | RequestKind::Compare(began, _) => oracle.end_read(began),
                // Another thread may carry it out, whenever the host is connected again.
                RequestKind::Write { .. } if self.outlived => {}
                RequestKind::Write { version, .. } => {
                    oracle.orphan(request.range.clone(), version, self.work.host);
                }
                _ => {}
            }
        }
    }
}

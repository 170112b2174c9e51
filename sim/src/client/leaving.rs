//! The early end of an application.

use super::{Client, RequestKind, Way};

impl Client {
    /// Stops new requests.
    pub(crate) fn leave(&mut self) {
        self.leaves = true;
        self.work.workload.requests = self.issued;
    }

    /// Notes that its thread dies while its host continues. With an I/O path, other threads hold
    /// some of its requests.
    pub(crate) fn dies(&mut self) {
        self.outlived = matches!(self.channel, Way::Any(_));
    }
}

/// A crashed application reads no more answers; outstanding writes may still take effect while a
/// controller of its host exists.
impl Drop for Client {
    fn drop(&mut self) {
        let Ok(mut oracle) = self.oracle.try_borrow_mut() else {
            return;
        };
        for (_, request) in self.in_flight.iter() {
            match request.kind {
                RequestKind::Read(began) | RequestKind::Compare(began, _) => oracle.end_read(began),
                // Another thread may execute it when the host is connected again.
                RequestKind::Write { .. } if self.outlived => {}
                RequestKind::Write { version, .. } => {
                    oracle.orphan(request.range.clone(), version, self.work.host);
                }
                _ => {}
            }
        }
    }
}

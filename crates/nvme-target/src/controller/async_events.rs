//! Asynchronous events, for hosts that enabled them. `[NVMe Base 2.0 §5.2]`
//!
//! A notice is sent once, and again only after the host has read its log page, so that frequent
//! changes do not flood a host.

use crate::limits::{ASYNC_EVENT_REQUESTS_MAX, RESERVATION_NOTICES_MAX};
use crate::reservation::state::HostId;
use base::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::nvme::feature::AsyncEventConfiguration;
use wire::nvme::log_page::LogPageId;
use wire::nvme::reservation::{ReservationLog, ReservationNotice};
use wire::nvme::{AsyncEvent, Status};

/// An event that hosts are notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A namespace was added, removed or resized.
    Namespace(u32),
    /// The state of an ANA group changed.
    Ana,
    /// The discovery log page changed.
    Discovery,
    /// Another host changed registrations or the reservation of a namespace.
    Reservation {
        nsid: u32,
        /// HOSTID of the host that is notified.
        host: HostId,
        kind: ReservationNotice,
    },
}

const NAMESPACE: u8 = 1 << 0;
const DISCOVERY: u8 = 1 << 1;
const ANA: u8 = 1 << 2;
const RESERVATION: u8 = 1 << 3;

/// The dword of the configuration, for a process that takes the controller over.
#[derive(Serialize, Deserialize)]
#[serde(remote = "AsyncEventConfiguration")]
struct Dword(u32);

/// The events of one controller.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AsyncEvents {
    #[serde(with = "Dword")]
    pub(crate) configuration: AsyncEventConfiguration,
    requests: VecDeque<u16>,
    /// Notices that occurred but were not sent.
    pending: u8,
    /// Notices that were sent, and whose log page was not read since.
    masked: u8,
    changed: BTreeSet<u32>,
    /// Reservation Notification Mask of each namespace, if not 0.
    #[serde(default)]
    pub(crate) reservation_masks: BTreeMap<u32, u32>,
    /// Reservation notifications that the host has not read: LPC, type, NSID.
    #[serde(default)]
    reservations: VecDeque<(u64, u8, u32)>,
    /// Number of reservation notifications so far.
    #[serde(default)]
    reservation_count: u64,
}

impl AsyncEvents {
    /// Returns the number of outstanding Asynchronous Event Requests.
    pub(crate) fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// Returns the events for a process that takes the controller over.
    pub(crate) fn handed(&self) -> Self {
        let mut handed = self.clone();
        if mutation::active(Mutation::TakeOverForgetsEvents) {
            handed.requests.clear();
        }
        handed
    }

    /// Adds an Asynchronous Event Request.
    pub(crate) fn request(&mut self, cid: u16) -> Result<(), Status> {
        if self.requests.len() >= ASYNC_EVENT_REQUESTS_MAX {
            return Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED.with_dnr());
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Removes an Asynchronous Event Request. Returns whether it was outstanding.
    pub(crate) fn abort(&mut self, cid: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|&other| other != cid);
        self.requests.len() < before
    }

    /// Returns true if `cid` belongs to an outstanding Asynchronous Event Request.
    pub(crate) fn has(&self, cid: u16) -> bool {
        self.requests.contains(&cid)
    }

    /// Records an event.
    pub(crate) fn raise(&mut self, notice: Notice) {
        let (bit, wanted) = match notice {
            Notice::Namespace(_) if mutation::active(Mutation::ChangeNotTold) => return,
            Notice::Namespace(nsid) => {
                self.changed.insert(nsid);
                (NAMESPACE, AsyncEventConfiguration::NAMESPACE_ATTRIBUTE)
            }
            Notice::Ana => (ANA, AsyncEventConfiguration::ANA_CHANGE),
            Notice::Discovery => (DISCOVERY, AsyncEventConfiguration::DISCOVERY_LOG_CHANGE),
            Notice::Reservation { nsid, kind, .. } => return self.raise_reservation(nsid, kind),
        };
        if self.configuration.contains(wanted) {
            self.pending |= bit;
        }
    }

    fn raise_reservation(&mut self, nsid: u32, kind: ReservationNotice) {
        let mask = self.reservation_masks.get(&nsid).copied();
        if mask.unwrap_or_default() & kind.mask() != 0 {
            return;
        }
        self.reservation_count += 1;
        if self.reservations.len() >= RESERVATION_NOTICES_MAX {
            self.reservations.pop_front();
        }
        let entry = (self.reservation_count, kind as u8, nsid);
        self.reservations.push_back(entry);
        self.pending |= RESERVATION;
    }

    /// Returns the oldest reservation notification. `[NVMe Base 2.0 §5.16.1.24]`
    pub(crate) fn reservation_log(&self) -> ReservationLog {
        let Some(&(count, kind, nsid)) = self.reservations.front() else {
            return ReservationLog::default();
        };
        let available = self.reservations.len() - 1;
        ReservationLog {
            count,
            kind,
            available: u8::try_from(available).unwrap_or(u8::MAX),
            nsid,
        }
    }

    /// Returns the next event to send, and the identifier of the request that it answers.
    pub(crate) fn next(&mut self) -> Option<(u16, AsyncEvent)> {
        let ready = self.pending & !self.masked;
        let (bit, event) = match ready {
            0 => return None,
            _ if ready & RESERVATION != 0 => (RESERVATION, AsyncEvent::RESERVATION),
            _ if ready & ANA != 0 => (ANA, AsyncEvent::ANA_CHANGE),
            _ if ready & NAMESPACE != 0 => (NAMESPACE, AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED),
            _ => (DISCOVERY, AsyncEvent::DISCOVERY_LOG_CHANGE),
        };
        let cid = self.requests.pop_front()?;
        self.pending &= !bit;
        self.masked |= bit;
        Some((cid, event))
    }

    /// Clears the notices of a log page that the host read without Retain Asynchronous Event.
    pub(crate) fn page_read(&mut self, page: LogPageId) {
        match page {
            LogPageId::CHANGED_NAMESPACES => {
                self.masked &= !NAMESPACE;
                self.changed.clear();
            }
            LogPageId::ANA => self.masked &= !ANA,
            LogPageId::RESERVATION => {
                self.reservations.pop_front();
                self.masked &= !RESERVATION;
                if !self.reservations.is_empty() {
                    self.pending |= RESERVATION;
                }
            }
            LogPageId::DISCOVERY => self.masked &= !DISCOVERY,
            _ => {}
        }
    }

    /// Returns the namespaces that changed since the host last read the list.
    pub(crate) fn changed(&self) -> impl Iterator<Item = u32> + '_ {
        self.changed.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_comes_once_until_its_page_is_read() {
        let mut events = AsyncEvents {
            configuration: AsyncEventConfiguration::NAMESPACE_ATTRIBUTE,
            ..AsyncEvents::default()
        };
        for cid in 0..2 {
            assert_eq!(events.request(cid), Ok(()));
        }
        events.raise(Notice::Namespace(3));
        events.raise(Notice::Discovery);
        let told = Some((0, AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED));
        assert_eq!(events.next(), told);
        events.raise(Notice::Namespace(4));
        assert_eq!(events.next(), None);
        assert_eq!(events.changed().collect::<Vec<_>>(), [3, 4]);
        events.page_read(LogPageId::CHANGED_NAMESPACES);
        assert_eq!(
            events.next(),
            Some((1, AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED))
        );
        assert_eq!(events.waiting(), 0);
    }

    #[test]
    fn requests_are_limited_and_can_be_taken_back() {
        let mut events = AsyncEvents::default();
        for cid in 0..4 {
            assert_eq!(events.request(cid), Ok(()));
        }
        assert_eq!(
            events.request(9),
            Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED.with_dnr())
        );
        assert!(events.abort(2));
        assert!(!events.abort(2));
        assert!(events.has(3));
    }
}

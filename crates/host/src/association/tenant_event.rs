//! Events that a Switchyard target reports to this host about its tenant.

use crate::info::text;
use base::printable;
use std::collections::VecDeque;
use std::fmt;
use wire::nvme::log_page::{TenantEvent as Entry, TenantEvents};

/// Events that were not taken yet.
const EVENTS_MAX: usize = 64;

/// A tenant that this host is began, or ceased, to ask for more than it was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantEvent {
    /// Its number among the events of the target.
    pub number: u64,
    /// True while the tenant demands more than its SLO: its requests wait, and may be late.
    pub overruns: bool,
    /// Time of the event by the target's clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The tenant's name.
    pub tenant: String,
    /// The name of the device on which it was promised something.
    pub device: String,
    /// Over how long the target looked, in milliseconds.
    pub window_ms: u32,
    /// Tokens that are promised in a second, in thousandths.
    pub promised_milli: u64,
    /// Those that were asked for.
    pub asked_milli: u64,
    /// Commands that waited for tokens.
    pub waiting: u64,
}

impl TenantEvent {
    fn of(entry: &Entry) -> Self {
        Self {
            number: entry.number,
            overruns: entry.kind == Entry::BEGAN,
            unix_ms: entry.unix_ms,
            tenant: text(&entry.tenant),
            device: text(&entry.device),
            window_ms: entry.window_ms,
            promised_milli: entry.promised_milli,
            asked_milli: entry.asked_milli,
            waiting: entry.waiting,
        }
    }
}

impl fmt::Display for TenantEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [tenant, device] = [&self.tenant, &self.device].map(|name| printable(name));
        if !self.overruns {
            return write!(f, "tenant {tenant} keeps to its promise on {device} again");
        }
        write!(
            f,
            "tenant {tenant} asks for more than it is promised on {device}: {} of {} tokens/s, {} \
             commands wait; they may be late",
            self.asked_milli / 1000,
            self.promised_milli / 1000,
            self.waiting
        )
    }
}

/// The events that were heard of.
#[derive(Debug, Default)]
pub(crate) struct TenantEventLog {
    /// The number of the newest one.
    last: u64,
    waiting: VecDeque<TenantEvent>,
}

impl TenantEventLog {
    /// Takes the new events of a log page; the oldest untaken ones give way.
    pub(crate) fn note(&mut self, page: &TenantEvents) {
        let newest = page.iter().map(|entry| entry.number).max().unwrap_or(0);
        if newest < self.last {
            // The target began anew.
            self.last = 0;
        }
        let entries: Vec<_> = page.iter().collect();
        for entry in entries.into_iter().rev() {
            let known = matches!(entry.kind, Entry::BEGAN | Entry::ENDED);
            if !known || entry.number <= self.last {
                continue;
            }
            self.last = entry.number;
            if self.waiting.len() == EVENTS_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(TenantEvent::of(entry));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<TenantEvent> {
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, kind: u32) -> Entry {
        Entry {
            number,
            kind,
            tenant: wire::text::zero_padded_field("db\u{7}"),
            device: [b'x'; 72],
            promised_milli: 5_000,
            asked_milli: 9_000,
            ..Entry::default()
        }
    }

    #[test]
    fn each_event_is_heard_once_in_order_whatever_the_page_says() {
        let mut heard = TenantEventLog::default();
        let (began, ended) = (entry(3, Entry::BEGAN), entry(4, Entry::ENDED));
        heard.note(&TenantEvents::of([began]));
        heard.note(&TenantEvents::of([ended, began]));
        heard.note(&TenantEvents::of([entry(5, 77), ended, began]));
        let all = heard.take();
        assert_eq!(all.iter().map(|e| e.number).collect::<Vec<_>>(), [3, 4]);
        assert!(all[0].overruns && !all[1].overruns);
        assert_eq!(
            (all[0].tenant.as_str(), all[0].device.len()),
            ("db\u{7}", 72)
        );
        assert!(all[0].to_string().contains("tenant db\\u{7} asks"));
        assert!(heard.take().is_empty());
        // Another target, or the same one begun anew.
        heard.note(&TenantEvents::of([entry(1, Entry::BEGAN)]));
        assert_eq!(heard.take().len(), 1);
        for number in 2..200 {
            heard.note(&TenantEvents::of([entry(number, Entry::BEGAN)]));
        }
        assert_eq!(heard.take().len(), EVENTS_MAX);
    }
}

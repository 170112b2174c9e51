//! Applications that close their channels, and open others in the place of these; and the lanes that a
//! channel must have.

use super::{Client, Way};
use crate::application::Application;
use crate::oracle::Oracle;
use crate::rights::Extent;
use base::Prng;
use std::cell::RefCell;
use std::rc::Rc;

/// The part of an application's work that its next channel has.
#[derive(Debug)]
pub(super) struct Reopening(Box<Application>);

impl Reopening {
    /// Takes from an application what its next channel is to have; `None` where that is nothing.
    pub(super) fn split(application: &mut Application) -> Option<Self> {
        let requests = application.workload.requests;
        let mut prng = Prng::from_seed(application.seed ^ 0x0E09);
        let now = 1 + prng.below(requests / 2 + 1);
        if !application.reopens || !application.judged || now >= requests {
            return None;
        }
        let mut next = application.clone();
        application.workload.requests = now;
        next.workload.requests -= now;
        next.seed = prng.next_u64();
        next.rest = application.rest.filter(|&(after, _)| after >= now);
        next.rest = next.rest.map(|(after, rest)| (after - now, rest));
        Some(Self(Box::new(next)))
    }
}

impl Client {
    /// Takes what another channel is to be opened for, once this one is closed.
    pub(crate) fn take_next(&mut self) -> Option<Application> {
        let closed = self.closing && self.channel.as_ref().closed();
        let next = self.reopening.take_if(|_| closed)?;
        Some(*next.0)
    }

    /// Another volume came in the place of its namespace: its next channel finds that one.
    pub(crate) fn is_replaced(&mut self, nsid: u32, oracle: &Rc<RefCell<Oracle>>, extent: &Extent) {
        if let Some(Reopening(next)) = &mut self.reopening
            && next.nsid == nsid
        {
            next.is_replaced(oracle, extent);
        }
    }

    /// Returns true if its channel works without one of the lanes that it has a queue for: an
    /// application ends only when the channel has them all, so one that is never opened is a hang.
    pub(super) fn lacks_lane(&self) -> bool {
        match &self.channel {
            Way::Any(_) => false,
            Way::Remote(channel) => channel.lacks_lane(),
        }
    }
}

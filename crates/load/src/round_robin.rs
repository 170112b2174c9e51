//! A device that is reached by many hosts: its requests go to each of them in turn.
//!
//! It opens the same device once per host, on that host's own connections, so that one thread loads
//! a target like thousands of clients. A channel is only polled after an event or at its deadline,
//! and all channels ten times a second. The cost of a turn therefore depends on the thread's
//! requests, not on its connections. A host connects with its first request.

use base::{Nanos, Time};
use block::{Capabilities, Channel, Completion, Device, DeviceError, Geometry, Request, Submit};
use reactor::{Context, Driver, Guard, OpNamespace};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Interval at which all channels are polled. Channels without requests keep their connections
/// alive then, and learn of changes of a connection without an event of their own.
const LOOK: Nanos = Nanos::from_millis(100);

/// A device that is reached by many hosts. See the module.
#[derive(Debug)]
pub struct RoundRobin {
    devices: Vec<Arc<dyn Device>>,
}

impl RoundRobin {
    /// The devices are the same storage, and there is at least one.
    ///
    /// # Panics
    /// If `devices` is empty.
    #[must_use]
    pub fn over(devices: Vec<Arc<dyn Device>>) -> Self {
        assert!(!devices.is_empty(), "requests must go somewhere");
        Self { devices }
    }
}

impl Device for RoundRobin {
    fn geometry(&self) -> Geometry {
        self.devices[0].geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // Its channels take no extents.
            extents_max: 0,
            ..self.devices[0].capabilities()
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let mut members = Vec::with_capacity(self.devices.len());
        for device in &self.devices {
            members.push(Member {
                channel: device.open(driver)?,
                listed: false,
                due: Time::NEVER,
                used: false,
            });
        }
        Ok(Box::new(RoundRobinChannel {
            members,
            touched: Vec::new(),
            reaping: 0,
            due: BinaryHeap::new(),
            next: 0,
            owners: Vec::new(),
            look_at: Time::ZERO,
            closing: false,
        }))
    }
}

/// One host's channel.
#[derive(Debug)]
struct Member {
    channel: Box<dyn Channel>,
    /// The member is in the list of members with events.
    listed: bool,
    /// Time of its next poll, from the earliest of its entries.
    due: Time,
    /// The member has had a request.
    used: bool,
}

#[derive(Debug)]
struct RoundRobinChannel {
    members: Vec<Member>,
    /// Members with events since the last turn: they may have requests to send or completions.
    touched: Vec<usize>,
    /// Index of the touched member whose completions are taken next.
    reaping: usize,
    /// Times at which members without events are polled: the poll interval, or an earlier deadline.
    due: BinaryHeap<Reverse<(Time, usize)>>,
    next: usize,
    /// Owner of each operation namespace, by its number; `None` until an owner registers.
    owners: Vec<Option<usize>>,
    look_at: Time,
    closing: bool,
}

impl RoundRobinChannel {
    /// The member that owns an operation namespace.
    fn owner(&mut self, op_namespace: OpNamespace) -> Option<usize> {
        let number = usize::from(op_namespace.0);
        if let Some(&Some(owner)) = self.owners.get(number)
            && self.members[owner].channel.owns(op_namespace)
        {
            return Some(owner);
        }
        let mut members = self.members.iter();
        let owner = members.position(|member| member.channel.owns(op_namespace))?;
        if self.owners.len() <= number {
            self.owners.resize(number + 1, None);
        }
        self.owners[number] = Some(owner);
        Some(owner)
    }

    /// Notes an event or a deadline of a member.
    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.members[index].listed, true) {
            self.touched.push(index);
        }
    }

    /// Ends a turn in which all events were handled: from now on the members' own deadlines count.
    fn settle(&mut self) {
        for index in self.touched.drain(..) {
            let member = &mut self.members[index];
            member.listed = false;
            let due = member.channel.deadline();
            if due < member.due {
                member.due = due;
                self.due.push(Reverse((due, index)));
            }
        }
    }
}

impl Channel for RoundRobinChannel {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        // A host without room does not delay the other hosts.
        for _ in 0..self.members.len() {
            let index = self.next;
            self.next = (index + 1) % self.members.len();
            let member = &mut self.members[index];
            match member.channel.submit(request, cx) {
                Submit::Queued => {
                    member.used = true;
                    self.touch(index);
                    return Submit::Queued;
                }
                Submit::Busy(back) => request = back,
                done @ Submit::Done(_) => return done,
            }
        }
        Submit::Busy(request)
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        for &index in &self.touched {
            self.members[index].channel.kick(cx);
        }
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        let known = self
            .owners
            .get(usize::from(op_namespace.0))
            .copied()
            .flatten();
        known.is_some_and(|owner| self.members[owner].channel.owns(op_namespace))
            || self
                .members
                .iter()
                .any(|member| member.channel.owns(op_namespace))
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if let Some(owner) = self.owner(completion.key.op_namespace) {
            self.members[owner].channel.complete(completion, cx);
            self.touch(owner);
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        while let Some(&index) = self.touched.get(self.reaping) {
            if let Some(completion) = self.members[index].channel.reap() {
                return Some(completion);
            }
            self.reaping += 1;
        }
        self.reaping = 0;
        self.settle();
        None
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if self.closing || cx.now >= self.look_at {
            self.look_at = cx.now + LOOK;
            for index in 0..self.members.len() {
                if self.members[index].used || self.closing {
                    self.touch(index);
                }
            }
        }
        while let Some(&Reverse((at, index))) = self.due.peek()
            && at <= cx.now
        {
            self.due.pop();
            if self.members[index].due == at {
                self.members[index].due = Time::NEVER;
                self.touch(index);
            }
        }
        for &index in &self.touched {
            self.members[index].channel.tick(cx);
        }
    }

    fn deadline(&self) -> Time {
        let touched = self.touched.iter();
        let deadlines = touched.map(|&index| self.members[index].channel.deadline());
        let due = self.due.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        deadlines
            .min()
            .unwrap_or(Time::NEVER)
            .min(due)
            .min(self.look_at)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        for member in &mut self.members {
            member.channel.close(cx);
        }
        self.closing = true;
    }

    fn closed(&self) -> bool {
        self.members.iter().all(|member| member.channel.closed())
    }

    fn abandon(&mut self, guard: &Guard) {
        for member in &mut self.members {
            member.channel.abandon(guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, LoadOptions, run};
    use block::device::Ram;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;
    use testing::device::TestDevice;

    /// A channel in memory that counts its requests, and completes them on the next turn.
    #[derive(Debug)]
    struct CountedChannel {
        ram: Box<dyn Channel>,
        requests: Arc<AtomicU64>,
        done: Vec<Completion>,
    }

    impl Channel for CountedChannel {
        fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
            // One request at a time, like a host with a shallow queue.
            if !self.done.is_empty() {
                return Submit::Busy(request);
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            match self.ram.submit(request, cx) {
                Submit::Done(completion) => {
                    self.done.push(completion);
                    Submit::Queued
                }
                other => other,
            }
        }

        fn reap(&mut self) -> Option<Completion> {
            self.done.pop()
        }

        fn deadline(&self) -> Time {
            if self.done.is_empty() {
                Time::NEVER
            } else {
                Time::ZERO
            }
        }
    }

    #[test]
    fn hosts_take_turns_and_every_connection_is_tried_before_the_start() {
        const HOSTS: usize = 7;
        let ram = Arc::new(Ram::new(4 << 20, 4096).unwrap());
        let counters: Vec<_> = (0..HOSTS).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let device = |requests: &Arc<AtomicU64>| {
            let requests = Arc::clone(requests);
            Arc::new(TestDevice::new(Arc::clone(&ram) as _, move |ram| {
                Box::new(CountedChannel {
                    ram,
                    requests: Arc::clone(&requests),
                    done: Vec::new(),
                })
            })) as Arc<dyn Device>
        };
        let load = |app: &str| Load {
            app: app.parse().unwrap(),
            device: Arc::new(RoundRobin::over(counters.iter().map(device).collect())),
        };
        let mut options = LoadOptions {
            warmup: Duration::ZERO,
            measured: Duration::from_millis(50),
            seed: 7,
            verify: true,
            prefill: true,
            hosts: 7,
            ..LoadOptions::default()
        };
        let measure = |load: Load, options: &LoadOptions| {
            run(&[load], options, &AtomicBool::new(false), &mut |_| {}).unwrap()
        };
        let report = measure(load("a:rw=randrw,depth=5"), &options);
        assert_eq!(report.errors(), 0, "{:?}", report.notes());
        let counts = || {
            counters
                .iter()
                .map(|counter| counter.swap(0, Ordering::Relaxed))
        };
        let all: Vec<_> = counts().collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(*least > 10 && most - least <= most / 10, "{all:?}");
        // One request per second. In this short time there are only the requests that check the
        // three connections of each host before the start, and the first request.
        options.prefill = false;
        options.verify = false;
        measure(load("a:rw=randread,rate=1,queues=3"), &options);
        let all: Vec<_> = counts().collect();
        assert!(all.iter().all(|count| (3..=4).contains(count)), "{all:?}");
    }
}

//! An application thread that changes the class of its requests.

use base::{Prng, Time};
use block::{Channel, Completion, Device, DeviceError, Request, Submit};
use host::SwitchedNamespace;
use reactor::{Context, Driver, IoSlice, OpNamespace};
use std::cell::Cell;
use std::rc::Rc;
use switch::{Class, PerClass};

/// The times at which threads change the class of their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Never.
    Never,
    /// Before one request in this many, to any class.
    Often(u64),
    /// The thread starts in the last class, and changes to its own class after this many requests.
    Late(u64),
}

/// One submitter per class, of which the thread uses one while requests of the other classes are
/// still outstanding: as if a thread opened its namespace again with another class.
#[derive(Debug)]
pub(crate) struct Changing {
    channels: PerClass<Box<dyn Channel>>,
    own: Class,
    class: Class,
    changes: Changes,
    submitted: u64,
    prng: Prng,
    count: Rc<Cell<u64>>,
}

impl Changing {
    /// Opens `device` for every class; `own` is the thread's class. Adds its class changes to
    /// `count`.
    pub(crate) fn open(
        device: &SwitchedNamespace,
        own: Class,
        changes: Changes,
        seed: u64,
        count: Rc<Cell<u64>>,
        driver: &mut dyn Driver,
    ) -> Result<Self, DeviceError> {
        let mut open = |class| device.clone().with_class(class).open(driver);
        let channels = [open(Class::ALL[0])?, open(Class::ALL[1])?];
        let last = Class::ALL[Class::COUNT - 1];
        Ok(Self {
            channels: PerClass::of(channels),
            own,
            class: if matches!(changes, Changes::Late(_)) {
                last
            } else {
                own
            },
            changes,
            submitted: 0,
            prng: Prng::from_seed(seed),
            count,
        })
    }

    fn change(&mut self) {
        let next = match self.changes {
            Changes::Often(one_in) if self.prng.chance(1, one_in) => {
                let index = self.prng.below(Class::COUNT as u64);
                Class::ALL[usize::try_from(index).expect("a few")]
            }
            Changes::Late(after) if self.submitted == after => self.own,
            _ => self.class,
        };
        let changed = u64::from(next != self.class);
        self.count.update(|count| count + changed);
        self.class = next;
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Box<dyn Channel>> {
        self.channels.iter_mut().map(|(_, channel)| channel)
    }
}

impl Channel for Changing {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.change();
        let submit = self.channels[self.class].submit(request, cx);
        self.submitted += u64::from(!matches!(submit, Submit::Busy(_)));
        submit
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.each().for_each(|channel| channel.kick(cx));
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        let mut channels = self.channels.iter();
        channels.any(|(_, channel)| channel.owns(op_namespace))
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        let owner = self.each().find(|channel| channel.owns(op_namespace));
        owner
            .expect("one of the channels has it")
            .complete(completion, cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.each().find_map(|channel| channel.reap())
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.each().for_each(|channel| channel.tick(cx));
    }

    fn deadline(&self) -> Time {
        // Every channel is queried: the query also notes that its thread sleeps.
        let deadlines = self.channels.iter().map(|(_, channel)| channel.deadline());
        deadlines.min().unwrap_or(Time::NEVER)
    }

    fn memory(&mut self, bytes: usize) -> Option<IoSlice> {
        // Memory lent by one channel may be used with another channel.
        self.channels[self.class].memory(bytes)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.each().for_each(|channel| channel.close(cx));
    }

    fn closed(&self) -> bool {
        self.channels.iter().all(|(_, channel)| channel.closed())
    }
}

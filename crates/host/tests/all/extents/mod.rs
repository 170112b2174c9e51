//! A manually run core, with a channel to a controller that supports commands over extents.
#![allow(dead_code)] // Each test file uses its own part of it.
#![allow(unreachable_pub)] // A module of test programs, which export nothing.
#![allow(clippy::unwrap_used)] // A helper of tests: what fails here fails the test.

use crate::peer::{self, Behaviour, Peer};
use crate::setup;
use base::units::Lba;
use base::{Nanos, Time};
use block::{
    BlockError, Channel, Completion, Extent, Extents, Operation, Request, Submit, SubmitExtents,
};
use host::{Host, HostBuilder, RemoteChannel, RemoteNamespace, Subsystem};
use reactor::uring::UringDriver;
use reactor::{Context, Driver, IoSlice, Wait};
use std::time::{Duration, Instant};
use wire::nvme::ExtentTerms;

pub const BLOCK: usize = peer::BLOCK;

pub const WRITE: Operation = Operation::Write { durable: false };

/// Time after which a waiting test counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks of the extents of every command, with a gap of one block.
pub const RANGES: [(u64, u32); 2] = [(0, 2), (3, 2)];

/// Limits of `in_flight` commands over extents at a time, with `extents` extents each.
pub fn terms(in_flight: u16, extents: u16) -> ExtentTerms {
    ExtentTerms {
        extents,
        in_flight,
        bytes: 1 << 20,
        outcomes: false,
    }
}

/// A controller that accepts `in_flight` commands over extents at a time, with writes in their
/// capsules.
pub fn takes(in_flight: u16) -> Behaviour {
    Behaviour {
        in_capsule_bytes: 8192,
        extents: Some(terms(in_flight, 8)),
        ..Behaviour::default()
    }
}

/// A manually run core.
pub struct Core {
    pub driver: UringDriver,
    pub channel: RemoteChannel,
    pub done: Vec<Completion>,
    pub done_extents: Vec<Extents>,
}

impl Core {
    pub fn open(namespace: &RemoteNamespace) -> Self {
        let mut driver = setup::driver();
        Self {
            channel: namespace.open_remote(&mut driver).unwrap(),
            driver,
            done: Vec::new(),
            done_extents: Vec::new(),
        }
    }

    pub fn turn(&mut self) {
        let mut completions = Vec::new();
        let mut cx = Context::begin(&mut self.driver);
        self.channel.kick(&mut cx);
        let wait = Wait::Until(self.driver.now() + Nanos::from_millis(1));
        self.driver.reap(wait, &mut completions).unwrap();
        let mut cx = Context::begin(&mut self.driver);
        for completion in completions {
            self.channel.complete(completion, &mut cx);
        }
        self.channel.tick(&mut cx);
        self.done.extend(std::iter::from_fn(|| self.channel.reap()));
        let extents = std::iter::from_fn(|| self.channel.reap_extents());
        self.done_extents.extend(extents);
    }

    pub fn turn_until(&mut self, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "nothing happens any more");
            self.turn();
        }
    }

    pub fn buffer(&self, bytes: usize, content: u8) -> IoSlice {
        let mut data = IoSlice::from_buffer(self.driver.buffers().take(bytes).unwrap(), bytes);
        data.copy_in(0, &vec![content; bytes]);
        data
    }

    /// Makes a command over [`RANGES`] with this content.
    pub fn command(&self, tag: u64, operation: Operation, content: u8) -> Extents {
        let extents = RANGES.map(|(lba, blocks)| Extent {
            tag: lba,
            lba: Lba(lba),
            blocks,
            data: Some(self.buffer(blocks as usize * BLOCK, content)),
            result: Ok(()),
        });
        Extents {
            tag,
            operation,
            extents: extents.into(),
        }
    }

    pub fn submit_until(&mut self, command: Extents, limit: Time) {
        let mut cx = Context::begin(&mut self.driver);
        match self.channel.submit_extents_until(command, limit, &mut cx) {
            SubmitExtents::Queued => {}
            SubmitExtents::Done(command) => self.done_extents.push(command),
            SubmitExtents::Busy(command) => panic!("no room for {command:?}"),
        }
    }

    pub fn submit(&mut self, tag: u64, operation: Operation, content: u8) {
        self.submit_until(self.command(tag, operation, content), Time::NEVER);
    }

    /// Writes a block.
    pub fn write(&mut self, tag: u64, lba: u64, content: u8) {
        let request = Request {
            tag,
            operation: WRITE,
            lba: Lba(lba),
            blocks: 1,
            data: Some(self.buffer(BLOCK, content)),
        };
        let mut cx = Context::begin(&mut self.driver);
        let queued = self.channel.submit(request, &mut cx);
        assert!(matches!(queued, Submit::Queued), "{queued:?}");
    }

    /// Returns the result of the next completed request, which must have this tag.
    pub fn one(&mut self, tag: u64) -> Result<(), BlockError> {
        self.turn_until(|core| !core.done.is_empty());
        let done = self.done.remove(0);
        assert_eq!(done.tag, tag);
        done.result
    }

    /// Returns the result and memory of the next completed command over extents, which must have
    /// this tag and the same result for all extents.
    pub fn ended(&mut self, tag: u64) -> (Result<(), BlockError>, Vec<IoSlice>) {
        self.turn_until(|core| !core.done_extents.is_empty());
        let done = self.done_extents.remove(0);
        assert_eq!((done.tag, done.extents.len()), (tag, RANGES.len()));
        let result = done.extents[0].result;
        let memory = done.extents.into_iter().map(|extent| {
            assert_eq!(extent.result, result);
            let mut data = extent.data.unwrap();
            assert!(data.bytes_mut().is_some(), "it is its submitter's alone");
            data
        });
        (result, memory.collect())
    }

    pub fn cancel(&mut self, tag: u64) -> bool {
        let mut cx = Context::begin(&mut self.driver);
        self.channel.cancel(tag, &mut cx)
    }
}

/// Starts a controller with this behaviour, and a host with its namespace. Both must outlive the
/// namespace.
pub fn start(
    behaviour: Behaviour,
    builder: HostBuilder,
) -> (Peer, (Host, Subsystem), RemoteNamespace) {
    let peer = Peer::start(1 << 20, behaviour);
    let host = builder.build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), peer::NQN).unwrap();
    let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
    (peer, (host, subsystem), remote)
}

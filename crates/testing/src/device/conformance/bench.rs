//! A core that is driven by hand: one driver, one channel, and blocking calls.

use base::units::Lba;
use base::{Nanos, Time};
use block::device::{Capabilities, Channel, Device, DeviceError, Geometry, Submit};
use block::extents::Extents;
use block::request::{BlockError, Completion, Operation, Request};
use reactor::{Context, Driver, IoSlice, Wait};
use std::collections::VecDeque;

/// Time-out of a wait, in seconds of the driver's clock.
const PATIENCE_SECONDS: u32 = 120;

/// A driver and a channel on it.
#[derive(Debug)]
pub struct Bench<D: Driver> {
    driver: D,
    channel: Box<dyn Channel>,
    geometry: Geometry,
    capabilities: Capabilities,
    completions: Vec<reactor::Completion>,
    finished: VecDeque<Completion>,
    next_tag: u64,
}

impl<D: Driver> Bench<D> {
    /// Opens `device` on `driver`.
    ///
    /// # Errors
    /// The device's error.
    pub fn open(mut driver: D, device: &dyn Device) -> Result<Self, DeviceError> {
        Ok(Self {
            channel: device.open(&mut driver)?,
            driver,
            geometry: device.geometry(),
            capabilities: device.capabilities(),
            completions: Vec::new(),
            finished: VecDeque::new(),
            next_tag: 1,
        })
    }

    /// The device's size when it was opened.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the capabilities of the device.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Returns [`Channel::is_back`].
    #[must_use]
    pub fn is_back(&self) -> bool {
        self.channel.is_back()
    }

    /// Returns the time by which the channel needs its next turn.
    pub fn deadline(&self) -> Time {
        self.channel.deadline()
    }

    /// The driver.
    pub fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Returns an unused tag.
    pub fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Takes `bytes` bytes of one of the driver's buffers, with undefined content; `None` if all
    /// buffers are in use.
    #[must_use]
    pub fn buffer(&self, bytes: usize) -> Option<IoSlice> {
        let mut buffer = self.driver.buffers().take(bytes)?;
        buffer.fill(0xEE);
        Some(IoSlice::from_buffer(buffer, bytes))
    }

    /// Builds a request; its data, if it has any, is as long as the range.
    ///
    /// # Panics
    /// If no buffer is left.
    pub fn request(&mut self, operation: Operation, lba: u64, blocks: u32) -> Request {
        let bytes = blocks as usize * self.geometry.block_bytes as usize;
        let data = operation
            .has_data()
            .then(|| self.buffer(bytes).expect("a free buffer"));
        Request {
            tag: self.tag(),
            operation,
            lba: Lba(lba),
            blocks,
            data,
        }
    }

    /// Submits a request to the channel.
    pub fn submit(&mut self, request: Request) -> Submit {
        let mut cx = Context::begin(&mut self.driver);
        self.channel.submit(request, &mut cx)
    }

    /// One turn of the core, which sleeps until an event, at most for `patience`. Returns true if a
    /// request completed.
    ///
    /// # Panics
    /// If the driver fails, or an operation completes that is not the channel's.
    pub fn turn(&mut self, patience: Nanos) -> bool {
        let mut cx = Context::begin(&mut self.driver);
        self.channel.kick(&mut cx);
        let mut found = self.reap();
        let now = self.driver.now();
        let until = self.channel.deadline().min(now + patience);
        let wait = if found || until <= now {
            Wait::No
        } else {
            Wait::Until(until)
        };
        self.driver
            .reap(wait, &mut self.completions)
            .expect("the driver works");
        let mut cx = Context::begin(&mut self.driver);
        for completion in self.completions.drain(..) {
            let op_namespace = completion.key.op_namespace;
            assert!(
                self.channel.owns(op_namespace),
                "the channel does not own {op_namespace:?}"
            );
            self.channel.complete(completion, &mut cx);
        }
        self.channel.tick(&mut cx);
        found |= self.reap();
        found
    }

    fn reap(&mut self) -> bool {
        let before = self.finished.len();
        while let Some(completion) = self.channel.reap() {
            self.finished.push_back(completion);
        }
        self.finished.len() > before
    }

    /// Runs turns until `done`.
    ///
    /// # Panics
    /// If it is not done after two minutes of the driver's time without an event.
    pub fn turn_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut patience = PATIENCE_SECONDS;
        while !done(self) {
            let before = self.driver.now();
            if self.turn(Nanos::from_secs(1)) {
                patience = PATIENCE_SECONDS;
            } else if self.driver.now().since(before) >= Nanos::from_millis(500) {
                patience -= 1;
            }
            assert!(patience > 0, "{what}: nothing happens any more");
        }
    }

    /// Takes an available completion, if any.
    pub fn finished(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }

    /// Runs a command over several extents alone, and waits for its completion.
    ///
    /// # Panics
    /// If the channel has no room although nothing is in flight, or a different command completes.
    pub fn run_extents(&mut self, command: Extents) -> Extents {
        let tag = command.tag;
        let mut cx = Context::begin(&mut self.driver);
        let mut done = match self.channel.submit_extents(command, &mut cx) {
            Submit::Done(command) => Some(command),
            Submit::Queued => None,
            Submit::Busy(command) => panic!("no room for {command:?}"),
        };
        self.turn_until("a command over extents", |bench| {
            done = done.take().or_else(|| bench.channel.reap_extents());
            done.is_some()
        });
        let done = done.expect("it was waited for");
        assert_eq!(done.tag, tag, "the tag comes back");
        done
    }

    /// Waits for the next completion.
    pub fn wait(&mut self) -> Completion {
        self.turn_until("a completion", |bench| !bench.finished.is_empty());
        self.finished.pop_front().expect("one was there")
    }

    /// Runs a request alone; waits for room and for its completion.
    ///
    /// # Panics
    /// If the completion is not the request's.
    pub fn run(&mut self, request: Request) -> Completion {
        let tag = request.tag;
        let len = request.data.as_ref().map(IoSlice::len);
        let mut waiting = Some(request);
        let mut done = None;
        self.turn_until("room for a request", |bench| {
            match waiting.take().map(|request| bench.submit(request)) {
                Some(Submit::Done(completion)) => done = Some(completion),
                Some(Submit::Busy(request)) => waiting = Some(request),
                Some(Submit::Queued) | None => {}
            }
            waiting.is_none()
        });
        let completion = done.unwrap_or_else(|| self.wait());
        assert_eq!(completion.tag, tag, "the tag comes back");
        let returned = completion.data.as_ref().map(IoSlice::len);
        assert_eq!(returned, len, "the data comes back whole");
        completion
    }

    /// Runs an operation without data, or with arbitrary data.
    pub fn operate(
        &mut self,
        operation: Operation,
        lba: u64,
        blocks: u32,
    ) -> Result<(), BlockError> {
        let request = self.request(operation, lba, blocks);
        self.run(request).result
    }

    /// Reads blocks.
    ///
    /// # Errors
    /// The device's error.
    pub fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, BlockError> {
        let request = self.request(Operation::Read, lba, blocks);
        let completion = self.run(request);
        completion.result?;
        let mut bytes = Vec::new();
        completion
            .data
            .expect("a read has data")
            .append_to(0, &mut bytes);
        Ok(bytes)
    }

    /// Runs an operation with the given data, which must be whole blocks.
    ///
    /// # Errors
    /// The device's error.
    pub fn send(&mut self, operation: Operation, lba: u64, data: &[u8]) -> Result<(), BlockError> {
        let blocks = data.len() / self.geometry.block_bytes as usize;
        let blocks = u32::try_from(blocks).expect("a request has fewer than 2^32 blocks");
        let mut request = self.request(operation, lba, blocks);
        request
            .data
            .as_mut()
            .expect("an operation with data")
            .copy_in(0, data);
        self.run(request).result
    }

    /// Writes blocks.
    ///
    /// # Errors
    /// The device's error.
    pub fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), BlockError> {
        self.send(Operation::Write { durable: false }, lba, data)
    }

    /// Closes the channel, and waits until it is closed. Requests that were in flight can be taken
    /// by [`finished`](Self::finished) afterwards.
    pub fn shut(&mut self) {
        let mut cx = Context::begin(&mut self.driver);
        self.channel.close(&mut cx);
        self.turn_until("the end of a channel", |bench| bench.channel.closed());
        self.reap();
    }

    /// Closes the channel, which has nothing in flight, and returns the driver.
    ///
    /// # Panics
    /// If it returns an unexpected completion.
    pub fn close(mut self) -> D {
        self.shut();
        let left = self.finished.pop_front();
        assert!(left.is_none(), "no request waits for {left:?}");
        assert_eq!(
            self.channel.deadline(),
            Time::NEVER,
            "a closed channel waits for nothing"
        );
        self.driver
    }
}

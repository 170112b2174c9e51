//! After start, sending, receiving, file I/O and sleeping do not allocate.

use base::{Nanos, Time};
use reactor::uring::{Options, UringDriver};
use reactor::{
    Completion, Driver, FileId, IoSlice, Memory, Op, OpKey, OpNamespace, Outcome, Region, SendList,
    SocketId, SocketOptions, Wait,
};
use std::sync::Arc;

const SENT: OpKey = OpKey::single(OpNamespace(0), 1);
const RECEIVED: OpKey = OpKey::single(OpNamespace(0), 2);
const FILE: OpKey = OpKey::single(OpNamespace(0), 3);

/// A core's driver with both ends of a connection, and the data of one exchange.
struct Exchange {
    driver: UringDriver,
    near: SocketId,
    far: SocketId,
    file: FileId,
    list: Option<Box<SendList>>,
    payload: reactor::RegionHandle,
    completions: Vec<Completion>,
}

impl Exchange {
    fn new() -> Self {
        let mut driver = UringDriver::new(&Options::default()).expect("a ring");
        let options = SocketOptions::default();
        let local = "127.0.0.1:0".parse().expect("an address");
        let (listener, address) = driver.listen(local, &options).expect("a free port");
        let timeout = Nanos::from_secs(5);
        driver.submit(
            OpKey::single(OpNamespace(0), 8),
            Op::Connect {
                address,
                options,
                timeout,
            },
        );
        driver.submit(OpKey::single(OpNamespace(0), 9), Op::Accept { listener });
        let (mut near, mut far) = (None, None);
        let mut completions = Vec::new();
        while near.is_none() || far.is_none() {
            driver
                .reap(Wait::Until(Time::NEVER), &mut completions)
                .expect("the ring works");
            for completion in completions.drain(..) {
                match completion.outcome {
                    Outcome::Connected(socket) => near = Some(socket.expect("connected")),
                    Outcome::Accepted(accepted) => {
                        far = Some(driver.adopt(accepted.expect("accepted").0));
                    }
                    _ => unreachable!("nothing else was submitted"),
                }
            }
        }
        let file = rustix::fs::memfd_create("temporary", rustix::fs::MemfdFlags::CLOEXEC);
        let file = Arc::new(file.expect("a file in memory").into());
        let file = driver.open_file(file).expect("opened");
        Self {
            near: near.expect("connected"),
            far: far.expect("accepted"),
            file,
            list: Some(Box::new(SendList::new())),
            payload: Region::new(8192).expect("a mapping").handle(),
            completions: Vec::with_capacity(64),
            driver,
        }
    }

    /// Sends a header and a payload, receives them, and writes a block to the file.
    fn once(&mut self, wait: Wait) {
        let mut list = self.list.take().expect("handed back");
        list.push_header(b"header");
        list.push_payload(IoSlice::new(Memory::Region(self.payload.clone()), 0, 8192));
        let expected = list.bytes();
        self.driver.submit(
            RECEIVED,
            Op::Receive {
                socket: self.far,
                into: None,
            },
        );
        self.driver.submit(
            SENT,
            Op::Send {
                socket: self.near,
                list,
            },
        );
        let buffer = self.driver.buffers().take(4096).expect("a buffer");
        let slice = IoSlice::from_buffer(buffer, 4096);
        let write = Op::Write {
            file: self.file,
            offset: 0,
            slice,
            durable: false,
        };
        self.driver.submit(FILE, write);
        let (mut received, mut written) = (0, false);
        while received < expected || !written || self.list.is_none() {
            self.driver
                .reap(wait, &mut self.completions)
                .expect("the ring works");
            for completion in self.completions.drain(..) {
                match completion.outcome {
                    Outcome::Sent { mut list, result } => {
                        result.expect("sent");
                        list.clear();
                        self.list = Some(list);
                    }
                    Outcome::Received(got) => {
                        got.result.expect("received");
                        received += got.rest.expect("data").1;
                        if received < expected {
                            let more = Op::Receive {
                                socket: self.far,
                                into: None,
                            };
                            self.driver.submit(RECEIVED, more);
                        }
                    }
                    Outcome::File { result, .. } => {
                        assert_eq!(result.expect("written"), 4096);
                        written = true;
                    }
                    _ => unreachable!("nothing else was submitted"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_core_allocates_nothing() {
        let mut exchange = Exchange::new();
        for wait in [Wait::No, Wait::Until(Time::NEVER)] {
            for _ in 0..100 {
                exchange.once(wait);
            }
            let counted = allocation_counter::measure(|| {
                for _ in 0..1_000 {
                    exchange.once(wait);
                }
            });
            assert_eq!(
                counted.count_total, 0,
                "allocations in 1,000 exchanges, {wait:?}"
            );
        }
    }
}

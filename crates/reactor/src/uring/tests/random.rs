//! Random operations on many connections: each completes exactly once, and the bytes arrive as
//! sent.

use super::*;
use base::Prng;
use std::collections::HashMap;

/// Maximum total bytes sent by one socket.
const STREAM_BYTES: u64 = 400_000;

/// One end of a connection, with a model of its sent and received data.
struct End {
    socket: SocketId,
    peer: usize,
    seed: u64,
    /// Bytes passed to sends, and how many of them were confirmed.
    sent: u64,
    confirmed: u64,
    received: u64,
    sending: bool,
    receiving: bool,
    closing: bool,
    closed: bool,
    ended: bool,
}

/// The byte at an offset of a stream, a hash of both.
fn byte(seed: u64, at: u64) -> u8 {
    let mixed = (seed ^ at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed.to_le_bytes()[5]
}

struct Play {
    driver: UringDriver,
    prng: Prng,
    ends: Vec<End>,
    /// Pending operations: exactly one completion must arrive for each.
    pending: HashMap<u32, &'static str>,
    next: u32,
    stalls: u64,
}

impl Play {
    fn new(seed: u64) -> Self {
        let buffers = vec![BufferClass {
            bytes: 4096,
            count: 4096,
        }];
        let options = Options {
            buffers,
            sockets: 200,
            file_operations: 4,
        };
        Self {
            driver: UringDriver::new(&options).expect("a ring"),
            prng: Prng::from_seed(seed),
            ends: Vec::new(),
            pending: HashMap::new(),
            next: 0,
            stalls: 0,
        }
    }

    fn open(&mut self) {
        let options = SocketOptions {
            buffer_bytes: 4096 << self.prng.below(3),
            ..SocketOptions::default()
        };
        let (near, far) = pair_with(&mut self.driver, &options);
        let count = self.ends.len();
        for (socket, peer) in [(near, count + 1), (far, count)] {
            self.ends.push(End {
                socket,
                peer,
                seed: self.prng.next_u64(),
                sent: 0,
                confirmed: 0,
                received: 0,
                sending: false,
                receiving: false,
                closing: false,
                closed: false,
                ended: false,
            });
        }
    }

    /// Starts an operation under a unique key: the end's index is the namespace, a running number
    /// the index.
    fn start(&mut self, end: usize, what: &'static str, op: Op) {
        let number = self.next;
        self.next += 1;
        let end = u16::try_from(end).expect("few ends");
        self.pending.insert(number, what);
        let key = OpKey {
            op_namespace: OpNamespace(end),
            kind: 0,
            generation: 0,
            index: number,
        };
        self.driver.submit(key, op);
    }

    fn send(&mut self, index: usize) {
        let end = &mut self.ends[index];
        let ranges = 1 + self.prng.below(5);
        let mut list = Box::new(SendList::with_capacity(64, 16));
        for _ in 0..ranges {
            let header = 1 + self.prng.below(12);
            let bytes: Vec<u8> = (0..header).map(|i| byte(end.seed, end.sent + i)).collect();
            list.push_header(&bytes);
            end.sent += header;
            let Some(mut buffer) = self.driver.buffers().take(1) else {
                break;
            };
            let len = self.prng.below(4097);
            for (i, slot) in (0..len).zip(buffer.iter_mut()) {
                *slot = byte(end.seed, end.sent + i);
            }
            let len_here = usize::try_from(len).expect("small");
            list.push_payload(IoSlice::from_buffer(buffer, len_here));
            end.sent += len;
        }
        end.sending = true;
        let socket = end.socket;
        self.start(index, "send", Op::Send { socket, list });
    }

    fn receive(&mut self, index: usize) {
        let into = if self.prng.chance(1, 2) {
            let buffer = self.driver.buffers().take(1);
            let len = usize::try_from(self.prng.below(4097)).expect("small");
            buffer.map(|buffer| IoSlice::from_buffer(buffer, len))
        } else {
            None
        };
        self.ends[index].receiving = true;
        let socket = self.ends[index].socket;
        self.start(index, "receive", Op::Receive { socket, into });
    }

    /// Starts a random operation on a random end.
    fn act(&mut self, closing: bool) {
        let index = usize::try_from(self.prng.below(self.ends.len() as u64)).expect("few");
        let end = &self.ends[index];
        if end.closing {
            return;
        }
        match self.prng.below(if closing { 12 } else { 11 }) {
            0..5 if !end.sending && end.sent < STREAM_BYTES && !end.ended => self.send(index),
            5..11 if !end.receiving && !end.ended => self.receive(index),
            11 if self.prng.chance(1, 30) => {
                self.ends[index].closing = true;
                let socket = self.ends[index].socket;
                self.start(index, "close", Op::Close { socket });
            }
            _ => {}
        }
    }

    fn check(&mut self, index: usize, bytes: &[u8]) {
        let from = self.ends[self.ends[index].peer].seed;
        let end = &mut self.ends[index];
        for &got in bytes {
            assert_eq!(got, byte(from, end.received), "at byte {}", end.received);
            end.received += 1;
        }
    }

    fn apply(&mut self, completion: Completion) {
        let what = self.pending.remove(&completion.key.index);
        let what = what.unwrap_or_else(|| panic!("completed twice: {completion:?}"));
        let index = usize::from(completion.key.op_namespace.0);
        assert!(!self.ends[index].closed, "{what} completed after the close");
        match completion.outcome {
            Outcome::Sent { result, .. } => {
                assert_eq!(what, "send");
                let end = &mut self.ends[index];
                end.sending = false;
                if result.is_ok() {
                    end.confirmed = end.sent;
                } else {
                    let peer = end.peer;
                    assert!(self.ends[index].closing || self.ends[peer].closing);
                    self.ends[index].ended = true;
                }
            }
            Outcome::Received(got) => {
                assert_eq!(what, "receive");
                self.ends[index].receiving = false;
                if let Some(into) = &got.into {
                    let bytes = into.bytes().expect("a buffer")[..got.filled].to_vec();
                    self.check(index, &bytes);
                }
                if let Some((buffer, len)) = &got.rest {
                    let bytes = buffer[..*len].to_vec();
                    self.check(index, &bytes);
                }
                if got.result.is_err() {
                    let peer = self.ends[index].peer;
                    assert!(self.ends[index].closing || self.ends[peer].closing);
                    self.ends[index].ended = true;
                }
            }
            Outcome::Closed => {
                assert_eq!(what, "close");
                self.ends[index].closed = true;
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn turn(&mut self, wait: Wait) {
        let mut completions = Vec::new();
        self.driver
            .reap(wait, &mut completions)
            .expect("the ring works");
        for completion in completions {
            self.apply(completion);
        }
        self.stalls = self.driver.stats().send_stalls;
    }

    fn wait(&mut self, policy: Policy) -> Wait {
        let until = self.driver.now() + Nanos(self.prng.below(300_000));
        match policy {
            Policy::Poll => Wait::No,
            Policy::Sleep => Wait::Until(until),
            Policy::Mixed if self.prng.chance(1, 2) => Wait::No,
            Policy::Mixed => Wait::Until(until),
        }
    }

    /// Everything sent on connections that stay open arrives.
    fn drain(&mut self, policy: Policy) {
        let deadline = self.driver.now() + Nanos::from_secs(20);
        loop {
            assert!(self.driver.now() < deadline, "pending: {:?}", self.pending);
            let mut waiting = false;
            for index in 0..self.ends.len() {
                let end = &self.ends[index];
                let peer = &self.ends[end.peer];
                if end.closing || end.ended {
                    continue;
                }
                let more = end.received < peer.sent || peer.closing;
                waiting |= more || end.sending;
                if more && !end.receiving {
                    self.receive(index);
                }
            }
            if !waiting {
                break;
            }
            let wait = self.wait(policy);
            self.turn(wait);
        }
        for index in 0..self.ends.len() {
            if !self.ends[index].closing {
                self.ends[index].closing = true;
                let socket = self.ends[index].socket;
                self.start(index, "close", Op::Close { socket });
            }
        }
        while !self.pending.is_empty() {
            assert!(self.driver.now() < deadline, "pending: {:?}", self.pending);
            let wait = self.wait(policy);
            self.turn(wait);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    Poll,
    Sleep,
    Mixed,
}

fn play(seed: u64, policy: Policy, connections: usize) {
    let mut play = Play::new(seed);
    for _ in 0..connections {
        play.open();
    }
    for step in 0..1_500 {
        for _ in 0..play.prng.below(8) {
            play.act(step > 300);
        }
        let wait = play.wait(policy);
        play.turn(wait);
    }
    play.drain(policy);
    assert!(play.stalls > 0, "no send ever found the buffers full");
    assert!(play.ends.iter().all(|end| end.closed));
    assert!(play.driver.sockets.is_empty());
    let (_, free, _) = play.driver.receive_buffers.usage().next().expect("a size");
    assert_eq!(free, RECEIVE_BUFFERS, "a receive buffer is lost");
    let (_, free, _) = play.driver.buffers().usage().next().expect("a size");
    assert_eq!(free, 4096, "a buffer is lost");
    // Only the event counter is left in the ring.
    assert_eq!(play.driver.operations.len(), 1);
}

#[test]
fn random_traffic_arrives_and_every_operation_completes_once() {
    for (seed, policy, connections) in [
        (1, Policy::Poll, 4),
        (2, Policy::Sleep, 4),
        (3, Policy::Mixed, 4),
        (4, Policy::Poll, 40),
        (5, Policy::Sleep, 40),
        (6, Policy::Mixed, 40),
    ] {
        println!("seed {seed}, {policy:?}, {connections} connections");
        play(seed, policy, connections);
    }
}

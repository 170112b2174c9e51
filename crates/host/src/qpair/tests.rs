//! Memory of commands while sends carry it: an idle driver holds the sends.

use super::{Join, Qpair, QpairConfig};
use crate::command::BlockRequest;
use crate::command::exchange::{Direction, Exchange, Work};
use crate::{ConnectOptions, HostIdentity};
use base::units::Lba;
use base::{Nanos, Time};
use block::Operation;
use reactor::testing::{PassThrough, Replace};
use reactor::uring::{Options, UringDriver};
use reactor::{
    BufferClass, Completion, Context, Driver as _, IoSlice, Memory, Op, OpKey, OpNamespace,
    Outcome, Received, Region, SendList, SendListPool, SocketId,
};
use std::net::SocketAddr;
use wire::fabrics::ConnectData;
use wire::nvme::Status;
use wire::tcp::{CapsuleResp, DataAlignment, IcResp, PduFormat, R2t};

const BLOCK: usize = 512;

/// In-capsule data of a command, in bytes.
const IN_CAPSULE: usize = 4096;

/// A driver that accepts operations and completes none.
#[derive(Default)]
struct Still {
    ops: Vec<(OpKey, Op)>,
}

impl Replace for Still {
    fn now(&self, _: &UringDriver) -> Time {
        Time::ZERO
    }

    fn submit(&mut self, _: &mut UringDriver, key: OpKey, op: Op) {
        self.ops.push((key, op));
    }
}

/// A live connection, with memory of its submitter.
struct Bench {
    qpair: Qpair,
    driver: PassThrough<Still>,
    region: Region,
}

impl Bench {
    fn new() -> Self {
        let nqn = crate::parse_nqn("nqn.2026-11.io.switchyard:still").expect("a valid name");
        let identity = HostIdentity { nqn, id: [7; 16] };
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        let options = ConnectOptions::new(address, nqn, identity);
        let (config, lists) = (QpairConfig::new(&options, true), SendListPool::default());
        let qpair = Qpair::new(config, OpNamespace(0), 0, 4, &lists);
        let class = BufferClass {
            bytes: IN_CAPSULE,
            count: 4,
        };
        let options = Options {
            buffers: vec![class],
            sockets: 1,
            file_operations: 1,
        };
        let mut bench = Self {
            qpair,
            driver: PassThrough {
                inner: UringDriver::new(&options).expect("io_uring works here"),
                replaced: Still::default(),
            },
            region: Region::new(1 << 20).expect("a small mapping"),
        };
        let join = Join {
            address: SocketAddr::from(([127, 0, 0, 1], 4420)),
            queue_id: 1,
            sq_size: 4,
            keep_alive_ms: 0,
            data: Box::new(ConnectData::new([7; 16], 1, &nqn, &nqn)),
            in_capsule_bytes: u32::try_from(IN_CAPSULE).expect("a page"),
            priority: 0,
        };
        let cx = &mut Self::cx(&mut bench.driver);
        bench.qpair.open(join, Nanos::from_secs(1), cx);
        let (key, _) = bench.driver.replaced.ops.remove(0);
        bench.apply(key, Outcome::Connected(Ok(SocketId(0))));
        bench.sent();
        let response = IcResp {
            controller_alignment: DataAlignment::DWORD,
            header_digest: false,
            data_digest: false,
            max_h2c_data: 1 << 20,
        };
        bench.receive(&response.to_bytes());
        bench.sent();
        bench.answer(0, Status::SUCCESS);
        assert!(bench.qpair.is_live());
        bench
    }

    /// Starts a write of the first `bytes` bytes of the region.
    fn write(&mut self, tag: u64, bytes: usize) {
        let work = Work::Block(BlockRequest {
            operation: Operation::Write { durable: false },
            nsid: 1,
            namespace: 0,
            lba: Lba(0),
            blocks: u32::try_from(bytes / BLOCK).expect("a few"),
            blocks_done: 0,
            blocks_left: 0,
            private_data: false,
            extent_of: None,
        });
        let data = IoSlice::new(Memory::Region(self.region.handle()), 0, bytes);
        let exchange = Exchange::new(tag, work, Direction::Out, Some(data));
        self.qpair.start(exchange, Time::ZERO);
        self.pump();
    }

    fn cx(driver: &mut PassThrough<Still>) -> Context<'_> {
        Context {
            now: Time::ZERO,
            driver,
        }
    }

    fn pump(&mut self) {
        self.qpair.pump(&mut Self::cx(&mut self.driver));
    }

    /// Completes the send in flight.
    fn sent(&mut self) {
        let is_send = |(_, op): &(OpKey, Op)| matches!(op, Op::Send { .. });
        let at = self.driver.replaced.ops.iter().position(is_send);
        let (key, op) = self
            .driver
            .replaced
            .ops
            .remove(at.expect("a send is under way"));
        let Op::Send { list, .. } = op else {
            unreachable!("it was looked for");
        };
        let outcome = Outcome::Sent {
            list,
            result: Ok(()),
        };
        self.apply(key, outcome);
    }

    fn send(&self) -> Option<&SendList> {
        self.driver
            .replaced
            .ops
            .iter()
            .find_map(|(_, op)| match op {
                Op::Send { list, .. } => Some(&**list),
                _ => None,
            })
    }

    /// Receives these bytes from the controller.
    fn receive(&mut self, bytes: &[u8]) {
        let mut buffer = self
            .driver
            .buffers()
            .take(bytes.len())
            .expect("a free buffer");
        buffer[..bytes.len()].copy_from_slice(bytes);
        let is_receive = |(_, op): &(OpKey, Op)| matches!(op, Op::Receive { .. });
        let at = self.driver.replaced.ops.iter().position(is_receive);
        let (key, _) = self
            .driver
            .replaced
            .ops
            .remove(at.expect("it receives all the time"));
        let received = Received {
            into: None,
            filled: 0,
            rest: Some((buffer, bytes.len())),
            result: Ok(()),
        };
        self.apply(key, Outcome::Received(received));
    }

    fn apply(&mut self, key: OpKey, outcome: Outcome) {
        let completion = Completion { key, outcome };
        let cx = &mut Self::cx(&mut self.driver);
        self.qpair.apply(completion, cx);
    }

    /// Receives an R2T for all data of the command in a slot.
    fn ask(&mut self, slot: u16, bytes: usize) {
        let r2t = R2t {
            command_id: self.qpair.table.cid(slot),
            transfer_tag: 9,
            offset: 0,
            length: u32::try_from(bytes).expect("at most a transfer"),
        };
        let mut out = [0; 128];
        let length = r2t.encode(&PduFormat::PLAIN, &mut out);
        self.receive(&out[..length]);
    }

    fn answer(&mut self, slot: u16, status: Status) {
        let completion = wire::nvme::Completion::new(self.qpair.table.cid(slot), 0, status);
        let mut out = [0; 128];
        let length = CapsuleResp { completion }.encode(&PduFormat::PLAIN, &mut out);
        self.receive(&out[..length]);
    }
}

/// A write of registered memory whose Abort is answered does not complete while a send still reads
/// the memory: later changes of the memory would reach the target.
#[test]
fn an_answer_waits_for_the_sends_that_carry_the_data() {
    let bytes = 64 * 1024;
    let mut bench = Bench::new();
    bench.write(1, bytes);
    bench.sent();
    bench.ask(0, bytes);
    assert!(bench.send().is_some_and(|list| list.bytes() > bytes));
    bench.answer(0, Status::ABORTED_BY_REQUEST);
    assert!(bench.qpair.table.take_finished().is_none());
    bench.sent();
    let finished = bench.qpair.table.take_finished();
    assert_eq!(finished.expect("no send has it").exchange.tag, 1);
}

/// The same while the data is still in a filling list.
#[test]
fn an_answer_waits_for_data_that_waits_for_another_send() {
    let mut bench = Bench::new();
    bench.write(1, IN_CAPSULE);
    bench.write(2, IN_CAPSULE);
    bench.answer(1, Status::INTERNAL_ERROR);
    bench.sent();
    assert!(bench.qpair.table.take_finished().is_none());
    bench.sent();
    let finished = bench.qpair.table.take_finished();
    assert_eq!(finished.expect("no send has it").exchange.tag, 2);
}

/// A given-up write of registered memory completes although the connection always has a send in
/// flight.
#[test]
fn memory_is_free_after_its_own_send_whatever_is_sent_next() {
    let mut bench = Bench::new();
    bench.write(1, IN_CAPSULE);
    bench.write(2, IN_CAPSULE);
    assert!(
        bench.qpair.detach(0, Time::ZERO).is_none(),
        "it is being sent"
    );
    bench.sent();
    assert!(bench.send().is_some(), "the next one is under way");
    assert!(bench.qpair.detach(0, Time::ZERO).is_some());
    assert!(bench.qpair.detach(1, Time::ZERO).is_none());
}

/// A controller may request data until it has all of it, so the memory is not free before.
#[test]
fn memory_is_not_free_while_data_may_be_asked_for() {
    let bytes = 64 * 1024;
    let mut bench = Bench::new();
    bench.write(1, bytes);
    bench.sent();
    assert!(bench.qpair.detach(0, Time::ZERO).is_none());
    bench.ask(0, bytes);
    assert!(
        bench.qpair.detach(0, Time::ZERO).is_none(),
        "it is being sent"
    );
    bench.sent();
    assert!(bench.qpair.detach(0, Time::ZERO).is_some());
}

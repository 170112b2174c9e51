//! The vhost-user back end with a device that does not respond, and with a take-over by another
//! process.

use crate::back_ends::{options, ram, serve};
use crate::closed_gate::gated;
use crate::guests::{self, Guest, IN, OK, OUT};
use load::vhost::ring::Data;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use switch::{Class, PerClass};
use switchyard_frontend::TakenSocket;
use switchyard_frontend::vhost::{NoteWriters, Succession, VhostOptions, VhostServer, Writers};
use testing::eventually;
use vhost::VhostBackend as _;

fn begun(server: &VhostServer) -> u64 {
    server.counts()[Class::Throughput].begun
}

/// Returns the content of a block, whose bytes must all be equal.
fn block(guest: &mut Guest, sector: u64) -> u8 {
    guest.ring.add(9, IN, 0, sector, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
    let mut block = [0; 4096];
    guest.ring.get(9, &mut block);
    assert!(block.iter().all(|&byte| byte == block[0]));
    block[0]
}

/// The monitor, and with it the machine, must not block until the target is back.
#[test]
fn a_queue_stops_although_its_device_does_not_answer() {
    for is_tracked in [false, true] {
        let memory = ram();
        let (device, gate) = gated(&memory);
        let server = serve(&device, &options());
        let mut guest = Guest::connect(server.socket());
        if is_tracked {
            guest.track();
        }
        guest.ring.put(0, 0, &[1; 4096]);
        guest.ring.add(0, OUT, 0, 0, Data::Out(4096));
        guest.ring.add(1, IN, 0, 8, Data::In(4096));
        guest.publish();
        eventually("it comes", || gate.waiting() == 2);
        assert_eq!(guest.stop(), 2);
        // The device's outstanding write changes the block before the repetition does.
        guest.ring.put(0, 0, &[2; 4096]);
        guest.start(2);
        eventually("it comes", || gate.waiting() == 3);
        assert!(!guest.ring.has_used());
        gate.open();
        assert_eq!(guest.answers(2), [OK; 2], "{is_tracked}");
        assert_eq!(block(&mut guest, 0), 2);
    }
}

/// A second front end must not wait for as long as the first one is connected.
#[test]
fn a_second_machine_is_disconnected() {
    let server = serve(&ram(), &options());
    let mut guest = Guest::connect(server.socket());
    let (second, _) = guests::open(server.socket());
    second.get_features().unwrap_err();
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
    drop(guest);
    let mut next = Guest::connect(server.socket());
    next.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(next.answers(1), [OK]);
}

/// The guest's file system is on the other volume.
#[test]
fn a_machine_that_had_another_volume_is_refused() {
    let of = |identity| VhostOptions {
        identity,
        ..options()
    };
    let server = serve(&ram(), &of(7));
    let mut guest = Guest::connect(server.socket());
    guest.track();
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
    drop(server);
    let other = serve(&ram(), &of(8));
    assert!(guest.is_refused_at(other.socket()));
    let same = serve(&ram(), &of(7));
    guest.reconnect(same.socket());
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
}

/// Its listening socket exists all the time: the machine reconnects at once.
#[test]
fn a_machine_reconnects_to_the_successor_of_a_running_back_end() {
    let (device, options) = (ram(), options());
    let mut server = serve(&device, &options);
    let path = server.socket().to_owned();
    let mut guest = Guest::connect(&path);
    guest.track();
    for round in 1..=5 {
        guest.ring.put(0, 0, &[round; 4096]);
        guest.ring.add(0, OUT, 0, 0, Data::Out(4096));
        assert_eq!(guest.answers(1), [OK]);
        let (socket, origin) = server.share_socket().unwrap();
        let taken = Some(TakenSocket::new(socket, origin));
        let devices = PerClass::from_fn(|_| Arc::clone(&device));
        let mut next = VhostServer::prepare(&devices, &options, taken).unwrap();
        let by = Instant::now() + Duration::from_secs(60);
        let handed = server.pause(by).unwrap();
        if round == 3 {
            // The successor fails.
            drop(next);
            server.resume(handed).unwrap();
        } else {
            next.resume(handed).unwrap();
            server = next;
        }
        guest.reconnect(&path);
        assert_eq!(block(&mut guest, 0), round);
    }
    drop(server);
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn a_machine_stays_with_a_back_end_whose_device_does_not_answer() {
    let (device, gate) = gated(&ram());
    let mut server = serve(&device, &options());
    let path = server.socket().to_owned();
    let mut guest = Guest::connect(&path);
    guest.track();
    guest.ring.put(0, 0, &[1; 4096]);
    guest.ring.add(0, OUT, 0, 0, Data::Out(4096));
    guest.publish();
    eventually("it comes", || gate.waiting() == 1);
    let reason = server.pause(Instant::now()).unwrap_err();
    assert!(reason.contains("in time"), "{reason}");
    gate.open();
    guest.reconnect(&path);
    assert_eq!(guest.answers(1), [OK]);
    assert_eq!(block(&mut guest, 0), 1);
}

/// The given controllers; the test completes the end of other controllers.
#[derive(Debug)]
struct Controllers {
    own: Writers,
    asked: Sender<Writers>,
    has_ended: Arc<AtomicBool>,
}

impl Controllers {
    fn new(host: u8, controllers: &[(u16, u64)]) -> (Arc<Self>, Receiver<Writers>) {
        let (asked, ends) = channel();
        let own = Writers {
            host_id: [host; 16],
            controllers: controllers.to_vec(),
        };
        let has_ended = Arc::default();
        let all = Self {
            own,
            asked,
            has_ended,
        };
        (Arc::new(all), ends)
    }
}

impl Succession for Controllers {
    fn watch(&self, note: NoteWriters) {
        note(&self.own);
    }

    fn end(&self, left: &Writers, is_over: &dyn Fn() -> bool) -> bool {
        self.asked.send(left.clone()).unwrap();
        while !self.has_ended.load(Ordering::SeqCst) {
            if is_over() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

/// A late write of a killed process, still at the target, must not land after the repetition and a
/// later write have completed.
#[test]
fn writes_wait_for_the_end_of_the_controllers_of_a_killed_back_end() {
    let memory = ram();
    let (device, gate) = gated(&memory);
    let of = |succession: &Arc<Controllers>| {
        let succession: Arc<dyn Succession> = Arc::clone(succession) as _;
        VhostOptions {
            succession: Some(succession),
            ..options()
        }
    };
    let (first, _) = Controllers::new(1, &[(3, 7), (4, 7)]);
    let killed = serve(&device, &of(&first));
    let mut guest = Guest::connect(killed.socket());
    guest.track();
    guest.ring.put(0, 0, &[1; 4096]);
    guest.ring.add(0, OUT, 0, 0, Data::Out(4096));
    guest.publish();
    eventually("it comes", || gate.waiting() == 1);
    guest.take_record();
    // One of its own controllers has the same identifier, on another host.
    let (second, ends) = Controllers::new(2, &[(4, 7)]);
    let server = serve(&memory, &of(&second));
    guest.ring.put(0, 0, &[2; 4096]);
    guest.reconnect(server.socket());
    let left = ends.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(left, first.own);
    assert_eq!(block(&mut guest, 0), 0, "reads do not wait");
    guest.ring.put(1, 0, &[3; 4096]);
    guest.ring.add(1, OUT, 0, 8, Data::Out(4096));
    guest.publish();
    assert_eq!(block(&mut guest, 8), 0);
    assert_eq!(begun(&server), 2, "the reads");
    // The write still at the target. A killed back end completes nothing; neither does this one
    // after it has lost its machine.
    eventually("it comes", || !killed.is_connected());
    gate.open();
    eventually("it comes", || gate.waiting() == 0);
    second.has_ended.store(true, Ordering::SeqCst);
    assert_eq!(guest.answers(2), [OK; 2]);
    assert_eq!(block(&mut guest, 0), 2);
    assert_eq!(block(&mut guest, 8), 3);
    drop(killed);
    // The next one must end the second's controllers; one that ended in order leaves none.
    guest.take_record();
    let (third, ends) = Controllers::new(3, &[(5, 7)]);
    third.has_ended.store(true, Ordering::SeqCst);
    let next = serve(&memory, &of(&third));
    guest.reconnect(next.socket());
    let left = ends.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(left, second.own);
    assert_eq!(block(&mut guest, 8), 3);
    guest.ring.add(1, OUT, 0, 8, Data::Out(4096));
    assert_eq!(guest.answers(1), [OK]);
    drop(next);
    let (fourth, ends) = Controllers::new(4, &[(6, 7)]);
    let last = serve(&memory, &of(&fourth));
    guest.reconnect(last.socket());
    guest.ring.add(1, OUT, 0, 8, Data::Out(4096));
    assert_eq!(guest.answers(1), [OK]);
    assert!(ends.try_recv().is_err(), "nothing was left");
}

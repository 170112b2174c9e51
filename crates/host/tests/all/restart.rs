//! A target that restarts assigns its controller identifiers anew.

use crate::setup;
use host::{Host, Subsystem};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use target::{Limits, RunningTarget};

/// An address whose connections go to the target chosen by the test, or to none.
struct Way {
    at: SocketAddr,
    to: Arc<Mutex<Option<SocketAddr>>>,
}

impl Way {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let to: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let way = Arc::clone(&to);
        // It ends with the test program.
        thread::spawn(move || {
            for near in listener.incoming() {
                let to = *way.lock().unwrap();
                let far = to.and_then(|to| TcpStream::connect(to).ok());
                if let (Ok(near), Some(far)) = (near, far) {
                    carry(&near, &far);
                    carry(&far, &near);
                }
            }
        });
        Self { at, to }
    }

    fn lead(&self, to: Option<&RunningTarget>) {
        *self.to.lock().unwrap() = to.map(|target| target.addresses[0]);
    }
}

/// Copies bytes from one end to the other until either is closed.
fn carry(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        // The other end need not know which end closed, or how.
        let _ = io::copy(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn start(incarnation: u64) -> RunningTarget {
    let limits = Limits {
        incarnation,
        ..Limits::default()
    };
    setup::start_with(1, limits)
}

/// A write that a current controller answers: one whose end the host has not noticed loses it.
fn use_it(subsystem: &Subsystem) {
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &[7; 4096]).unwrap();
}

/// The second association gets the identifier that the first one had before; it must not be ended
/// in its place, so that each is lost twice.
#[test]
fn associations_that_come_back_in_another_order_do_not_end_each_other() {
    let target = start(1);
    let (one_way, other_way) = (Way::new(), Way::new());
    let host = Host::builder().build().unwrap();
    let connect = |way: &Way| {
        way.lead(Some(&target));
        host.connect(&way.at.to_string(), setup::NQN).unwrap()
    };
    let (one, other) = (connect(&one_way), connect(&other_way));
    let identifier = |subsystem: &Subsystem| subsystem.association().controller().unwrap().cntlid;
    let generation = |subsystem: &Subsystem| subsystem.association().generation();
    let (first, second) = (identifier(&one), identifier(&other));
    let before = [&one, &other].map(generation);

    one_way.lead(None);
    other_way.lead(None);
    target.stop().unwrap();
    let target = start(2);
    other_way.lead(Some(&target));
    use_it(&other);
    assert_eq!(identifier(&other), first);
    one_way.lead(Some(&target));
    use_it(&one);
    use_it(&other);
    assert_eq!(identifier(&one), second);
    let after = [&one, &other].map(generation);
    assert_eq!(after, before.map(|generation| generation + 1));
}

//! Devices over a switchboard work again when the target is back.

use crate::peer::{Behaviour, NQN, Peer, builder};
use crate::setup;
use block::{BlockError, Cache, CacheOptions, Device, PathDevice};
use host::{Host, Phase, Subsystem, Switchboard, SwitchboardOptions, SwitchedNamespace};
use reactor::placement::allowed_cores;
use reactor::uring::UringDriver;
use std::sync::Arc;
use std::time::Duration;
use switch::{Class, Knobs, Path, PathRules};
use testing::device::conformance::Bench;
use wire::nvme::Status;

const BUSY: Option<Status> = Some(Status::CONNECT_CONTROLLER_BUSY);

/// A host that fails requests soon after a loss and keeps reconnecting, and its switchboard.
struct Bed {
    peer: Peer,
    subsystem: Subsystem,
    board: Switchboard,
    _host: Host,
}

impl Bed {
    fn start() -> Self {
        let behaviour = Behaviour {
            // Enough for any number of cores of the machine.
            io_queues: 128,
            ..Behaviour::default()
        };
        let peer = Peer::start(1 << 20, behaviour);
        let builder = builder().loss_timeout(Some(Duration::from_millis(50)));
        let host = builder.keep_reconnecting(true).build().unwrap();
        let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
        let (cores, knobs) = (allowed_cores().unwrap(), Knobs::switchyard());
        Self {
            peer,
            subsystem,
            board: Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap(),
            _host: host,
        }
    }

    fn namespace(&self) -> SwitchedNamespace {
        setup::switched(&self.board, &self.subsystem, 1)
    }

    fn phase(&self) -> Phase {
        self.subsystem.association().phase()
    }

    /// Breaks all connections, and changes the target's behaviour from now on.
    fn lose(&self, change: impl FnOnce(&mut Behaviour)) {
        self.peer.change(change);
        self.peer.cut_all();
    }
}

/// Opens a device, and writes a block to it.
fn open(device: &dyn Device) -> Bench<UringDriver> {
    let mut bench = Bench::open(setup::driver(), device).unwrap();
    bench.write(8, &[5; 4096]).unwrap();
    bench
}

/// Its requests must not fail for good once the target executes them again.
#[test]
fn a_cache_is_used_again_when_the_target_is_back() {
    for class in Class::ALL {
        let bed = Bed::start();
        let below = Arc::new(bed.namespace().with_class(class));
        let cache = Cache::new(below, CacheOptions::new(64)).unwrap();
        let mut bench = open(&cache);

        bed.lose(|behaviour| behaviour.refuse_connect = BUSY);
        assert_eq!(bench.read(800, 1), Err(BlockError::Gone));
        assert_eq!(bed.phase(), Phase::Recovering);

        bed.peer.change(|behaviour| behaviour.refuse_connect = None);
        bench.turn_until("it is back", |bench| bench.read(800, 1).is_ok());
        assert_eq!(bench.read(8, 8).unwrap(), [5; 4096]);
        bench.shut();
    }
}

/// A live controller that refuses I/O queues: if the channel reported that it is back, a cache
/// would write its pages back over and over.
#[test]
fn a_channel_is_not_back_while_its_controller_refuses_it_a_queue() {
    for class in Class::ALL {
        let bed = Bed::start();
        let mut bench = open(&bed.namespace().with_class(class));

        bed.lose(|behaviour| behaviour.refuse_io_connect = BUSY);
        bench.turn_until("the lanes are refused", |bench| {
            let gone = bench.read(8, 8) == Err(BlockError::Gone);
            gone && bed.phase() == Phase::Live && !bench.is_back()
        });

        bed.peer
            .change(|behaviour| behaviour.refuse_io_connect = None);
        bench.turn_until("it is back", |bench| bench.is_back());
        bench.turn_until("it reads", |bench| bench.read(8, 8).is_ok());
        bench.shut();
    }
}

/// A path over a switchboard reports the state of the switchboard: its channel is gone and back
/// with it.
#[test]
fn a_path_is_used_again_when_the_target_is_back() {
    for path in Path::ALL {
        let bed = Bed::start();
        let below = Arc::new(bed.namespace());
        let mut bench = open(&PathDevice::start(below, path, PathRules::default()).unwrap());

        bed.lose(|behaviour| behaviour.refuse_connect = BUSY);
        assert_eq!(bench.read(800, 1), Err(BlockError::Gone), "{path}");
        assert!(!bench.is_back(), "{path}");

        bed.peer.change(|behaviour| behaviour.refuse_connect = None);
        bench.turn_until("it is back", |bench| bench.is_back());
        bench.turn_until("it reads", |bench| bench.read(8, 8).is_ok());
        bench.shut();
    }
}

//! The I/O queues of a front end: one for each thread, namespace and class, or as many as there are.

use anyhow::Result;
use host::{CoreId, Knobs, Subsystem, Switchboard, SwitchboardOptions};
use reactor::placement::allowed_cores;
use switch::Class;
use switch::knobs::Lanes;

/// The use of the I/O queues that a target grants.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Carries all requests where there are fewer queues than threads.
    pub(crate) board: Option<Switchboard>,
    /// Queues that are left to the default class.
    pub(crate) left: usize,
}

impl Queues {
    /// For `namespaces` of a front end with a thread on each of `cores`. An I/O path opens each
    /// namespace by a dispatcher for each class as well.
    ///
    /// # Errors
    /// A switchboard that does not start.
    pub(crate) fn new(
        subsystem: &Subsystem,
        namespaces: usize,
        by_path: bool,
        cores: &[CoreId],
    ) -> Result<Self> {
        let free = subsystem.association().free_queues();
        let threads = namespaces * cores.len().max(1);
        let dispatchers = if by_path {
            namespaces * Class::COUNT
        } else {
            0
        };
        let least = threads + dispatchers;
        let board = if (1..least).contains(&free) {
            tracing::warn!(
                "the target grants {free} I/O queues, and {least} are needed: the threads share them \
                 through a switchboard, which takes longer; raise the target's limit"
            );
            let mut cores = match cores {
                [] => allowed_cores()?,
                cores => cores.to_vec(),
            };
            cores.truncate(free);
            let knobs = Knobs {
                lanes: Lanes::Shared,
                ..Knobs::switchyard()
            };
            Some(Switchboard::start(&SwitchboardOptions { cores, knobs })?)
        } else {
            None
        };
        let all = threads * Class::COUNT + dispatchers;
        let left = if free < all { threads - 1 } else { 0 };
        Ok(Self { board, left })
    }
}

#[cfg(test)]
mod tests {
    use crate::DeviceIo;
    use crate::attach::source::{RemoteNamespaces, Source, SourceDevice};
    use block::Operation;
    use block::device::Ram;
    use host::{Host, Nanos};
    use reactor::placement::allowed_cores;
    use reactor::uring::{Options, UringDriver};
    use reactor::{Context, Driver as _, Wait};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use switch::Class;
    use target::{
        Limits, NamespaceOptions, RunningTarget, SubsystemOptions, Target, TargetOptions,
    };

    const NQN: &str = "nqn.2026-11.io.switchyard:queues";

    /// Serves a namespace to hosts that get so many I/O queues.
    fn serve(io_queues: u16) -> RunningTarget {
        let limits = Limits {
            io_queues,
            ..Limits::default()
        };
        let target = Target::new(limits, 1).expect("a target");
        let subsystem = SubsystemOptions::open_to_all(NQN);
        target.add_subsystem(subsystem).expect("a subsystem");
        let ram = Arc::new(Ram::new(1 << 20, 4096).expect("memory"));
        let namespace = NamespaceOptions::new(1, ram, [1; 16]);
        target.add_namespace(NQN, namespace).expect("a namespace");
        let options = TargetOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            cores: vec![host::CoreId(0)],
            pin: false,
            ..TargetOptions::default()
        };
        RunningTarget::start(target, &options).expect("it runs")
    }

    /// Two of them failed with one queue and with two.
    #[test]
    fn two_cores_share_the_queues_that_there_are() {
        let cores = allowed_cores().expect("cores");
        for io_queues in 1..=5 {
            let running = serve(io_queues);
            let remote = SourceDevice::Remote(Box::new(RemoteNamespaces {
                host: Host::builder(),
                address: running.addresses[0].to_string(),
                nqn: NQN.to_owned(),
                nsid: Some(1),
            }));
            let places = [cores[0]; 2];
            let source = Source::open(&remote, None, None, &places, None).expect("it opens");
            let mut threads = places.map(|_| {
                let mut driver = UringDriver::new(&Options::default()).expect("a ring");
                let io = DeviceIo::<Class>::open(source.device(), 16, &mut driver);
                (io.expect("each has a way"), driver)
            });
            let until = Instant::now() + Duration::from_secs(60);
            for class in Class::ALL {
                for (io, driver) in &mut threads {
                    let mut cx = Context::begin(driver);
                    let data = io.memory(class, 4096, &mut cx).expect("memory");
                    io.submit(class, Operation::Read, (0, 4096), data, class);
                }
                for (io, driver) in &mut threads {
                    let mut events = Vec::new();
                    let finished = loop {
                        assert!(Instant::now() < until, "it is answered");
                        let mut cx = Context::begin(driver);
                        for event in events.drain(..) {
                            assert!(io.apply(event, &mut cx).is_none());
                        }
                        io.turn(&mut cx);
                        if let Some(finished) = io.finished_of(class) {
                            break finished;
                        }
                        let soon = driver.now() + Nanos::from_millis(1);
                        driver.reap(Wait::Until(soon), &mut events).expect("a ring");
                    };
                    assert_eq!(finished.result, Ok(()), "{io_queues} queues");
                }
            }
        }
    }
}

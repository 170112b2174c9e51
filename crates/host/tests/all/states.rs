//! The counters of the states of connections and associations.

use crate::peer::{Behaviour, connected};
use crate::setup;
use base::Nanos;
use base::units::Lba;
use block::{Channel as _, Operation, Request, Submit};
use host::{ChannelState, RemoteChannel, RemoteNamespace};
use reactor::uring::UringDriver;
use reactor::{Context, Driver as _, IoSlice, Wait};

const LANES: u64 = 2;
const READS: u64 = 3;

/// Reads blocks on a manually run channel until all are read.
fn read(channel: &mut RemoteChannel, driver: &mut UringDriver) {
    for lba in 0..READS {
        let buffer = driver.buffers().take(512).unwrap();
        let request = Request {
            tag: lba,
            operation: Operation::Read,
            lba: Lba(lba),
            blocks: 1,
            data: Some(IoSlice::from_buffer(buffer, 512)),
        };
        let queued = channel.submit(request, &mut Context::begin(driver));
        assert!(matches!(queued, Submit::Queued), "{queued:?}");
    }
    let mut done = 0;
    while done < READS {
        turn(channel, driver);
        while let Some(completion) = channel.reap() {
            completion.result.unwrap();
            done += 1;
        }
    }
}

fn turn(channel: &mut RemoteChannel, driver: &mut UringDriver) {
    let mut completions = Vec::new();
    channel.kick(&mut Context::begin(driver));
    let wait = Wait::Until(driver.now() + Nanos::from_millis(1));
    driver.reap(wait, &mut completions).unwrap();
    let mut cx = Context::begin(driver);
    for completion in completions {
        channel.complete(completion, &mut cx);
    }
    channel.tick(&mut cx);
}

/// Returns how often the state with this name was entered.
fn entered(states: impl IntoIterator<Item = (&'static str, u64)>, name: &str) -> u64 {
    let states = states.into_iter().filter(|(state, _)| *state == name);
    states.map(|(_, count)| count).sum()
}

#[test]
fn every_state_that_was_entered_was_left_again() {
    let (peer, _host, subsystem) = connected(Behaviour::default());
    let association = subsystem.association().clone();
    let remote = RemoteNamespace::new(&association, 1).unwrap();
    let remote = remote.with_queues(u16::try_from(LANES).unwrap(), 4);
    let mut driver = setup::driver();
    let mut channel = remote.open_remote(&mut driver).unwrap();
    read(&mut channel, &mut driver);
    peer.cut_all();
    while channel.state() == ChannelState::Live {
        turn(&mut channel, &mut driver);
    }
    read(&mut channel, &mut driver);

    assert_eq!(channel.outstanding(), 0);
    let connections: Vec<_> = channel.connection_states_entered().collect();
    for (state, times) in [
        ("connecting", 2),
        ("live", 2),
        ("closing", 1),
        ("closed", 1),
    ] {
        let count = entered(connections.iter().copied(), state);
        assert_eq!(count, times * LANES, "{state}: {connections:?}");
    }
    for (state, times) in [("live", 2), ("recovering", 1), ("gone", 0)] {
        assert_eq!(
            entered(association.phases_entered(), state),
            times,
            "{state}"
        );
    }
}

//! States of ANA groups: epochs, the state file, and the next start.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::Scratch;
use config::schema::{AnaState, Configuration};
use config::{Format, parse};
use std::sync::Arc;
use switchyard_control::ana::AnaGroup;
use switchyard_control::{ChangeError, Control, Plane, StateFile};
use target::{Limits, Target};

const NQN: &str = "nqn.2026-11.com.example:a";

fn configuration(scratch: &Scratch) -> Configuration {
    let path = scratch.0.join("disk");
    let text = format!(
        "[devices.a]\ntype = \"file\"\npath = {path:?}\ncreate = true\nsize = \"1M\"\ncache = \"1M\"\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallowed_hosts = []\nana_state = \"non-optimized\"\n\
         namespaces = [{{ nsid = 1, device = \"a\", ana_group = 5 }}]\n"
    );
    parse(&text, Format::Toml).unwrap()
}

/// A target that begins with the state of the one before.
fn start(scratch: &Scratch) -> Control {
    let target = Target::new(Limits::default(), 1).unwrap();
    let plane = Arc::new(Plane::new(target, vec![0]));
    let store = StateFile::open(&scratch.0.join("state")).unwrap();
    Control::resume(&configuration(scratch), plane, Some(store)).unwrap()
}

fn group(group: u32, state: AnaState, epoch: u64) -> AnaGroup {
    AnaGroup {
        nqn: NQN.to_owned(),
        group,
        state,
        epoch,
    }
}

/// A target that comes back late must not serve what another one serves by then.
#[test]
fn an_owned_group_is_inaccessible_after_a_restart_and_its_epoch_is_remembered() {
    let scratch = Scratch::new("ana-restart");
    let control = start(&scratch);
    assert_eq!(control.ana(), []);
    control.set_ana(group(5, AnaState::Optimized, 7)).unwrap();
    control.set_ana(group(6, AnaState::Optimized, 0)).unwrap();
    let late = control.set_ana(group(5, AnaState::Optimized, 6));
    let late = late.unwrap_err().to_string();
    assert!(late.contains("epoch 7 has begun"), "{late}");
    // The owner may change the state within its epoch.
    control.set_ana(group(5, AnaState::Change, 7)).unwrap();
    drop(control);
    let control = start(&scratch);
    let owned = group(5, AnaState::Inaccessible, 7);
    let by_hand = group(6, AnaState::Optimized, 0);
    assert_eq!(control.ana(), [owned.clone(), by_hand.clone()]);
    assert!(control.set_ana(group(5, AnaState::Optimized, 6)).is_err());
    control.set_ana(group(5, AnaState::Optimized, 8)).unwrap();
    assert_eq!(control.ana(), [group(5, AnaState::Optimized, 8), by_hand]);
}

#[test]
fn a_state_that_is_refused_is_not_remembered() {
    let scratch = Scratch::new("ana-refused");
    let control = start(&scratch);
    let refused = control.set_ana(group(1025, AnaState::Inaccessible, 1));
    assert!(
        matches!(refused, Err(ChangeError::Plane { .. })),
        "{refused:?}"
    );
    let mut unknown = group(1, AnaState::Inaccessible, 1);
    unknown.nqn.push('x');
    assert!(matches!(
        control.set_ana(unknown),
        Err(ChangeError::Refused(_))
    ));
    assert_eq!(control.ana(), []);
    drop(control);
    assert_eq!(start(&scratch).ana(), []);
}

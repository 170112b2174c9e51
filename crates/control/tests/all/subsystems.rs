//! Hosts find a subsystem that comes with all of its namespaces, or not at all.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::Scratch;
use config::Action;
use config::schema::Configuration;
use config::{Format, parse};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use switchyard_control::{Control, DataPlane, Plane, StateFile};
use target::{Limits, Target, wait_by};

const FILE: &str = "
[devices.fast]
type = \"ram\"
size = \"1M\"
shared = true
[devices.cached]
type = \"file\"
path = \"PATH\"
create = true
size = \"1M\"
cache = \"1M\"
";
const ADDED: &str = "
[[subsystems]]
nqn = \"nqn.2026-11.com.example:a\"
allow_any_host = true
namespaces = [{ nsid = 1, device = \"fast\" }, { nsid = 7, device = \"cached\" }]
[[subsystems]]
nqn = \"nqn.2026-11.com.example:b\"
allow_any_host = true
namespaces = [{ nsid = 3, device = \"fast\" }]
";

type Found = Vec<(String, Vec<u32>)>;

/// The subsystems, each with its namespaces, that a host finds now.
fn found(target: &Target) -> Found {
    let subsystems = target.snapshot().subsystems.into_iter();
    let nsids = |namespaces: &[target::NamespaceSnapshot]| {
        namespaces.iter().map(|namespace| namespace.nsid).collect()
    };
    subsystems
        .map(|subsystem| (subsystem.nqn, nsids(&subsystem.namespaces)))
        .collect()
}

/// Makes a change. Returns what hosts found whenever it waited for the cores of the target.
fn watched(target: &Arc<Target>, change: impl FnOnce()) -> Vec<Found> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (watched, seen_so_far) = (Arc::clone(target), Rc::clone(&seen));
    let look = move |_: &dyn Fn() -> bool, _| seen_so_far.borrow_mut().push(found(&watched));
    wait_by(Box::new(look), change);
    seen.take()
}

/// Asserts that the subsystems of a configuration came one after the other, each of them whole.
fn assert_whole(target: &Target, mut seen: Vec<Found>) {
    assert!(!seen.is_empty(), "the change waited for the cores");
    seen.push(found(target));
    let a = ("nqn.2026-11.com.example:a".to_owned(), vec![1, 7]);
    let b = ("nqn.2026-11.com.example:b".to_owned(), vec![3]);
    let whole = [vec![], vec![a.clone()], vec![a, b]];
    for found in &seen {
        assert!(whole.contains(found), "{found:?} in {seen:?}");
    }
    assert_eq!(seen.last(), whole.last());
}

struct Bed {
    scratch: Scratch,
    target: Arc<Target>,
    plane: Arc<Plane>,
}

impl Bed {
    fn new(name: &str) -> Self {
        let target = Target::new(Limits::default(), 1).unwrap();
        let plane = Arc::new(Plane::new(Arc::clone(&target), vec![0]));
        let scratch = Scratch::new(name);
        Self {
            scratch,
            target,
            plane,
        }
    }

    fn file(&self, text: &str) -> String {
        let path = self.scratch.0.join("disk");
        text.replace("PATH", path.to_str().unwrap())
    }

    fn configuration(&self, text: &str) -> Configuration {
        parse(&self.file(text), Format::Toml).unwrap()
    }

    fn start(&self, text: &str) -> Control {
        let store = StateFile::open(&self.scratch.0.join("state")).unwrap();
        let plane = Arc::clone(&self.plane) as Arc<dyn DataPlane>;
        Control::resume(&self.configuration(text), plane, Some(store)).unwrap()
    }
}

/// A host that came back when the subsystem was there, and its namespaces were not, took its volumes
/// for removed.
#[test]
fn a_subsystem_from_the_interface_comes_with_its_namespaces() {
    let bed = Bed::new("from-interface");
    let control = bed.start(FILE);
    let both = bed.configuration(&format!("{FILE}{ADDED}"));
    let add = |subsystem| Action::AddSubsystem { subsystem };
    let actions = both.subsystems.into_iter().map(add).collect();
    let seen = watched(&bed.target, || control.change(actions).unwrap());
    assert_whole(&bed.target, seen);
}

#[test]
fn a_subsystem_from_a_changed_file_comes_with_its_namespaces() {
    let bed = Bed::new("from-file");
    let control = bed.start(FILE);
    let path = bed.scratch.0.join("switchyard.toml");
    std::fs::write(&path, bed.file(&format!("{FILE}{ADDED}"))).unwrap();
    let seen = watched(&bed.target, || {
        control.replace_from_file(&path).unwrap();
    });
    assert_whole(&bed.target, seen);
}

#[test]
fn a_subsystem_from_the_state_file_comes_with_its_namespaces() {
    let bed = Bed::new("from-state");
    let control = bed.start(FILE);
    let both = bed.configuration(&format!("{FILE}{ADDED}"));
    control.replace(&both).unwrap();
    drop(control);
    // The end of a process closes its devices.
    let Bed {
        scratch,
        target,
        plane,
    } = bed;
    drop((target, plane));
    let again = Bed {
        scratch,
        ..Bed::new("from-state-again")
    };
    let seen = watched(&again.target, || drop(again.start(FILE)));
    assert_whole(&again.target, seen);
}

/// The second namespace cannot be had: neither is the first one, nor the subsystem.
#[test]
fn a_subsystem_without_one_of_its_namespaces_does_not_come() {
    let bed = Bed::new("without-one");
    let _control = bed.start(FILE);
    let mut both = bed.configuration(&format!("{FILE}{ADDED}"));
    let mut subsystem = both.subsystems.remove(0);
    subsystem.namespaces[1].size = Some("2M".parse().unwrap());
    let add = Action::AddSubsystem { subsystem };
    let seen = watched(&bed.target, || {
        assert!(bed.plane.apply(&add, None).is_err())
    });
    let none = Found::new();
    assert!(seen.iter().all(|found| *found == none), "{seen:?}");
    assert_eq!(found(&bed.target), none);
}

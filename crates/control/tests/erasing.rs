//! What a namespace gave up is erased before one shows it again, also by the next process.

// The whole file is a test program, and a panic is how a test fails.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, missing_docs)]

mod common;

use common::Scratch;
use std::sync::Arc;
use switchyard_control::config::{Format, parse};
use switchyard_control::model::{Configuration, DeviceKind};
use switchyard_control::{
    Action, ApplyErrorKind, ChangeError, Control, DataPlane, Plane, StateFile,
};
use target::{Limits, Target};

const NQN: &str = "nqn.2026-11.com.example:a";

/// Requests to write zeroes fail, and so does an erase.
const FAILS: &str =
    "fault = { seed = 1, rules = [{ operation = \"write_zeroes\", error = \"internal\" }] }";

/// A file of 4 MiB, of which a namespace shows so much.
fn configuration(scratch: &Scratch, size: &str, more: &str) -> Configuration {
    let path = scratch.0.join("disk");
    let text = format!(
        "device_folders = [{:?}]\n[devices.a]\ntype = \"file\"\npath = {path:?}\nsize = \"4M\"\n{more}\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallowed_hosts = []\n\
         namespaces = [{{ nsid = 1, device = \"a\", size = \"{size}\" }}]\n",
        scratch.0
    );
    parse(&text, Format::Toml).unwrap()
}

/// A target that begins with this configuration and the state of the one before, which is over as by
/// a crash: nothing is done at its end.
fn start(scratch: &Scratch, configuration: &Configuration) -> (Control, Arc<Plane>) {
    loop {
        let target = Target::new(Limits::default(), 1).unwrap();
        let plane = Arc::new(Plane::new(target, vec![0]));
        let store = StateFile::open(&scratch.0.join("state.json")).unwrap();
        let control = Control::resume(configuration, Arc::clone(&plane) as _, Some(store));
        match control {
            Ok(control) => return (control, plane),
            // A thread of the one before has the file still.
            Err(error) if error.to_string().contains("lock") => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn resize(control: &Control, size: &str) -> Result<(), ChangeError> {
    let size = Some(size.parse().unwrap());
    let resize = |model: &Configuration| Ok(vec![Action::resize_namespace(model, NQN, 1, size)]);
    control.change_with(resize).map(|_| ())
}

fn disk(scratch: &Scratch) -> Vec<u8> {
    std::fs::read(scratch.0.join("disk")).unwrap()
}

fn given_up(kept: usize) -> Vec<u8> {
    [vec![7; kept], vec![0; (4 << 20) - kept]].concat()
}

/// What was to be erased was known to the process alone: the next one showed the old content.
#[test]
fn a_crash_during_a_shrink_brings_nothing_back() {
    let scratch = Scratch::new("shrink");
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", FAILS));
    resize(&control, "2M").unwrap();
    let is_refused = |size| match resize(&control, size) {
        Err(ChangeError::Plane { error, remaining }) => {
            assert!(error.what_to_do.contains("wait"), "{error}");
            error.kind == ApplyErrorKind::Conflict && remaining.is_empty()
        }
        other => panic!("{other:?}"),
    };
    assert!(is_refused("4M") && is_refused("3M"));
    // Even smaller, it need not wait.
    resize(&control, "1M").unwrap();
    assert!(is_refused("2M"));
    let erasing = plane.snapshot().erasing;
    assert_eq!((erasing.len(), erasing[0].bytes_left), (1, 3 << 20));
    // Nor does a namespace that comes anew show any of it.
    let namespace = control.configuration().subsystem(NQN).unwrap().namespaces[0].clone();
    let (nqn, nsid) = (NQN.to_owned(), 1);
    let remove = Action::RemoveNamespace { nqn, nsid };
    control.change(vec![remove]).unwrap();
    let add = |size: &str| {
        let mut namespace = namespace.clone();
        namespace.size = Some(size.parse().unwrap());
        let nqn = NQN.to_owned();
        control.change(vec![Action::AddNamespace { nqn, namespace }])
    };
    assert!(add("4M").unwrap_err().to_string().contains("wait"));
    add("1M").unwrap();
    drop((control, plane));
    assert_eq!(disk(&scratch), vec![7; 4 << 20]);

    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", ""));
    assert!(resize(&control, "4M").is_err(), "nothing is erased yet");
    while resize(&control, "4M").is_err() {
        std::thread::yield_now();
    }
    assert_eq!(plane.snapshot().erasing, []);
    assert!(
        disk(&scratch) == given_up(1 << 20),
        "old content is seen again"
    );
}

/// The configuration says more than was in force: nobody would have waited for it.
#[test]
fn what_a_start_shows_of_what_was_given_up_is_erased_first() {
    let scratch = Scratch::new("start");
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", FAILS));
    resize(&control, "2M").unwrap();
    let erasing = plane.erasing();
    drop((control, plane));
    let path = scratch.0.join("state.json");
    let file = configuration(&scratch, "4M", FAILS);
    let store = StateFile::open(&path).unwrap();
    store.save(&file, &file, &erasing).unwrap();
    drop(store);
    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", ""));
    assert!(disk(&scratch) == given_up(2 << 20));
    drop((control, plane));

    // The state of a program that knew no erasing is taken as well. Another file is left alone.
    let mut state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(state["erasing"], serde_json::json!([]));
    state.as_object_mut().unwrap().remove("erasing");
    std::fs::write(&path, state.to_string()).unwrap();
    drop(start(&scratch, &configuration(&scratch, "4M", "")));
    let store = StateFile::open(&path).unwrap();
    let file = configuration(&scratch, "4M", "");
    store.save(&file, &file, &erasing).unwrap();
    drop(store);
    std::fs::rename(scratch.0.join("disk"), scratch.0.join("old")).unwrap();
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let (_control, plane) = start(&scratch, &file);
    assert_eq!(plane.erasing(), []);
    assert!(disk(&scratch) == vec![7; 4 << 20]);
}

/// A shrink that is undone with the change that it was a part of erased what came back.
#[test]
fn nothing_is_erased_before_the_whole_change_is_made() {
    let scratch = Scratch::new("undone");
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", ""));
    let before = control.configuration();
    let size = Some("1M".parse().unwrap());
    let shrink = Action::resize_namespace(&before, NQN, 1, size);
    // Its file is in use already.
    let mut device = before.devices["a"].clone();
    let link = scratch.0.join("link");
    std::os::unix::fs::symlink("disk", &link).unwrap();
    if let DeviceKind::File { path, .. } = &mut device.kind {
        *path = link;
    }
    let name = "b".to_owned();
    let failed = control.change(vec![shrink, Action::AddDevice { name, device }]);
    assert!(
        matches!(failed, Err(ChangeError::Plane { .. })),
        "{failed:?}"
    );
    assert_eq!(control.configuration(), before);
    assert_eq!(plane.erasing(), []);
    assert!(disk(&scratch) == vec![7; 4 << 20]);
}

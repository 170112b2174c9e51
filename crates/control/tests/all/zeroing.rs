//! Blocks that a namespace gave up are zeroed before a namespace shows them again, also by the next
//! process, and never earlier.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::{Intercepted, Scratch};
use config::schema::{Configuration, DeviceKind};
use config::{Action, ApplyError};
use config::{Format, parse};
use std::path::PathBuf;
use std::sync::Arc;
use switchyard_control::host_keys::AddedKeys;
use switchyard_control::{ChangeError, Control, DataPlane as _, Plane, StateFile};
use target::{Limits, Target};

const NQN: &str = "nqn.2026-11.com.example:a";

/// Zeroing fails.
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

fn plane() -> Arc<Plane> {
    let target = Target::new(Limits::default(), 1).unwrap();
    Arc::new(Plane::new(target, vec![0]))
}

/// The state file, in a folder of its own.
fn state(scratch: &Scratch) -> PathBuf {
    let folder = scratch.0.join("state");
    let _ = std::fs::create_dir(&folder);
    folder.join("state.json")
}

/// A target that begins with this configuration and the state of the one before, which is over as by
/// a crash: nothing is done at its end.
fn start(scratch: &Scratch, configuration: &Configuration) -> (Control, Arc<Plane>) {
    loop {
        let plane = plane();
        let store = StateFile::open(&state(scratch)).unwrap();
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

/// The content of the disk after all but `kept` bytes were zeroed.
fn zeroed(kept: usize) -> Vec<u8> {
    [vec![7; kept], vec![0; (4 << 20) - kept]].concat()
}

/// The next start found the blocks of the failed shrink in the state file, and erased live data.
#[test]
fn a_shrink_that_fails_and_stays_in_the_state_file_zeroes_nothing() {
    let scratch = Scratch::new("failed-shrink");
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let file = configuration(&scratch, "4M", "");
    let store = StateFile::open(&state(&scratch)).unwrap();
    let folder = scratch.0.join("state");
    let away = folder.clone();
    let exhausted = Arc::new(Intercepted {
        plane: plane(),
        // From the moment of the change, the state file cannot be written, as where the process has no
        // file descriptors left.
        apply: move |plane: &Plane, action: &Action, folders: Option<&[PathBuf]>| {
            if matches!(action, Action::ResizeNamespace { .. }) {
                std::fs::rename(&away, away.with_extension("away")).unwrap();
                return Err(ApplyError::failed("too many open files", "close some"));
            }
            plane.apply(action, folders)
        },
    });
    let control = Control::resume(&file, exhausted, Some(store)).unwrap();
    resize(&control, "2M").expect_err("it cannot be resized");
    assert_eq!(*control.configuration(), file);
    drop(control);
    std::fs::rename(folder.with_extension("away"), folder).unwrap();

    // The file could not be taken back, so the shrink is in force now.
    let (control, _plane) = start(&scratch, &file);
    while resize(&control, "4M").is_err() {
        std::thread::yield_now();
    }
    assert!(disk(&scratch) == vec![7; 4 << 20], "live data is gone");
}

/// The ranges were known to the process alone: the next one showed the old content.
#[test]
fn a_crash_after_a_shrink_brings_nothing_back() {
    let scratch = Scratch::new("shrink");
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", FAILS));
    resize(&control, "2M").unwrap();
    let is_refused = |size| match resize(&control, size) {
        Err(ChangeError::Plane { error, remaining }) => {
            assert!(error.message.contains("cannot be zeroed"), "{error}");
            remaining.is_empty()
        }
        other => panic!("{other:?}"),
    };
    assert!(is_refused("4M") && is_refused("3M"));
    resize(&control, "1M").unwrap();
    assert!(is_refused("2M"));
    let left = plane.to_zero();
    let left: Vec<_> = left.iter().map(|r| (r.first_byte, r.end_byte)).collect();
    assert_eq!(left, [(1 << 20, 4 << 20)]);
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
    assert!(add("4M").unwrap_err().to_string().contains("zeroed"));
    add("1M").unwrap();
    drop((control, plane));
    assert!(disk(&scratch) == vec![7; 4 << 20], "zeroed too early");

    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", ""));
    resize(&control, "2M").unwrap();
    let (kept, rest) = (vec![7; 1 << 20], vec![7; 2 << 20]);
    let expected = [kept, vec![0; 1 << 20], rest].concat();
    assert!(disk(&scratch) == expected, "not what became visible");
    assert_eq!(plane.to_zero().len(), 1);
    resize(&control, "4M").unwrap();
    assert_eq!(plane.to_zero(), []);
    assert!(
        disk(&scratch) == zeroed(1 << 20),
        "old content is seen again"
    );
    // What hosts write there stays, also over a restart.
    std::fs::write(scratch.0.join("disk"), vec![9; 4 << 20]).unwrap();
    drop((control, plane));
    let (_control, _plane) = start(&scratch, &configuration(&scratch, "4M", ""));
    assert!(disk(&scratch) == vec![9; 4 << 20]);
}

/// The configuration says more than was in force: nobody would have waited for it.
#[test]
fn a_start_zeroes_given_up_blocks_that_it_shows() {
    let scratch = Scratch::new("start");
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", FAILS));
    resize(&control, "2M").unwrap();
    let to_zero = plane.to_zero();
    drop((control, plane));
    let path = state(&scratch);
    let file = configuration(&scratch, "4M", FAILS);
    let store = StateFile::open(&path).unwrap();
    store
        .save(&file, &file, (&to_zero, &[]), (&AddedKeys::default(), &[]))
        .unwrap();
    drop(store);
    let (control, plane) = start(&scratch, &configuration(&scratch, "4M", ""));
    assert!(disk(&scratch) == zeroed(2 << 20));
    drop((control, plane));

    // The state of a program that knew no such ranges is read as well. Another file is left alone.
    let mut state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(state["erasing"], serde_json::json!([]));
    state.as_object_mut().unwrap().remove("erasing");
    std::fs::write(&path, state.to_string()).unwrap();
    drop(start(&scratch, &configuration(&scratch, "4M", "")));
    let store = StateFile::open(&path).unwrap();
    let file = configuration(&scratch, "4M", "");
    store
        .save(&file, &file, (&to_zero, &[]), (&AddedKeys::default(), &[]))
        .unwrap();
    drop(store);
    std::fs::rename(scratch.0.join("disk"), scratch.0.join("old")).unwrap();
    std::fs::write(scratch.0.join("disk"), vec![7; 4 << 20]).unwrap();
    let (_control, plane) = start(&scratch, &file);
    assert_eq!(plane.to_zero(), []);
    assert!(disk(&scratch) == vec![7; 4 << 20]);
}

/// A shrink that is undone with the change that it was a part of gives nothing up.
#[test]
fn a_shrink_that_is_undone_gives_nothing_up() {
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
    assert_eq!(plane.to_zero(), []);
    assert!(disk(&scratch) == vec![7; 4 << 20]);
}

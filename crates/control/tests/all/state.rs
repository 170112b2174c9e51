//! What is changed is there after the process, and neither the file nor the interface undoes the
//! other.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::{MemoryPlane, Scratch};
use config::Action;
use config::schema::{Configuration, Device, DeviceKind};
use config::{Format, parse};
use std::path::Path;
use std::sync::Arc;
use switchyard_control::{ChangeError, Control, DataPlane, StateFile};

const FILE: &str = "
[devices.a]
type = \"null\"
size = \"1M\"
[[subsystems]]
nqn = \"nqn.2026-11.com.example:a\"
allowed_hosts = []
namespaces = [{ nsid = 1, device = \"a\" }]
";
const NQN: &str = "nqn.2026-11.com.example:a";
const HOST: &str = "nqn.2026-11.com.example:host";

fn read(text: &str) -> Configuration {
    parse(text, Format::Toml).unwrap()
}

/// A target that begins, or begins again, with this file and this state.
fn start(file: &str, state: &Path) -> Result<(Control, Arc<MemoryPlane>), ChangeError> {
    let file = read(file);
    let plane = MemoryPlane::new(file.emptied());
    let store = StateFile::open(state)?;
    let control = Control::resume(&file, Arc::clone(&plane) as Arc<dyn DataPlane>, Some(store))?;
    Ok((control, plane))
}

/// Why a target does not begin.
fn refusal(file: &str, state: &Path) -> String {
    start(file, state).err().unwrap().to_string()
}

fn allow(host: &str) -> Vec<Action> {
    vec![Action::AllowHost {
        nqn: NQN.to_owned(),
        host: host.to_owned(),
    }]
}

fn add_device(name: &str) -> Vec<Action> {
    let kind = DeviceKind::Null {
        size: "2M".parse().unwrap(),
        block_size: 4096.try_into().unwrap(),
    };
    vec![Action::AddDevice {
        name: name.to_owned(),
        device: Device::new(kind),
    }]
}

/// Before there was a state, both the restart and SIGHUP dropped what the interface had changed.
#[test]
fn changes_of_the_interface_outlive_the_process_and_a_changed_file() {
    let scratch = Scratch::new("state");
    let state = scratch.0.join("state.json");
    let (control, _) = start(FILE, &state).unwrap();
    control.change(allow(HOST)).unwrap();
    control.change(add_device("b")).unwrap();
    // As by SIGKILL: nothing is done at the end.
    let in_force = control.configuration();
    drop(control);

    let (control, plane) = start(FILE, &state).unwrap();
    assert_eq!(control.configuration(), in_force);
    assert_eq!(*plane.model.lock().unwrap(), *in_force);
    let (changes, path) = control.changes();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(path, Some(state.clone()));

    // The file changes another thing, while it runs and while it does not.
    let path = scratch.0.join("target.toml");
    let changed = FILE.replace("nsid = 1,", "nsid = 1, read_only = true,");
    std::fs::write(&path, &changed).unwrap();
    control.replace_from_file(&path).unwrap();
    let check = |control: &Control, namespaces: usize| {
        let configuration = control.configuration();
        let subsystem = configuration.subsystem(NQN).unwrap();
        assert!(subsystem.allows(HOST) && configuration.devices.contains_key("b"));
        assert_eq!(subsystem.namespaces.len(), namespaces);
    };
    check(&control, 1);
    drop(control);
    let without = FILE.replace("{ nsid = 1, device = \"a\" }", "");
    let (control, _) = start(&without, &state).unwrap();
    check(&control, 0);
}

/// A device that grew with its namespace is neither replaced by the file's nor made small again.
#[test]
fn a_device_that_grew_stays_as_it_is_when_the_file_changes_another_thing() {
    let scratch = Scratch::new("grown");
    let state = scratch.0.join("state.json");
    let (control, plane) = start(FILE, &state).unwrap();
    let size = "8M".parse().unwrap();
    let grow =
        |model: &Configuration| Ok(vec![Action::resize_namespace(model, NQN, 1, Some(size))]);
    control.change_with(grow).unwrap();
    let path = scratch.0.join("target.toml");
    let changed = FILE.replace("allowed_hosts = []", &format!("allowed_hosts = [{HOST:?}]"));
    std::fs::write(&path, &changed).unwrap();
    let done = control.replace_from_file(&path).unwrap();
    assert!(matches!(done[..], [Action::AllowHost { .. }]), "{done:?}");
    let grown = |model: &Configuration| {
        let subsystem = model.subsystem(NQN).unwrap();
        assert_eq!(subsystem.namespaces[0].size, Some(size));
        assert_eq!(model.devices["a"].kind.size(), Some(size));
        assert!(subsystem.allows(HOST));
    };
    grown(&control.configuration());
    grown(&plane.model.lock().unwrap());
    drop(control);
    let (control, plane) = start(&changed, &state).unwrap();
    grown(&control.configuration());
    grown(&plane.model.lock().unwrap());
}

#[test]
fn what_the_file_and_the_interface_both_changed_is_left_to_a_person() {
    let scratch = Scratch::new("contradiction");
    let state = scratch.0.join("state.json");
    let (control, plane) = start(FILE, &state).unwrap();
    control.change(add_device("b")).unwrap();
    let before = control.configuration();
    let path = scratch.0.join("target.toml");
    let file = format!("{FILE}[devices.b]\ntype = \"null\"\nsize = \"3M\"\n");
    std::fs::write(&path, &file).unwrap();
    let error = control.replace_from_file(&path).unwrap_err().to_string();
    assert!(error.contains("devices.b"), "{error}");
    assert!(error.contains("config save"), "{error}");
    assert_eq!(control.configuration(), before);
    assert_eq!(*plane.model.lock().unwrap(), *before);
    drop(control);
    let error = refusal(&file, &state);
    assert!(error.contains("devices.b"), "{error}");
    // What a person writes into the file as it is in force is agreed.
    let (control, _) = start(&before.to_toml(), &state).unwrap();
    assert_eq!(control.changes().0, []);
}

#[test]
fn a_change_that_cannot_be_remembered_is_not_made() {
    let scratch = Scratch::new("unwritable");
    let state = scratch.0.join("state.json");
    let (control, plane) = start(FILE, &state).unwrap();
    let before = control.configuration();
    // In the way of the temporary file, as a full disk would be.
    let obstacle = scratch.0.join("state.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    let error = control.change(allow(HOST)).unwrap_err().to_string();
    assert!(error.contains("state.json"), "{error}");
    assert_eq!(control.configuration(), before);
    assert_eq!(*plane.model.lock().unwrap(), *before);
    std::fs::remove_dir(&obstacle).unwrap();
    control.change(allow(HOST)).unwrap();
}

#[test]
fn a_change_that_fails_is_not_remembered() {
    let scratch = Scratch::new("failed");
    let state = scratch.0.join("state.json");
    let (control, plane) = start(FILE, &state).unwrap();
    plane.refuse(|action| matches!(action, Action::AllowHost { .. }));
    assert!(control.change(allow(HOST)).is_err());
    drop(control);
    let (control, _) = start(FILE, &state).unwrap();
    assert_eq!(control.changes().0, []);
}

/// A host that was denied after the file was saved had access again at the next start or SIGHUP, and
/// a saved tenant that was changed kept the target from starting.
#[test]
fn what_changes_after_the_file_was_written_stays_changed() {
    let scratch = Scratch::new("written");
    let state = scratch.0.join("state.json");
    let file = scratch.0.join("target.toml");
    std::fs::write(&file, FILE).unwrap();
    let (control, _) = start(FILE, &state).unwrap();
    let tenant = |promise| {
        let tenant = format!("[[tenants]]\nname = \"t\"\nhosts = [\"{HOST}\"]\n{promise}");
        let tenants = read(&format!("{FILE}{tenant}")).tenants;
        let default_tenant = true;
        vec![Action::SetTenants {
            tenants,
            default_tenant,
        }]
    };
    control.change(allow(HOST)).unwrap();
    control.change(tenant("")).unwrap();
    let saved = control.configuration();
    assert!(
        !control.note_file(&file, &saved).unwrap(),
        "another one was saved"
    );
    assert_ne!(control.changes().0, []);
    std::fs::write(&file, saved.to_toml()).unwrap();
    assert!(control.note_file(&file, &saved).unwrap());
    assert_eq!(control.changes().0, []);

    let deny = Action::DenyHost {
        nqn: NQN.to_owned(),
        host: HOST.to_owned(),
    };
    control.change(vec![deny]).unwrap();
    control
        .change(tenant("best_effort = { weight = 7 }"))
        .unwrap();
    let in_force = control.configuration();
    control.replace_from_file(&file).unwrap();
    assert_eq!(control.configuration(), in_force);
    drop(control);
    let (control, _) = start(&saved.to_toml(), &state).unwrap();
    assert_eq!(control.configuration(), in_force);
}

/// Hosts were told that their namespace is gone, and the answer said that nothing had changed.
#[test]
fn a_device_that_cannot_be_opened_costs_no_host_its_namespace() {
    let scratch = Scratch::new("unopened");
    let (control, plane) = start(FILE, &scratch.0.join("state.json")).unwrap();
    let before = control.configuration();
    plane.applied.lock().unwrap().clear();
    plane.refuse(|action| matches!(action, Action::AddDevice { .. }));
    let path = scratch.0.join("target.toml");
    let moved = "[devices.b]\ntype = \"null\"\nsize = \"2M\"\n[[sub";
    let moved = FILE.replace("[[sub", moved);
    std::fs::write(&path, moved.replace("device = \"a\"", "device = \"b\"")).unwrap();
    let error = control.replace_from_file(&path).unwrap_err();
    assert!(matches!(&error, ChangeError::Plane { remaining, .. } if remaining.is_empty()));
    assert_eq!(*plane.applied.lock().unwrap(), [], "{error}");
    assert_eq!(control.configuration(), before);
}

#[test]
fn a_state_of_another_process_version_or_kind_is_refused() {
    let scratch = Scratch::new("foreign");
    let state = scratch.0.join("state.json");
    let (control, _) = start(FILE, &state).unwrap();
    let error = refusal(FILE, &state);
    assert!(error.contains("another target"), "{error}");
    drop(control);
    for (text, expected) in [
        ("{\"version\":2}", "version is 2"),
        ("{\"version\":1", "damaged"),
        ("{\"version\":1}", "damaged"),
        ("", "damaged"),
    ] {
        std::fs::write(&state, text).unwrap();
        let error = refusal(FILE, &state);
        assert!(error.contains(expected), "{error}");
        assert_eq!(std::fs::read_to_string(&state).unwrap(), text, "kept");
    }
    // One that is no text is readable as it is.
    std::fs::write(&state, b"\xff").unwrap();
    let error = refusal(FILE, &state);
    let expected = "it is not UTF-8 text; name a regular file that this program wrote, or none";
    assert!(error.contains(expected), "{error}");
    // Neither a folder nor a pipe without a writer is waited for.
    std::fs::remove_file(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    assert!(start(FILE, &state).is_err());
    let pipe = scratch.0.join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let error = refusal(FILE, &pipe);
    assert!(error.contains("no regular file"), "{error}");
    // A lock was left beside what can be no state file, such as in /dev.
    assert!(!scratch.0.join("pipe.lock").exists());
}

/// A target with a file of state from an earlier version did not start again.
#[test]
fn what_an_earlier_version_kept_and_this_one_has_not_is_ignored() {
    let scratch = Scratch::new("earlier");
    let state = scratch.0.join("state.json");
    let (control, _) = start(FILE, &state).unwrap();
    control.change(allow(HOST)).unwrap();
    let before = control.configuration();
    drop(control);
    let text = std::fs::read_to_string(&state).unwrap();
    let earlier = text
        .replace("\"limits\":{", "\"limits\":{\"stash_bytes\":65536,")
        .replace("\"switch\":{", "\"switch\":{\"threads\":\"per-class\",");
    assert_eq!(earlier.matches("stash_bytes").count(), 2, "{text}");
    assert_eq!(
        earlier.matches("threads\":\"per-class").count(),
        2,
        "{text}"
    );
    std::fs::write(&state, earlier).unwrap();
    let (control, _) = start(FILE, &state).unwrap();
    assert_eq!(control.configuration(), before);
}

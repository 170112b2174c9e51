//! Reading of files.

use super::*;

#[test]
fn a_file_that_cannot_be_read_says_what_to_do() {
    let message = load(Path::new("/nonexistent/switchyard.toml"))
        .expect_err("it is not there")
        .to_string();
    assert!(
        message.starts_with("/nonexistent/switchyard.toml: cannot be read: "),
        "{message}"
    );
    assert!(message.ends_with("name a file that is there"), "{message}");
    let message = load(Path::new("/")).expect_err("a directory").to_string();
    assert!(
        message.ends_with(
            "it is no regular file; name a regular file: a configuration, written in TOML"
        ),
        "{message}"
    );
}

#[test]
fn each_file_that_is_no_configuration_has_its_own_remedy() {
    let folder = load_waiting(Path::new("/")).expect_err("a directory");
    assert!(
        folder
            .to_string()
            .ends_with("; name a regular file: a configuration, written in TOML"),
        "{folder}"
    );
    let path = block::temporary("long");
    std::fs::write(&path, "#".repeat(CONFIGURATION_BYTES_MAX + 1)).expect("a file");
    let long = load(&path).expect_err("too large");
    assert!(
        long.to_string()
            .ends_with("it is larger than 1048576 bytes; shorten it, or name another file"),
        "{long}"
    );
}

/// Regression: SIGHUP while an editor had truncated the file, and not yet written it, removed every
/// listener and namespace.
#[test]
fn an_empty_file_changes_nothing_that_runs() {
    let path = block::temporary("empty");
    std::fs::write(&path, "").expect("a file");
    let empty = load(&path).expect_err("empty").to_string();
    assert!(
        empty.contains("is empty; if it is being written"),
        "{empty}"
    );
    load_waiting(&path).expect("a start with the defaults");
    std::fs::write(&path, "# nothing\n").expect("a file");
    load(&path).expect("what somebody wrote");
}

#[test]
fn a_pipe_is_read_by_what_may_wait_for_it() {
    let path = block::temporary("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
    let refused = load(&path).expect_err("nothing writes to it").to_string();
    assert!(refused.contains("it is no regular file"), "{refused}");
    let pipe = path.clone();
    let writer = std::thread::spawn(move || std::fs::write(pipe, "default_tenant = false"));
    let read = load_waiting(&path).expect("a configuration");
    assert!(!read.default_tenant);
    writer.join().expect("it ends").expect("it is read");
}

//! The kernel breaks the ring of a target's core: the process ends with an error.

use crate::common::attached::have;
use crate::common::{NQN, Serving, program};
use host::Host;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_ring_that_breaks_ends_the_process_with_an_error() {
    if !have(&["strace"]) {
        return;
    }
    // The hundredth ring call of each thread fails, and all later ones. The tracer ends with its
    // target.
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-o", "/dev/null"]);
    traced.args(["-e", "trace=io_uring_enter"]);
    traced.args(["-e", "inject=io_uring_enter:error=EBADF:when=100+"]);
    traced.arg(program().get_program());
    let serving = Serving::start_by(traced, &["--listen", "127.0.0.1:0", "--ram", "16M"]);
    let host = Host::builder().loss_timeout(Some(Duration::from_secs(1)));
    let host = host.build().unwrap();
    let subsystem = host.connect(serving.address(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    while namespace.read(0, &mut [0; 4096]).is_ok() {}
    let (code, stderr) = serving.end();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("error: a core of the target broke"),
        "{stderr}"
    );
}

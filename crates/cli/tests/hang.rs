//! A device that never answers, behind a target of its own: what its host is told, and that the
//! target ends all the same. Time-outs are real, so this takes some seconds.

// A test program has nothing but tests.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod common;

use block::BlockError;
use common::{Folder, NQN, Serving, eventually, pattern};
use host::{Host, RequestError, Subsystem};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Serves 16 MiB of memory, whose second read hangs.
fn serving(folder: &Folder) -> Serving {
    let config = folder.write(
        "switchyard.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n\
             [devices.lab]\ntype = \"ram\"\nsize = \"16M\"\n\
             [devices.lab.fault]\nseed = 1\n\
             [[devices.lab.fault.rules]]\noperation = \"read\"\nhang = true\nskip = 1\ntimes = 1\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystems.namespaces]]\nnsid = 1\ndevice = \"lab\"\n"
        ),
    );
    Serving::start(&["--config", &config])
}

/// A host that loses its patience soon; it must live as long as what is done with the subsystem.
fn connect(serving: &Serving) -> (Host, Subsystem) {
    let host = Host::builder()
        .command_timeout(Duration::from_millis(300))
        .connect_timeout(Duration::from_secs(2))
        .loss_timeout(Some(Duration::from_secs(1)))
        .build()
        .unwrap();
    let subsystem = host.connect(serving.address(), NQN).unwrap();
    (host, subsystem)
}

#[test]
fn a_read_that_hangs_is_aborted_and_given_up_and_the_target_ends() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (_host, subsystem) = connect(&serving);
    let namespace = subsystem.namespace(1).unwrap();
    let (written, mut read) = (pattern(1, BLOCK), vec![0; BLOCK]);
    namespace.write(0, &written).unwrap();
    namespace.read(0, &mut read).unwrap();
    assert!(read == written, "the first read passes");

    // Abort does not help, because the device has the request. Nor does another connection: the
    // target does not end the old controller as long as something of it is in a device, and
    // without that nothing may be sent again. So the host gives up after its loss time-out.
    let reader = std::thread::spawn(move || namespace.read(0, &mut [0; BLOCK]));
    let association = subsystem.association();
    eventually("the host resets its connections", || {
        let error = association.last_error();
        error.is_some_and(|error| error.to_string().contains("nor to its Abort"))
    });
    let error = reader.join().unwrap().unwrap_err();
    assert!(
        matches!(error, RequestError::Device(BlockError::Gone)),
        "{error:?}"
    );

    // Whoever else comes is served as ever.
    let (_other, subsystem) = connect(&serving);
    read.fill(0);
    subsystem.namespace(1).unwrap().read(0, &mut read).unwrap();
    assert!(read == written);

    // The target still waits for its device, and lets go of it all the same.
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
}

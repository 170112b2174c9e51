//! A device that never completes some requests, behind a separate target: the errors that the host
//! receives, the progress of the host's other requests, and the end of the target. Time-outs are
//! real, so this takes some seconds.

use crate::common::{Folder, NQN, Serving, eventually, pattern};
use block::BlockError;
use host::{Host, Phase, RequestError, Subsystem};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Serves 16 MiB of memory; every read that includes block 8 hangs.
fn serving(folder: &Folder) -> Serving {
    let config = folder.write(
        "switchyard.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n\
             [devices.lab]\ntype = \"ram\"\nsize = \"16M\"\n\
             [devices.lab.fault]\nseed = 1\n\
             [[devices.lab.fault.rules]]\noperation = \"read\"\nhang = true\nfirst_block = 8\nblocks = 1\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystems.namespaces]]\nnsid = 1\ndevice = \"lab\"\n"
        ),
    );
    Serving::start(&["--config", &config])
}

/// A host with short command time-outs; it must live as long as its subsystem is used.
fn connect(serving: &Serving) -> (Host, Subsystem) {
    let host = Host::builder()
        .command_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(5))
        .loss_timeout(Some(Duration::from_secs(10)))
        .build()
        .unwrap();
    let subsystem = host.connect(serving.address(), NQN).unwrap();
    (host, subsystem)
}

#[test]
fn a_read_that_hangs_times_out_while_everything_else_goes_on_and_the_target_ends() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (_host, subsystem) = connect(&serving);
    let namespace = subsystem.namespace(1).unwrap();
    let hanging = {
        let namespace = namespace.clone();
        std::thread::spawn(move || namespace.read(8 * BLOCK as u64, &mut [0; BLOCK]))
    };

    // Abort has no effect, because the device has the request. After each time-out the host
    // reconnects and replays its commands; after the third time it fails the read.
    let (mut rounds, mut read) = (0, vec![0; BLOCK]);
    while !hanging.is_finished() {
        rounds += 1;
        let written = pattern(rounds, BLOCK);
        namespace.write(0, &written).unwrap();
        namespace.read(0, &mut read).unwrap();
        assert!(read == written, "round {rounds}");
        namespace.flush().unwrap();
    }
    let error = hanging.join().unwrap().unwrap_err();
    assert!(
        matches!(error, RequestError::Device(BlockError::TimedOut)),
        "{error:?}"
    );
    assert!(rounds > 1);
    let association = subsystem.association();
    eventually("the host is connected", || {
        association.phase() == Phase::Live
    });
    assert!(association.generation() >= 4, "three reads were given up");
    let error = association.last_error().unwrap().to_string();
    assert!(error.contains("a command and its Abort"), "{error}");
    namespace.read(0, &mut read).unwrap();

    // The target still waits for its device, and ends nevertheless. Its exit code shows that a
    // command was abandoned.
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a device has not completed"), "{said}");
}

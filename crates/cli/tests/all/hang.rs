//! A device that never answers some requests, behind a target of its own: what its host is told,
//! that the host's other requests go on, and that the target ends all the same. Time-outs are real,
//! so this takes some seconds.

use crate::common::{Folder, NQN, Serving, eventually, pattern};
use block::BlockError;
use host::{Host, Phase, RequestError, Subsystem};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Serves 16 MiB of memory, of which every read that touches block 8 hangs, for ever.
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

/// A host that loses its patience with commands soon; it must live as long as what is done with the
/// subsystem.
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

    // Abort does not help, because the device has the request. Each time the host makes all its
    // connections anew, sends everything again, and after the third time it gives the read up.
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

    // The target still waits for its device, and lets go of it all the same. Whoever stops it
    // learns that it did not finish what it was asked.
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a device has not completed"), "{said}");
}

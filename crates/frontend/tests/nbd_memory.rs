//! The memory of an NBD server. Runs alone in its process, whose memory is measured.

// A test program contains only tests.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

#[path = "all/nbd_client/mod.rs"]
mod nbd_client;
#[path = "all/nbd_servers/mod.rs"]
mod nbd_servers;

use block::device::Null;
use nbd_client::{Client, WRITE};
use nbd_servers::serve;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: usize = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    1024 * kib
}

/// The memory of freed buffers, 255 MiB here, must be returned to the system.
#[test]
fn buffers_are_given_back_after_the_last_client() {
    let (_server, path) = serve(Arc::new(Null::new(1 << 30, 4096).unwrap()));
    let mut clients: Vec<_> = (0..4).map(|_| Client::simple(&path)).collect();
    let data = vec![7; 16 * MIB];
    let before = resident();
    // The data of each write stays in its buffers until all of it has arrived.
    for client in &mut clients {
        client.send(WRITE, 0, 1, (0, data.len() as u64));
        client.stream.write_all(&data[..12 * MIB]).unwrap();
    }
    let by = Instant::now() + Duration::from_secs(60);
    while resident() < before + 40 * MIB {
        assert!(Instant::now() < by, "it does not take the data");
        std::thread::yield_now();
    }
    drop(clients);
    while resident() > before + 8 * MIB {
        assert!(Instant::now() < by, "{} bytes more", resident() - before);
        std::thread::yield_now();
    }
}

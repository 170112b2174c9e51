//! Small helpers of many tests.

use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Pseudo-random bytes, determined by the seed.
#[must_use]
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    base::Prng::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Retries until the condition holds.
///
/// # Panics
/// After a minute.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let mut waited = Duration::ZERO;
    loop {
        let began = Instant::now();
        if holds() {
            return;
        }
        assert!(waited < Duration::from_secs(60), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
        // Time for which the whole test was suspended does not count as waiting.
        waited += began.elapsed().min(Duration::from_secs(1));
    }
}

/// Address of a target that is restarted on the same port: a loopback address that no other test
/// uses. On a shared address the port could be taken meanwhile, by another test's listener, or by a
/// connection attempt to the killed target, which comes from 127.0.0.1 and the same range of ports.
///
/// This process keeps an abstract socket with the address as its name, which marks the address as
/// taken for other test processes.
///
/// # Panics
/// If all addresses are taken.
#[must_use]
pub fn own_address() -> String {
    static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let first = std::process::id().wrapping_mul(64);
    for number in first.. {
        let host = Ipv4Addr::from_bits(0x7f80_0000 | number & 0x3f_ffff);
        let name = SocketAddr::from_abstract_name(format!("switchyard-test-{host}"));
        if let Ok(taken) = UnixListener::bind_addr(&name.expect("it is short")) {
            TAKEN.lock().expect("no panic").push(taken);
            return format!("{host}:0");
        }
    }
    unreachable!("there are addresses for four million tests")
}

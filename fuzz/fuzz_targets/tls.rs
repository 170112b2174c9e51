//! TLS handshakes of a target, and records.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_entries::tls(input));

//! DH-HMAC-CHAP of a target.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_entries::chap(input));

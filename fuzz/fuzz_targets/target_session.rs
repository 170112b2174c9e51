//! Sessions of hosts with a whole target.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_entries::target_session(input));

//! Sessions of a whole host with a target that lies.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_entries::host_session(input));

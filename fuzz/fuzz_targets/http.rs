//! Any request to the HTTP interface.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_entries::http(input));

//! Any text as a configuration, in TOML or JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_entries::configuration(input));

//! Descriptor chains of a hostile guest.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_entries::descriptor_chain(input));

//! What can be wrong about devices, as the user of a file sees it.

use super::*;

#[test]
fn devices_are_checked() {
    for (text, expected) in [
        (
            "[devices.\"a b\"]\ntype = \"null\"\nsize = \"1M\"",
            "1: devices.\"a b\": is no name for a device; use 1 to 64 letters, digits, '-', '_' and '.'",
        ),
        (
            "[devices.x]\ntype = \"ram\"\nsize = 5000",
            "3: devices.x.size: 5000 is not a whole number of blocks of 4096 bytes; write \"4K\", or another multiple of 4096 bytes",
        ),
        (
            "[devices.x]\ntype = \"ram\"\nsize = 0",
            "3: devices.x.size: 0 is not a whole number of blocks of 4096 bytes; write \"4K\", or another multiple of 4096 bytes",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"16383P\"",
            "3: devices.x.size: 16383P is larger than a device can be; write at most 9223372036854771712",
        ),
        (
            "[devices.x]\ntype = \"file\"\npath = \"\"",
            "3: devices.x.path: is empty; write where the file is, like path = \"/srv/disk.img\"",
        ),
        (
            "[devices.x]\ntype = \"file\"\npath = \"/a\"\ncreate = true",
            "1: devices.x.size: is missing, and a file that is created needs one; write how large it becomes, like size = \"10G\", or omit create",
        ),
        (
            "[devices.x]\ntype = \"file\"\npath = \"/a\"\nsize = \"1M\"\ncreate = true\nread_only = true",
            "5: devices.x.create: contradicts read_only = true; omit one of the two",
        ),
        (
            "[devices.x]\ntype = \"file\"\npath = \"/a\"\n[devices.y]\ntype = \"file\"\npath = \"/a\"",
            "6: devices.y.path: is the file of device \"x\" too, and each would overwrite the other; use one device, with shared = true if it needs more than one namespace",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\ndelay = { read_us = 60_000_001 }",
            "4: devices.x.delay.read_us: 60000001 is out of range; write a number from 0 to 60000000",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\nfault = { seed = 1, rules = [] }",
            "4: devices.x.fault.rules: is empty, so nothing would ever fail; write at least one rule, or omit fault",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\nfault = { seed = 1, rules = [{ one_in = 0, error = \"media\" }] }",
            "4: devices.x.fault.rules[0].one_in: 0 means that the rule never strikes; write at least 1, or omit the rule",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\ndelay = { write_per_kib_ns = 60_000_000 }",
            "4: devices.x.delay.write_per_kib_ns: 60000000 is out of range; write a number from 0 to 58593750",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\nfault = { seed = 1, rules = [{ one_in = 2 }] }",
            "4: devices.x.fault.rules[0].error: is missing, and so is every other effect; write error = \"media\", \"internal\", \"no_space\" or \"corrupt\", or delay_us = 1000, hang = true or torn_blocks = 1",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\nfault = { seed = 1, rules = [{ error = \"media\", hang = true }] }",
            "4: devices.x.fault.rules[0].hang: is a second effect beside error; keep one of them; a second rule can have the other",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\nfault = { seed = 1, rules = [{ delay_us = 0 }] }",
            "4: devices.x.fault.rules[0].delay_us: 0 is out of range; write a number from 1 to 60000000",
        ),
        (
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\nfault = { seed = 1, rules = [{ operation = \"read\", torn_blocks = 1 }] }",
            "4: devices.x.fault.rules[0].torn_blocks: tears requests that change something, and this rule looks at none; write operation = \"write\", \"write_zeroes\" or \"deallocate\"",
        ),
    ] {
        assert_eq!(error(text), format!("switchyard.toml:{expected}"), "{text}");
    }
}

/// The rule was accepted, and never did anything.
#[test]
fn a_rule_corrupts_what_is_read() {
    let rule = |operation| {
        format!(
            "[devices.x]\ntype = \"null\"\nsize = \"1M\"\n\
             fault = {{ seed = 1, rules = [{{ operation = \"{operation}\", error = \"corrupt\" }}] }}"
        )
    };
    parse(&rule("read"), Format::Toml).expect("it is good");
    let expected = "switchyard.toml:4: devices.x.fault.rules[0].error: \"corrupt\" changes what is \
                    read, and this rule looks at no reads; write operation = \"read\"";
    assert_eq!(error(&rule("verify")), expected);
}

#[test]
fn an_io_path_with_parameters_is_read_and_one_without_sense_refused() {
    let file = |rest: &str| format!("[devices.x]\ntype = \"ram\"\nsize = \"1G\"\n{rest}");
    let good = "io_path = \"atm:unplug_threshold=8,handover_us=500\"\ncache = \"1M\"";
    let device = parse(&file(good), Format::Toml)
        .expect("it is good")
        .devices["x"]
        .clone();
    let rules = device.io_path.expect("a path").0.rules;
    assert_eq!((rules.unplug_threshold, rules.handover.0), (8, 500_000));
    for (rest, expected) in [
        (
            "io_path = \"fast\"",
            "devices.x.io_path: \"fast\" is no I/O path; use",
        ),
        (
            "io_path = 1",
            "devices.x.io_path: the integer 1 cannot stand here; write an I/O path",
        ),
        (
            "io_path = \"sync:table_entries=8\"",
            "table_entries has no effect on sync; omit it",
        ),
        (
            "io_path = \"atm:unplug_delay_us=8\"",
            "have no effect without a write-back cache",
        ),
    ] {
        let text = error(&file(rest));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_cache_that_makes_no_sense_says_what_to_write() {
    let device = |rest: &str| {
        error(&format!(
            "[devices.x]\ntype = \"ram\"\nsize = \"1G\"\n{rest}"
        ))
    };
    for (rest, expected) in [
        (
            "cache = \"4K\"",
            "devices.x.cache: 4K is no size of a cache; write a size from \"1M\" to \"1T\"",
        ),
        (
            "cache = \"2T\"",
            "devices.x.cache: 2T is no size of a cache",
        ),
        (
            "cache = true",
            "devices.x.cache: the truth value true cannot stand here; write a size",
        ),
        (
            "cache = \"1M\"\nmodel = \"/a\"",
            "devices.x.cache: contradicts model",
        ),
        (
            "cache_dirty_expire_ms = 500",
            "and the device has no cache; write cache = \"256M\"",
        ),
        (
            "cache = \"1M\"\ncache_dirty_expire_ms = 99",
            "99 is out of range; write a number from 100 to 3600000",
        ),
    ] {
        let text = device(rest);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn an_encrypted_device_has_one_place_of_its_key() {
    let file = |crypt: &str| {
        format!("[devices.x]\ntype = \"ram\"\nsize = \"1G\"\ncrypt = {{ {crypt} }}\n")
    };
    for good in [
        "key_file = \"/a\"",
        "key_command = [\"kms\", \"--get\"], create = true",
    ] {
        let read = parse(&file(good), Format::Toml).expect("it is good");
        let again = parse(&read.to_toml(), Format::Toml).expect("what it writes");
        assert_eq!(again.devices, read.devices);
        assert!(read.devices["x"].crypt.is_some());
    }
    for (bad, expected) in [
        ("", "devices.x.crypt.key_file: is missing; write key_file"),
        (
            "key_file = \"\"",
            "devices.x.crypt.key_file: is empty; write key_file",
        ),
        (
            "key_file = \"/a\", key_command = [\"kms\"]",
            "devices.x.crypt.key_command: is a second key beside key_file; keep one of them",
        ),
        (
            "key_command = [\"\"]",
            "devices.x.crypt.key_command: names no program",
        ),
        ("key = \"/a\"", "devices.x.crypt.key: is not a known key"),
    ] {
        let text = error(&file(bad));
        assert!(text.contains(expected), "{text}");
    }
}

//! Every message names file, line, key and what would be right.

mod devices;
mod files;
mod tenants;

use super::*;
use crate::schema::{
    ApiLimits, Authentication, Delay, DeviceKind, HostTls, REMOVED_LIMITS, Schema as _, Size,
};
use block::BlockError;
use block::layer::FaultEffect;
use std::path::Path;
use switch::Knobs;
use switch::knobs::Polling;

const EXAMPLE: &str = include_str!("../../../../docs/switchyard.example.toml");

/// The error of `text` as the user of `switchyard.toml` sees it.
pub(super) fn error(text: &str) -> String {
    parse(text, Format::Toml)
        .expect_err(text)
        .in_file(Path::new("switchyard.toml"))
        .to_string()
}

/// Two devices and one subsystem, with `extra` in its namespace.
fn with_namespace(extra: &str) -> String {
    format!(
        "[devices.fast]\ntype = \"ram\"\nsize = \"1M\"\n\
         [devices.slow]\ntype = \"null\"\nsize = \"1G\"\n\
         [[subsystems]]\nnqn = \"nqn.2026-11.com.example:a\"\nallow_any_host = true\n\
         [[subsystems.namespaces]]\n{extra}\n"
    )
}

#[test]
fn the_example_shows_every_limit() {
    for limit in &target::limits::LIMITS {
        let line = format!("\n{} = {}", limit.key, limit.default());
        assert!(EXAMPLE.contains(&line), "{line}");
    }
}

#[test]
fn limits_of_the_interface_are_shown_checked_and_read() {
    for row in ApiLimits::rows() {
        let line = format!("\n{} = {}", row.key, row.default);
        assert!(EXAMPLE.contains(&line), "{line}");
    }
    assert_eq!(
        error("[api_limits]\nbody_timeout_ms = 99\n"),
        "switchyard.toml:2: api_limits.body_timeout_ms: 99 is out of range; write a number from \
         100 to 3600000"
    );
    assert_eq!(
        error("[api_limits]\nconnections = 1\n"),
        "switchyard.toml:2: api_limits.connections: 1 is out of range; write a number from 2 to \
         1024"
    );
    let given = parse("[api_limits]\nidle_timeout_ms = 5000", Format::Toml).expect("it is good");
    assert_eq!(given.api_limits.idle_timeout_ms, 5000);
    assert_eq!(given.api_limits.connections, 64);
}

#[test]
fn a_change_takes_longer_than_what_it_waits_for() {
    assert_eq!(
        error("[limits]\npause_patience_ms = 30000\nchange_timeout_ms = 30000\n"),
        "switchyard.toml:3: limits.change_timeout_ms: 30000 is not longer than \
         pause_patience_ms, 30000; write a larger number, or a smaller one for pause_patience_ms"
    );
}

#[test]
fn a_limit_of_time_names_key_line_and_range() {
    assert_eq!(
        error("[limits]\nconnections = 9\nstall_timeout_ms = 99\n"),
        "switchyard.toml:3: limits.stall_timeout_ms: 99 is out of range; write a number from 100 \
         to 3600000"
    );
    assert_eq!(
        error("[limits]\nstall_timeout = 99\n"),
        "switchyard.toml:2: limits.stall_timeout: is not a known key; did you mean \
         \"stall_timeout_ms\"?"
    );
}

#[test]
fn the_example_is_read_whole() {
    let configuration = parse(EXAMPLE, Format::Toml).expect("the example is good");
    let defaults = Configuration::default();
    assert_eq!(configuration.limits, defaults.limits, "shown as defaults");
    assert_eq!(configuration.api_limits, defaults.api_limits, "as well");
    assert_eq!(configuration.digests, defaults.digests, "shown as defaults");
    assert_eq!(configuration.switch, defaults.switch, "shown as defaults");
    assert_eq!(configuration.devices.len(), 5);
    assert_eq!(configuration.subsystems.len(), 2);
    assert_eq!(configuration.default_tenant, defaults.default_tenant);
    let names = configuration
        .tenants
        .iter()
        .map(|tenant| tenant.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["backup", "database", "default"]);
    let model = configuration.devices["disk"].model.as_deref();
    assert_eq!(
        model.and_then(|path| path.file_name()),
        Some("disk.model.toml".as_ref())
    );
    let disks = configuration
        .subsystem("nqn.2026-11.com.example:disks")
        .expect("it is there");
    assert_eq!(disks.namespaces.len(), 2);
    assert_eq!(disks.namespaces[0].size, Some(Size::from_bytes(5 << 30)));
    let fault = configuration.devices["lab"]
        .fault
        .as_ref()
        .expect("a fault layer");
    let effects: Vec<_> = fault.rules.iter().map(|rule| rule.effect()).collect();
    assert_eq!(
        effects,
        [
            Some(FaultEffect::Error(BlockError::ReadFailure)),
            Some(FaultEffect::Delay(base::Nanos::from_micros(30_000))),
            Some(FaultEffect::Torn { blocks: 1 }),
            Some(FaultEffect::Hang),
        ]
    );
    let delay = Delay {
        read_us: 80,
        read_per_kib_ns: 250,
        write_us: 20,
        write_per_kib_ns: 500,
        flush_us: 200,
    };
    assert_eq!(configuration.devices["lab"].delay, Some(delay));
    assert!(matches!(
        configuration.devices["disk"].kind,
        DeviceKind::File { create: true, .. }
    ));
}

#[test]
fn what_is_written_reads_back_the_same_by_both_readers() {
    for configuration in [
        parse(EXAMPLE, Format::Toml).expect("the example is good"),
        Configuration::default(),
        Configuration::default_with([]),
    ] {
        let toml = configuration.to_toml();
        assert_eq!(
            parse(&toml, Format::Toml).as_ref(),
            Ok(&configuration),
            "{toml}"
        );
        let by_derive: Configuration = toml::from_str(&toml).expect("the same keys");
        assert_eq!(by_derive, configuration);
        let json = serde_json::to_string(&configuration).expect("it has a form in JSON");
        assert_eq!(
            parse(&json, Format::Json).as_ref(),
            Ok(&configuration),
            "{json}"
        );
    }
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parse("", Format::Toml), Ok(Configuration::default()));
    assert_eq!(parse("{}", Format::Json), Ok(Configuration::default()));
}

/// A target with a file of state from before would not start again.
#[test]
fn a_limit_that_was_removed_is_ignored() {
    for key in REMOVED_LIMITS {
        let parsed = parse(&format!("[limits]\n{key} = 1048576\n"), Format::Toml);
        assert_eq!(parsed, Ok(Configuration::default()), "{key}");
    }
}

#[test]
fn a_slip_in_a_key_is_named_with_what_was_meant() {
    assert_eq!(
        error("listen = []\n[limits]\nqueue_dept = 64\n"),
        "switchyard.toml:1: listen: is empty, so no host could connect; write an address, like \
         listen = [\"127.0.0.1:4420\"]\n\
         switchyard.toml:3: limits.queue_dept: is not a known key; did you mean \"queue_depth\"?"
    );
    assert_eq!(
        error("\n[digests]\ncolour = true\n"),
        "switchyard.toml:3: digests.colour: is not a known key; known here are data, header"
    );
    assert_eq!(
        error("[devices.x]\ntype = \"ram\"\nsize = \"1M\"\npath = \"/a\"\n"),
        "switchyard.toml:4: devices.x.path: is not a known key; known here are block_size, cache, \
         cache_dirty_expire_ms, crypt, delay, fault, io_path, model, shared, size, type, verify"
    );
}

#[test]
fn wrong_types_and_words_say_what_to_write() {
    for (text, expected) in [
        (
            "poll = \"allways\"",
            "switchyard.toml:1: poll: the text \"allways\" cannot stand here; did you mean \"always\"?",
        ),
        (
            "poll = 3",
            "switchyard.toml:1: poll: the integer 3 cannot stand here; write \"auto\", \"always\", \"never\"",
        ),
        (
            "listen = \"127.0.0.1:4420\"",
            "switchyard.toml:1: listen: the text \"127.0.0.1:4420\" cannot stand here; write an array: values between [ and ]",
        ),
        (
            "listen = [\"127.0.0.1:1\",\n \"localhost\"]",
            "switchyard.toml:2: listen[1]: the text \"localhost\" cannot stand here; write an address with a port, like \"127.0.0.1:4420\" or \"[::1]:4420\"",
        ),
        (
            "listen = [\"127.0.0.1:1 tls=on\"]",
            "switchyard.toml:1: listen[0]: the text \"127.0.0.1:1 tls=on\" cannot stand here; write tls=off, tls=allowed or tls=required behind the address, or nothing",
        ),
        (
            "cores = [-1]",
            "switchyard.toml:1: cores[0]: the integer -1 cannot stand here; write an integer from 0 to 4294967295",
        ),
        (
            "[devices.x]\ntype = \"ram\"\nsize = \"1Q\"",
            "switchyard.toml:3: devices.x.size: the text \"1Q\" cannot stand here; write a size such as \"1G\", \"512M\" or 4096",
        ),
        (
            "[devices.x]\ntype = \"ram\"\nsize = \"1M\"\nblock_size = 1000",
            "switchyard.toml:4: devices.x.block_size: the integer 1000 cannot stand here; write 512 or 4096",
        ),
        (
            "[devices.x]\nsize = \"1M\"",
            "switchyard.toml:1: devices.x.type: is missing; write type = \"ram\", \"null\", \"flash\", \"file\"",
        ),
        (
            "[devices.x]\ntype = \"flash\"\nprofile = \"A/3\"\nsize = \"1M\"",
            "switchyard.toml:3: devices.x.profile: the text \"A/3\" cannot stand here; write a profile: A, B, C, a whole part of one such as \"A/8\", or \"dram-ssd\"",
        ),
        (
            "devices = 3",
            "switchyard.toml:1: devices: the integer 3 cannot stand here; write a table: names with values",
        ),
        (
            "[digests]\nheader = \"yes\"",
            "switchyard.toml:2: digests.header: the text \"yes\" cannot stand here; write true or false",
        ),
        (
            "[limits]\nmax_r2t = 1.5",
            "switchyard.toml:2: limits.max_r2t: a number with a fraction cannot stand here; write an integer from 1 to 4",
        ),
        (
            "[limits]\nqueue_depth = -1",
            "switchyard.toml:2: limits.queue_depth: the integer -1 cannot stand here; write an integer from 2 to 1024",
        ),
        (
            "[api_limits]\nconnections = \"all\"",
            "switchyard.toml:2: api_limits.connections: the text \"all\" cannot stand here; write an integer from 2 to 1024",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn an_interface_for_the_world_is_refused() {
    let message = error("\napi = \"0.0.0.0:4421\"");
    assert!(
        message
            .starts_with("switchyard.toml:2: api: the text \"0.0.0.0:4421\" cannot stand here; "),
        "{message}"
    );
    assert!(message.contains("not a loopback address"), "{message}");
    assert!(message.contains("write \"127.0.0.1:4421\""), "{message}");
}

#[test]
fn limits_out_of_range_name_the_range() {
    for (key, value, expected) in [
        (
            "queue_depth",
            "1025",
            "1025 is out of range; write a number from 2 to 1024",
        ),
        (
            "io_queues_per_controller",
            "0",
            "0 is out of range; write a number from 1 to 128",
        ),
        (
            "in_capsule_data_bytes",
            "16400",
            "16400 is out of range; write a number from 0 to 16384",
        ),
        (
            "in_capsule_data_bytes",
            "100",
            "100 is not a multiple of 16; write 96",
        ),
        (
            "max_transfer_bytes",
            "100000",
            "100000 is not a power of two; write 65536",
        ),
        (
            "max_transfer_bytes",
            "2097152",
            "2097152 is out of range; write a number from 8192 to 1048576",
        ),
        (
            "max_h2c_data_bytes",
            "4098",
            "4098 is not a multiple of 4; write 4096",
        ),
        (
            "max_r2t",
            "0",
            "0 is out of range; write a number from 1 to 4",
        ),
        (
            "keep_alive_min_ms",
            "1",
            "1 is out of range; write a number from 100 to 3600000",
        ),
        (
            "keep_alive_default_ms",
            "500",
            "500 is shorter than keep_alive_min_ms, 1000; write 0 for none, or a number not below keep_alive_min_ms",
        ),
        (
            "connections",
            "0",
            "0 is out of range; write a number from 1 to 65536",
        ),
    ] {
        let text = format!("[limits]\n{key} = {value}");
        assert_eq!(
            error(&text),
            format!("switchyard.toml:2: limits.{key}: {expected}")
        );
    }
}

#[test]
fn the_target_needs_addresses_and_cores() {
    for (text, expected) in [
        (
            "listen = []",
            "1: listen: is empty, so no host could connect; write an address, like listen = [\"127.0.0.1:4420\"]",
        ),
        (
            "listen = [\"[::1]:1\", \"[::1]:1\"]",
            "1: listen[1]: [::1]:1 is there twice; keep one of the two",
        ),
        (
            "cores = []",
            "1: cores: is empty, so no core could serve; write a core, like cores = [0], or omit the key",
        ),
        (
            "cores = [1,\n1]",
            "2: cores[1]: 1 is there twice; keep one of the two",
        ),
        (
            "cores = [4096]",
            "1: cores[0]: 4096 is out of range; write a number from 0 to 1023",
        ),
    ] {
        assert_eq!(error(text), format!("switchyard.toml:{expected}"));
    }
}

#[test]
fn namespaces_are_checked() {
    let again = "\n[[subsystems.namespaces]]\n";
    for (extra, expected) in [
        (
            "nsid = 1\ndevice = \"fats\"".to_owned(),
            "12: subsystems[0].namespaces[0].device: there is no device \"fats\"; did you mean \"fast\"?",
        ),
        (
            "nsid = 1\ndevice = \"zebra\"".to_owned(),
            "12: subsystems[0].namespaces[0].device: there is no device \"zebra\"; the devices are fast, slow",
        ),
        (
            "nsid = 0\ndevice = \"fast\"".to_owned(),
            "11: subsystems[0].namespaces[0].nsid: 0 is out of range; write a number from 1 to 1024",
        ),
        (
            // Once the target refused it, without line and key.
            "nsid = 1025\ndevice = \"fast\"".to_owned(),
            "11: subsystems[0].namespaces[0].nsid: 1025 is out of range; write a number from 1 to 1024",
        ),
        (
            "device = \"fast\"".to_owned(),
            "10: subsystems[0].namespaces[0].nsid: is missing; write its number in the subsystem, like nsid = 1",
        ),
        (
            format!("nsid = 1\ndevice = \"fast\"{again}nsid = 1\ndevice = \"slow\""),
            "14: subsystems[0].namespaces[1].nsid: 1 is the nsid of namespaces[0] of this subsystem too; write one that is free, like 2",
        ),
        (
            format!("nsid = 1\ndevice = \"fast\"{again}nsid = 2\ndevice = \"fast\""),
            "15: subsystems[0].namespaces[1].device: device \"fast\" is used by subsystems[0].namespaces[0] already; use another device, or write shared = true in [devices.fast]",
        ),
        (
            "nsid = 1\ndevice = \"fast\"\nsize = \"2M\"".to_owned(),
            "13: subsystems[0].namespaces[0].size: 2M is more than device \"fast\" has; write at most \"1M\", or omit it for all of it",
        ),
        (
            "nsid = 1\ndevice = \"fast\"\nsize = 100".to_owned(),
            "13: subsystems[0].namespaces[0].size: 100 is not a whole number of blocks of 4096 bytes; write \"4K\", or another multiple of 4096 bytes",
        ),
        (
            "nsid = 1\ndevice = \"fast\"\neui64 = \"12\"".to_owned(),
            "13: subsystems[0].namespaces[0].eui64: the text \"12\" cannot stand here; write 16 hexadecimal digits that are not all zeroes",
        ),
        (
            format!(
                "nsid = 1\ndevice = \"fast\"\neui64 = \"0123456789abcdef\"{again}nsid = 2\ndevice = \"slow\"\neui64 = \"0123456789ABCDEF\""
            ),
            "17: subsystems[0].namespaces[1].eui64: 0123456789abcdef names subsystems[0].namespaces[0] too, and hosts would take both for one; give each namespace its own, or omit it",
        ),
    ] {
        let text = with_namespace(&extra);
        assert_eq!(
            error(&text),
            format!("switchyard.toml:{expected}"),
            "{text}"
        );
    }
}

#[test]
fn a_shared_device_may_have_several_namespaces() {
    let text = with_namespace(
        "nsid = 1\ndevice = \"fast\"\neui64 = \"0123456789abcdef\"\n\
         [[subsystems.namespaces]]\nnsid = 2\ndevice = \"fast\"\neui64 = \"0123456789abcdef\"",
    )
    .replacen("size = \"1M\"", "size = \"1M\"\nshared = true", 1);
    let configuration = parse(&text, Format::Toml).expect("shared");
    assert_eq!(configuration.users_of("fast").count(), 2);
}

#[test]
fn subsystems_and_referrals_are_checked() {
    let good = "allow_any_host = true";
    for (text, expected) in [
        (
            format!("[[subsystems]]\nnqn = \"nqn.disks\"\n{good}"),
            "2: subsystems[0].nqn: \"nqn.disks\" has no date (year-month) after \"nqn.\"; write a name like \"nqn.2026-11.com.example:disks\"",
        ),
        (
            format!("[[subsystems]]\nnqn = \"nqn.2014-08.org.nvmexpress.discovery\"\n{good}"),
            "2: subsystems[0].nqn: is the name of the discovery subsystem, which is always there; write a name like \"nqn.2026-11.com.example:disks\"",
        ),
        (
            format!(
                "[[subsystems]]\nnqn = \"nqn.2026-11.a:b\"\n{good}\n[[subsystems]]\nnqn = \"nqn.2026-11.a:b\"\n{good}"
            ),
            "5: subsystems[1].nqn: \"nqn.2026-11.a:b\" is the name of subsystems[0] too; give each subsystem a name of its own",
        ),
        (
            "[[subsystems]]\nnqn = \"nqn.2026-11.a:b\"".to_owned(),
            "1: subsystems[0].allowed_hosts: is missing, and so is allow_any_host; write allowed_hosts = [\"nqn…\"] with the hosts' names, or allow_any_host = true",
        ),
        (
            "[[subsystems]]\nnqn = \"nqn.2026-11.a:b\"\nallowed_hosts = [\"\"]".to_owned(),
            "3: subsystems[0].allowed_hosts: \"\" is empty; write a name like \"nqn.2026-11.com.example:disks\"",
        ),
        (
            format!("[[subsystems]]\nnqn = \"nqn.2026-11.a:b\"\n{good}\nserial = \"é\""),
            "4: subsystems[0].serial: \"é\" cannot be told to hosts; write 1 to 20 printable ASCII characters, no blank first or last",
        ),
        (
            "[[discovery.referrals]]\naddress = \"0.0.0.0\"".to_owned(),
            "2: discovery.referrals[0].address: hosts cannot connect to 0.0.0.0; write the address of one machine",
        ),
        (
            "[[discovery.referrals]]\naddress = \"192.0.2.1\"\nport = 0".to_owned(),
            "3: discovery.referrals[0].port: 0 is no port; write a port, like 8009",
        ),
    ] {
        assert_eq!(
            error(&text),
            format!("switchyard.toml:{expected}"),
            "{text}"
        );
    }
}

#[test]
fn everything_wrong_is_told_at_once_in_order_of_lines() {
    let message = error("poll = 1\nlisten = 2\n[digests]\nheader = 3\nheadr = 4\n");
    let starts: Vec<&str> = message
        .lines()
        .map(|line| line.split(" the ").next().expect("a first part"))
        .collect();
    assert_eq!(
        starts,
        [
            "switchyard.toml:1: poll:",
            "switchyard.toml:2: listen:",
            "switchyard.toml:4: digests.header:",
            "switchyard.toml:5: digests.headr: is not a known key; did you mean \"header\"?",
        ]
    );
    let message = error("[limits]\nmax_r2t = 0\nconnections = 0\n");
    assert_eq!(message.lines().count(), 2);
}

#[test]
fn the_list_of_problems_has_an_end() {
    let listen = vec!["1"; 1000].join(",");
    let message = error(&format!("listen = [{listen}]"));
    assert_eq!(message.lines().count(), PROBLEMS_MAX + 1);
    assert!(message.ends_with("and 1 problems more"), "{message}");
}

#[test]
fn bad_syntax_is_named_with_its_line() {
    let message = error("poll = \"auto\"\nlisten = [\n");
    assert!(message.starts_with("switchyard.toml:"), "{message}");
    assert!(message.contains("this is not TOML"), "{message}");
    let error = parse("{\n \"poll\": }", Format::Json).expect_err("no JSON");
    assert_eq!(error.problems()[0].line, Some(2));
}

#[test]
fn numbers_in_other_bases_are_read() {
    let configuration = parse(
        "[limits]\nqueue_depth = 0x80\nmax_r2t = 0b11\nconnections = 1_000",
        Format::Toml,
    );
    let limits = configuration.expect("good").limits;
    assert_eq!(
        ["queue_depth", "max_r2t", "connections"].map(|key| limits.get(key)),
        [128, 3, 1000]
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z\\[\\]{}=\"'.,#0-9\n ]{0,200}") {
        let _ = parse(&text, Format::Toml);
        let _ = parse(&text, Format::Json);
    }

    /// Takes lines away from, and doubles lines of, a good file.
    #[test]
    fn no_torn_example_makes_the_reader_panic(cuts in proptest::collection::vec((0_usize..120, 0_usize..3), 0..8)) {
        let mut lines: Vec<&str> = EXAMPLE.lines().collect();
        for (at, what) in cuts {
            let at = at % lines.len();
            match what {
                0 => { lines.remove(at); }
                1 => lines.insert(at, lines[at]),
                _ => lines.swap(at, 0),
            }
        }
        if let Err(error) = parse(&lines.join("\n"), Format::Toml) {
            proptest::prop_assert!(!error.problems().is_empty());
        }
    }
}

#[test]
fn the_switch_is_a_baseline_and_what_differs() {
    let read = |text: &str| parse(text, Format::Toml).expect("it is good").switch.0;
    assert_eq!(read(""), Knobs::switchyard());
    assert_eq!(read("[switch]\nbaseline = \"linux\""), Knobs::linux());
    let text = "[switch]\ndoorbell_delay_us = 75\nprioritisation = true\nbaseline = \"linux\"\n";
    let mut expected = Knobs::linux();
    expected
        .change([("prioritisation", "on"), ("doorbell_delay_us", "75")])
        .expect("valid");
    assert_eq!(read(text), expected);
    // The short form wins over the baseline.
    let knobs = read("poll = \"never\"\n[switch]\nbaseline = \"poll\"");
    assert_eq!(knobs.polling, Polling::Never);
    let configuration = parse(text, Format::Toml).expect("it is good");
    let again = parse(&configuration.to_toml(), Format::Toml);
    assert_eq!(again.as_ref(), Ok(&configuration));
}

#[test]
fn what_is_wrong_with_the_switch_is_named_with_its_line() {
    for (text, expected) in [
        (
            "[switch]\ndorbell = \"fixed\"",
            ":2: switch.dorbell: is not a known knob; did you mean \"doorbell\"?",
        ),
        (
            "[switch]\ncolour = 1",
            ":2: switch.colour: is not a known knob; `switchyard switch knobs` lists them",
        ),
        (
            "[switch]\nthreads = \"per-core\"",
            ":2: switch.threads: was removed; omit it: each core of a switchboard has one thread \
             for all classes",
        ),
        (
            "[switch]\nbaseline = \"windows\"",
            ":2: switch.baseline: the text \"windows\" cannot stand here; write one of switchyard, \
             linux, ",
        ),
        (
            "[switch]\ncaravan = 1",
            ":2: switch.caravan: the integer 1 cannot stand here; write true or false",
        ),
        (
            "[switch]\nlanes = \"many\"",
            ":2: switch.lanes: the text \"many\" cannot stand here; write \"per-class\" or \"shared\"",
        ),
        (
            "[switch]\nquantum_bytes = 1",
            ":2: switch.quantum_bytes: the integer 1 cannot stand here; write an integer from 4096 \
             to 8388608",
        ),
        (
            "[switch]\ncaravan = true\ndoorbell_delay_us = 75",
            ":3: switch.doorbell_delay_us: doorbell_delay_us has an effect only with doorbell=fixed; \
             set that too, or omit this",
        ),
        (
            "poll = \"auto\"\n[switch]\npolling = \"never\"",
            ":3: switch.polling: says the same as poll; keep one of the two",
        ),
        (
            "switch = 1",
            ":1: switch: the integer 1 cannot stand here; write a table",
        ),
    ] {
        let message = error(text);
        let expected = format!("switchyard.toml{expected}");
        assert!(
            message.starts_with(&expected),
            "{message}\nshould begin with\n{expected}"
        );
    }
    let mut configuration = Configuration::default();
    configuration.switch.0.quantum_bytes = 1;
    let error = validate(&configuration)
        .expect_err("out of range")
        .to_string();
    assert!(
        error.starts_with("switch.quantum_bytes: quantum_bytes is 1; use"),
        "{error}"
    );
}

#[test]
fn hosts_name_files_of_the_folder_of_keys() {
    let host = "[[hosts]]\nnqn = \"nqn.2026-11.com.example:db\"\n";
    let good = format!(
        "{host}tls_keys = [\"db.key\", \"old/db.key\"]\nchap_secrets = [\"db.chap\"]\n\
         chap_controller_secret = \"target.chap\"\ntls = \"required\""
    );
    let configuration = parse(&good, Format::Toml).expect("it is good");
    assert_eq!(configuration.hosts[0].tls, HostTls::Required);
    assert_eq!(configuration.hosts[0].files().count(), 4);
    let again = parse(&configuration.to_toml(), Format::Toml);
    assert_eq!(again, Ok(configuration));
    for (text, expected) in [
        (
            good.replace("old/", "../"),
            "tls_keys: \"../db.key\" is no file of the folder",
        ),
        (
            good.replace("old/", "/etc/"),
            "tls_keys: \"/etc/db.key\" is no file of the folder",
        ),
        (
            good.replace("chap_secrets", "#"),
            "chap_controller_secret: proves the controller to",
        ),
        (
            good.replace("required", "always"),
            "tls: the text \"always\" cannot stand here",
        ),
        (
            format!("{host}{host}"),
            "nqn: \"nqn.2026-11.com.example:db\" is the name of hosts[0]",
        ),
    ] {
        let found = error(&text);
        assert!(found.contains(expected), "{found}");
    }
    let subsystem = "[[subsystems]]\nnqn = \"nqn.2026-11.com.example:a\"\nallow_any_host = true\n";
    for (word, expected) in [
        ("none", Authentication::None),
        ("tls", Authentication::Tls),
        ("chap", Authentication::Chap),
        ("chap+tls", Authentication::ChapAndTls),
    ] {
        let text = format!("{subsystem}authentication = \"{word}\"");
        let configuration = parse(&text, Format::Toml).expect("it is good");
        assert_eq!(configuration.subsystems[0].authentication, expected);
    }
    let found = error(&format!("chap_controller_secret = \"a\"\n{subsystem}"));
    let expected = "chap_controller_secret: proves the controller to hosts that prove nothing";
    assert!(found.contains(expected), "{found}");
}

#[test]
fn an_interface_with_tls_has_a_certificate_and_an_address() {
    let https = "api = \"https://0.0.0.0:4421\"\n";
    let good =
        format!("{https}api_certificate = \"c.pem\"\napi_key = \"k.pem\"\napi_tokens = \"t\"");
    let configuration = parse(&good, Format::Toml).expect("it is good");
    let again = parse(&configuration.to_toml(), Format::Toml).expect("it is good");
    assert_eq!(again.api_files.iter().count(), 3);
    for (text, expected) in [
        (
            https.to_owned(),
            "api_certificate: is missing, and the interface has an https address; write api_certificate",
        ),
        (
            "api = \"127.0.0.1:1\"\napi_key = \"k\"".to_owned(),
            "api_key: has no interface with TLS; write api = \"https://",
        ),
        (
            "api = \"unix:/a\"\napi_tokens = \"t\"".to_owned(),
            "api_tokens: has no interface on a port; write api",
        ),
        (
            good.replace("0.0.0.0", "storage.example"),
            "api: \"storage.example\" is the name of a machine; write the IP address to listen at",
        ),
    ] {
        let found = error(&text);
        assert!(found.contains(expected), "{found}");
    }
}

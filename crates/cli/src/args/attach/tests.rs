//! Tests of the arguments of `attach`.

use super::*;
use clap::Parser as _;

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(subcommand)]
    kind: AttachCommand,
}

/// The flag of the other kinds was refused.
#[test]
fn one_thread_serves_files_on_one_processor() {
    let parse = |flag, cores| {
        let line = ["attach", "fuse", "/mnt", "--ram", "1M", flag, cores];
        let line = Line::try_parse_from(line);
        line.map(|line| match line.kind {
            AttachCommand::Fuse(args) => args.cores,
            _ => None,
        })
    };
    for flag in ["--cores", "--core"] {
        assert_eq!(parse(flag, "3").expect("one processor"), Some(3));
    }
    let error = parse("--cores", "0-1").expect_err("two processors");
    assert!(error.to_string().contains("name a single CPU"), "{error}");
}

#[test]
fn the_access_to_a_socket_is_read() {
    let parse = |address: &[&str], mode| {
        let line = ["attach", "nbd", "--ram", "1M", "--socket-group", "root"];
        Line::try_parse_from([&line[..], address, &["--socket-mode", mode]].concat())
    };
    let line = parse(&["--socket", "s"], "0660").expect("a socket");
    let AttachCommand::Nbd(args) = line.kind else {
        panic!("it is NBD");
    };
    let access = args.access.get();
    assert_eq!((access.mode, access.group), ("0660".parse().ok(), Some(0)));
    let error = parse(&["--socket", "s"], "1777").expect_err("no such bits");
    assert!(error.to_string().contains("in octal"), "{error}");
    let line = parse(&["--listen", "127.0.0.1:0"], "0660").expect("it is read");
    let error = line.kind.wanted().expect_err("there is no socket");
    assert!(error.contains("--socket-mode: cannot be used"), "{error}");
}

/// They were taken and had no effect.
#[test]
fn flags_for_a_target_are_refused_beside_a_local_device() {
    let parse = |source: &[&str], flag: &[&str]| {
        let start = ["attach", "nbd", "--socket", "s"];
        Line::try_parse_from([&start[..], source, flag].concat())
    };
    for flag in [
        &["--nqn", "nqn.2026-11.io.example:a"][..],
        &["--nsid", "3"],
        &["--io-timeout", "5"],
        &["--baseline", "linux"],
        &["--host-nqn", "nqn.2026-11.io.example:h"],
        &["--digests"],
    ] {
        for source in [["--ram", "1M"], ["--null", "1M"], ["--file", "a"]] {
            let line = parse(&source, flag).expect("it is read");
            let error = line.kind.wanted().expect_err("it is for a target");
            let expected = format!("{}: is for a target", flag[0]);
            assert!(error.contains(&expected), "{error}");
        }
        let line = parse(&["--target", "127.0.0.1:4420"], flag).expect("it is for a target");
        line.kind.wanted().expect("it is for a target");
    }
}

fn read(text: &str) -> Result<File, ConfigError> {
    file::parse(text).map(of_entries)
}

#[test]
fn the_example_is_read() {
    let file = read(include_str!(
        "../../../../../docs/switchyard-attach.example.toml"
    ));
    let file = file.expect("the example is good");
    assert!(file.interface.address.is_some());
    let kinds = file.wanted.iter().map(|wanted| wanted.front_end.kind());
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        ["vhost", "nbd", "nbd", "ublk", "fuse"]
    );
    let has_rules = |wanted: &Wanted| {
        let rules = match &wanted.front_end {
            FrontEndOptions::Nbd(options) => &options.rules,
            FrontEndOptions::Fuse(options) => &options.rules,
            FrontEndOptions::Vhost(options) => &options.rules,
            FrontEndOptions::Ublk(options) => &options.rules,
        };
        !rules.is_empty()
    };
    assert!(file.wanted.iter().any(has_rules));
}

#[test]
fn keys_are_the_flags_of_the_kind() {
    let file = read(
        "[[attachments]]
         name = \"a\"
         kind = \"nbd\"
         listen = \"127.0.0.1:0\"
         target = \"127.0.0.1:4420\"
         block_size = 512
         cores = [0, 2]
         class = \"L\"
         read_only = true
         io_timeout = 5",
    );
    let file = file.expect("a good file");
    let FrontEndOptions::Nbd(options) = &file.wanted[0].front_end else {
        panic!("it is NBD");
    };
    assert!(options.read_only && options.class == Class::Latency);
    assert_eq!(options.cores, [0, 2].map(CoreId));
    let SourceDevice::Remote(remote) = &file.wanted[0].device else {
        panic!("it is a target");
    };
    let host = format!("{:?}", remote.host);
    assert!(
        host.contains("loss_timeout: Some(Nanos(5000000000))"),
        "{host}"
    );
}

/// The key of the other kinds was refused.
#[test]
fn files_have_the_processor_of_the_other_kinds_and_that_of_earlier_versions() {
    let read_core = |line: &str| -> Result<Option<CoreId>, ConfigError> {
        let text = "[[attachments]]\nname = \"a\"\nkind = \"fuse\"\nmountpoint = \"/mnt\"\n";
        let file = read(&format!("{text}ram = \"1M\"\n{line}"))?;
        match &file.wanted[0].front_end {
            FrontEndOptions::Fuse(options) => Ok(options.core),
            _ => panic!("it is FUSE"),
        }
    };
    for line in ["cores = [3]", "cores = \"3\"", "core = 3"] {
        assert_eq!(read_core(line).expect(line), Some(CoreId(3)), "{line}");
    }
    let refused = |line| read_core(line).expect_err(line).to_string();
    let two = refused("cores = [0, 1]");
    assert!(two.contains("attachments[0].cores"), "{two}");
    refused("core = 0\ncores = 0");
}

#[test]
fn faults_of_flags_are_faults_of_keys() {
    for (keys, expected) in [
        (
            "kind = \"nbd\"\nram = \"1M\"",
            "attachments[0]: has no address; write one of socket, listen",
        ),
        (
            "kind = \"nbd\"\nsocket = \"/s\"",
            "names no device; write one of target, ram, null, flash, file",
        ),
        (
            "kind = \"fuse\"\nram = \"1M\"",
            "attachments[0].mountpoint: is missing",
        ),
        (
            "kind = \"vhost\"\nram = \"1M\"",
            "attachments[0].socket: is missing",
        ),
        (
            "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nnull = \"1M\"",
            "cannot be used with",
        ),
        (
            "kind = \"nbd\"\nsocket = \"/s\"\nram = \"much\"",
            "line 5: attachments[0].ram: the text \"much\" cannot stand here; write a size such as",
        ),
        (
            "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nclass = \"X\"",
            "line 6: attachments[0].class: the text \"X\" cannot stand here",
        ),
        (
            "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\npoll = \"often\"",
            "attachments[0].poll: the text \"often\" cannot stand here; write one of always, never, auto",
        ),
        (
            "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nread_only = \"yes\"",
            "attachments[0].read_only: the text \"yes\" cannot stand here; write true or false",
        ),
        (
            "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nqueues = 2",
            "line 6: attachments[0].queues: is not a known key",
        ),
    ] {
        let text = format!("[[attachments]]\nname = \"a\"\n{keys}");
        let error = read(&text).expect_err(keys).to_string();
        assert!(error.contains(expected), "{keys}\n{error}");
    }
}

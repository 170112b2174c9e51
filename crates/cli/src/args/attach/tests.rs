//! Tests of the arguments of `attach`.

use super::*;
use clap::Parser as _;
use clap::error::ErrorKind;

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
            AttachCommand::Fuse(args) => args.core,
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
    parse(&["--listen", "127.0.0.1:0"], "0660").expect_err("there is no socket");
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
            let error = parse(&source, flag).expect_err("it is for a target");
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{flag:?}");
        }
        parse(&["--target", "127.0.0.1:4420"], flag).expect("it is for a target");
    }
}

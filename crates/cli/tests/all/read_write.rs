//! `switchyard read` and `switchyard write`: data is returned unchanged, whatever its alignment.

use crate::common::{Folder, Serving, code, json, pattern, run, run_with_input, stderr};

#[test]
fn bytes_come_back_whatever_their_alignment_and_neighbours_stay() {
    for block in ["512", "4096"] {
        let serving = Serving::start(&[
            "--listen",
            "127.0.0.1:0",
            "--ram",
            "32M",
            "--block-size",
            block,
        ]);
        let address = serving.address();
        let folder = Folder::new();
        let mut expected = pattern(1, 32 << 20);
        let whole = folder.write("whole", &expected);
        code(&run(&["write", address, "--input", &whole, "--flush"]), 0);
        let pieces = [
            (0, 1),
            (511, 2),
            (777, 100),
            (4096, 4096),
            (1_000_000, 9 << 20),
            (4095, 8194),
        ];
        for (seed, (at, length)) in (2..).zip(pieces) {
            let data = pattern(seed, length);
            let output = run_with_input(&["write", address, "--offset", &at.to_string()], &data);
            code(&output, 0);
            expected[at..at + length].copy_from_slice(&data);
        }
        let output = run(&["read", address]);
        code(&output, 0);
        assert!(output.stdout == expected, "the whole namespace reads back");
        let output = run(&[
            "read",
            address,
            "--offset",
            "4001",
            "--length",
            "1M",
            "--digests",
        ]);
        code(&output, 0);
        assert!(output.stdout == expected[4001..4001 + (1 << 20)]);
    }
}

#[test]
fn a_file_keeps_what_was_written() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 8 << 20]);
    let data = pattern(9, 3_000_000);
    let input = folder.write("in", &data);
    {
        let serving = Serving::start(&["--listen", "127.0.0.1:0", "--file", &disk]);
        let output = run(&[
            "write",
            serving.address(),
            "--input",
            &input,
            "--offset",
            "1M",
            "--flush",
        ]);
        code(&output, 0);
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0));
    }
    let stored = std::fs::read(&disk).unwrap();
    assert!(stored[1 << 20..(1 << 20) + data.len()] == data);
    let serving = Serving::start(&["--listen", "127.0.0.1:0", "--file", &disk]);
    let out = folder.path("out");
    let length = data.len().to_string();
    let args = [
        "read",
        serving.address(),
        "--offset",
        "1M",
        "--length",
        &length,
        "-o",
        &out,
    ];
    let output = run(&[&args[..], &["--json"]].concat());
    code(&output, 0);
    assert_eq!(json(&output)["bytes"], data.len());
    assert!(json(&output)["bytes_per_second"].is_f64());
    assert!(std::fs::read(&out).unwrap() == data);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let serving = Serving::small();
    let folder = Folder::new();
    let large = folder.write("large", vec![7; (16 << 20) + 1]);
    let output = run(&["write", serving.address(), "--input", &large]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("nothing was written"),
        "{}",
        stderr(&output)
    );
    let output = run(&["read", serving.address(), "--length", "4k"]);
    assert!(output.stdout == [0; 4096]);
    let output = run(&[
        "write",
        serving.address(),
        "--input",
        &large,
        "--length",
        "16M",
    ]);
    code(&output, 0);

    for args in [
        &["read", serving.address(), "--offset", "17M"][..],
        &[
            "read",
            serving.address(),
            "--offset",
            "1M",
            "--length",
            "16M",
        ],
        &["read", serving.address(), "--offset", "1X"],
        &["read", serving.address(), "--nsid", "2"],
        &["write", serving.address(), "--offset", "17M"],
        &["write", serving.address(), "--input", "/nowhere/file"],
    ] {
        let output = run(args);
        code(&output, 2);
        assert!(!stderr(&output).is_empty());
    }
    let input = pattern(1, 8192);
    let output = run_with_input(
        &["write", serving.address(), "--offset", "16773120"],
        &input,
    );
    code(&output, 2);
    assert!(
        stderr(&output).contains("does not fit"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_failing_device_is_an_error_with_its_place() {
    let folder = Folder::new();
    let text = "listen = [\"127.0.0.1:0\"]\n[devices.d]\ntype = \"ram\"\nsize = \"8M\"\n\
                [devices.d.fault]\nseed = 1\n[[devices.d.fault.rules]]\noperation = \"read\"\n\
                first_block = 10\nblocks = 1\nerror = \"media\"\n\
                [[subsystems]]\nnqn = \"nqn.2026-11.io.switchyard:default\"\n\
                allow_any_host = true\n[[subsystems.namespaces]]\nnsid = 1\ndevice = \"d\"\n";
    let serving = Serving::start(&["--config", &folder.write("s.toml", text)]);
    code(&run(&["read", serving.address(), "--length", "40960"]), 0);
    let output = run(&[
        "read",
        serving.address(),
        "--offset",
        "40960",
        "--length",
        "1",
    ]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("cannot read at byte 40960"),
        "{}",
        stderr(&output)
    );
}

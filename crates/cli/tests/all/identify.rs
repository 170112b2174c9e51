//! `switchyard identify`.

use crate::common::{Folder, NQN, Serving, code, json, run, stderr, stdout};

#[test]
fn controller_and_namespaces_are_shown() {
    let serving = Serving::start(&["--listen", "127.0.0.1:0", "--ram", "16M", "--null", "1G"]);
    let output = run(&["identify", serving.address(), "--nqn", NQN]);
    code(&output, 0);
    assert!(
        stdout(&output).contains("namespace 2: 1.00 GiB"),
        "{}",
        stdout(&output)
    );

    let output = run(&["identify", serving.address(), "--json", "--nsid", "1"]);
    code(&output, 0);
    let value = json(&output);
    assert_eq!(value["controller"]["nqn"], NQN);
    assert_eq!(value["controller"]["in_capsule_bytes"], 16384);
    assert_eq!(value["namespaces"].as_array().unwrap().len(), 1);
    let namespace = &value["namespaces"][0];
    assert_eq!(namespace["nsid"], 1);
    assert_eq!(namespace["bytes"], 16 << 20);
    assert_eq!(namespace["block_bytes"], 4096);
    assert!(namespace["uuid"].is_string());
}

#[test]
fn what_does_not_exist_is_negative_and_what_is_refused_an_error() {
    let serving = Serving::small();
    let output = run(&["identify", serving.address(), "--nsid", "7"]);
    code(&output, 1);
    assert!(
        stderr(&output).contains("no active namespace 7"),
        "{}",
        stderr(&output)
    );
    assert!(output.stdout.is_empty(), "it is not what was asked for");
    let output = run(&[
        "identify",
        serving.address(),
        "--nqn",
        "nqn.2026-11.io.example:none",
    ]);
    code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("discover"), "{said}");
    // The status has a different name for other commands.
    assert!(
        said.contains("refused: Connect Invalid Parameters"),
        "{said}"
    );
    let output = run(&["identify", serving.address(), "--nqn", "nqn.disk"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("NVMe Qualified Name"),
        "{}",
        stderr(&output)
    );
}

/// Returns the UUID of namespace 1 of a target that is started with these arguments and then ended.
fn uuid_of_a_target_with(args: &[&str]) -> String {
    let serving = Serving::start(&[&["--listen", "127.0.0.1:0"], args].concat());
    let output = run(&["identify", serving.address(), "--json", "--nsid", "1"]);
    code(&output, 0);
    json(&output)["namespaces"][0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_volume_keeps_its_uuid_and_another_in_its_place_has_its_own() {
    let folder = Folder::new();
    let [first, second] = ["first", "second"].map(|name| folder.write(name, [0; 4096]));
    let uuid = uuid_of_a_target_with(&["--file", &first]);
    assert_eq!(uuid_of_a_target_with(&["--file", &first]), uuid);
    assert_ne!(uuid_of_a_target_with(&["--file", &second]), uuid);

    // Memory is lost with the target.
    let memory = ["--ram", "1M"];
    assert_ne!(
        uuid_of_a_target_with(&memory),
        uuid_of_a_target_with(&memory)
    );
}

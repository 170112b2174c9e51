//! `switchyard import`: configurations in the forms that the other targets write, and a target that
//! starts with the result.

use crate::common::{Folder, Serving, code, json, own_address, run, stderr, stdout};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;

const NQN: &str = "nqn.2026-11.com.example:disks";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:6ba7b810-9dad-41d1-80b4-00c04fd430c8";
const UUID: &str = "d592cdf3-5d1c-44e0-8412-3fcf7d99df27";

/// Returns an address that no other test uses, with a port that a configuration can name.
fn address() -> String {
    own_address().replace(":0", ":4420")
}

/// Imports, and starts a target with the result; returns it, and what import printed.
fn serve(folder: &Folder, source: &[&str]) -> (Serving, String, String) {
    let output = run(&[&["import"], source].concat());
    code(&output, 0);
    let text = stdout(&output);
    let file = folder.write("target.toml", &text);
    (Serving::start(&["--config", &file]), text, stderr(&output))
}

fn identified(serving: &Serving, nsid: u64) -> serde_json::Value {
    let args = ["--nqn", NQN, "--host-nqn", HOST, "--json"];
    let output = run(&[&["identify", serving.address()], &args[..]].concat());
    code(&output, 0);
    let all = json(&output);
    let mut all = all["namespaces"].as_array().expect("a list").iter();
    all.find(|it| it["nsid"] == nsid)
        .expect("it is there")
        .clone()
}

/// What `nvmetcli save` writes for one subsystem at this address.
fn nvmetcli(address: &str, disk: &str) -> serde_json::Value {
    let (ip, port) = address.rsplit_once(':').expect("an address");
    json!({
        "hosts": [{ "nqn": HOST }],
        "ports": [{
            "addr": { "adrfam": "ipv4", "traddr": ip, "treq": "not specified", "trsvcid": port, "trtype": "tcp" },
            "ana_groups": [{ "ana": { "state": "optimized" }, "grpid": 1 }],
            "param": { "inline_data_size": "16384", "pi_enable": "0" },
            "portid": 1,
            "referrals": [{
                "addr": { "adrfam": "ipv4", "traddr": "192.0.2.17", "trsvcid": "8009", "trtype": "tcp" },
                "enable": 1, "name": "other"
            }],
            "subsystems": [NQN],
        }],
        "subsystems": [{
            "allowed_hosts": [HOST],
            "attr": { "allow_any_host": "0", "model": "Linux", "serial": "123456789abcdef", "version": "1.3" },
            "namespaces": [{
                "ana_grpid": 1,
                "device": { "nguid": "00000000-0000-0000-0000-000000000000", "path": disk, "uuid": UUID },
                "enable": 1,
                "nsid": 1
            }],
            "nqn": NQN,
        }],
    })
}

#[test]
fn a_target_of_nvmetcli_serves_the_same_disk_under_the_same_names() {
    let folder = Folder::new();
    let disk = folder.write("disk", vec![0; 1 << 20]);
    let mut saved = nvmetcli(&address(), &disk);
    let file = folder.write("config.json", saved.to_string());
    let (serving, text, notes) = serve(&folder, &["nvmetcli", &file]);
    assert_eq!(notes, "");
    assert!(text.contains("serial = \"123456789abcdef\""), "{text}");
    assert!(
        text.contains("address = \"192.0.2.17\"") && !text.contains("[limits]"),
        "{text}"
    );
    let found = identified(&serving, 1);
    assert_eq!(found["uuid"], UUID, "{found}");
    assert_eq!(found["block_bytes"], 4096, "{found}");
    drop(serving);

    // What has no equivalent, or would give more access, is told and left out.
    let more = json!([
        { "device": { "path": disk }, "enable": 0, "nsid": 2 },
        { "device": { "path": disk }, "enable": 1, "nsid": 3000 },
        { "device": { "path": disk }, "enable": 1, "nsid": 4, "resv": { "enable": "1" } },
    ]);
    let all = saved["subsystems"][0]["namespaces"]
        .as_array_mut()
        .expect("a list");
    all.extend(more.as_array().expect("a list").clone());
    let mut hidden = saved["subsystems"][0].clone();
    hidden["nqn"] = json!("nqn.2026-11.com.example:hidden");
    saved["subsystems"]
        .as_array_mut()
        .expect("a list")
        .push(hidden);
    saved["ports"][0]["ana_groups"][0]["ana"]["state"] = json!("inaccessible");
    let file = folder.write("config.json", saved.to_string());
    let output = run(&["import", "nvmetcli", &file]);
    code(&output, 0);
    let (text, notes) = (stdout(&output), stderr(&output));
    for note in [
        "was disabled",
        "up to 1024",
        "has reservations",
        "ANA group 1 is inaccessible",
        "example:hidden has no TCP address",
    ] {
        assert!(
            notes.contains(note) && text.contains(note),
            "{note}: {notes}"
        );
    }
    assert!(
        text.contains("shared = true"),
        "two namespaces use one disk: {text}"
    );
}

#[test]
fn the_kernels_tree_is_read_and_no_key_is_printed() {
    let folder = Folder::new();
    let disk = folder.write("disk", vec![0; 1 << 20]);
    let address = address();
    let (ip, port) = address.rsplit_once(':').expect("an address");
    let attribute = |path: &str, value: &str| {
        let path = folder.path(&format!("nvmet/{path}"));
        let parent = std::path::Path::new(&path).parent().expect("a folder");
        fs::create_dir_all(parent).expect("a folder");
        fs::write(&path, format!("{value}\n")).expect("a file");
    };
    let secret = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
    for (path, value) in [
        (&*format!("hosts/{HOST}/dhchap_key"), secret),
        (&*format!("hosts/{HOST}/dhchap_ctrl_key"), ""),
        ("ports/1/addr_trtype", "tcp"),
        ("ports/1/addr_traddr", ip),
        ("ports/1/addr_trsvcid", port),
        ("ports/2/addr_trtype", "fc"),
        (&*format!("subsystems/{NQN}/attr_allow_any_host"), "0"),
        (&*format!("subsystems/{NQN}/attr_serial"), "abc"),
        (
            &*format!("subsystems/{NQN}/namespaces/7/device_path"),
            &disk,
        ),
        (&*format!("subsystems/{NQN}/namespaces/7/device_uuid"), UUID),
        (&*format!("subsystems/{NQN}/namespaces/7/enable"), "1"),
    ] {
        attribute(path, value);
    }
    for link in [
        format!("subsystems/{NQN}/allowed_hosts/{HOST}"),
        format!("ports/1/subsystems/{NQN}"),
    ] {
        let link = folder.path(&format!("nvmet/{link}"));
        let parent = std::path::Path::new(&link).parent().expect("a folder");
        fs::create_dir_all(parent).expect("a folder");
        symlink("/", &link).expect("a link");
    }
    let output = run(&["import", "configfs", &folder.path("nvmet")]);
    code(&output, 0);
    let (text, notes) = (stdout(&output), stderr(&output));
    assert!(!text.contains("DHHC") && !notes.contains("DHHC"), "{text}");
    assert!(notes.contains("transport \"fc\"; left out"), "{notes}");
    assert!(text.contains("authentication = \"chap\""), "{text}");
    // The key is where the note says.
    let name = &format!("{}.chap", HOST.replace(':', "_"));
    assert!(notes.contains(&format!("> {name})")), "{notes}");
    let key = folder.write(name, format!("{secret}\n"));
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
    let file = folder.write("target.toml", &text);
    let serving = Serving::start(&["--config", &file]);
    let secret = [
        "--chap-secret",
        &key,
        "--nqn",
        NQN,
        "--host-nqn",
        HOST,
        "--json",
    ];
    let output = run(&[&["identify", serving.address()], &secret[..]].concat());
    code(&output, 0);
    assert_eq!(json(&output)["namespaces"][0]["nsid"], 7);
}

#[test]
fn a_target_of_spdk_serves_its_files_memory_and_keys() {
    let folder = Folder::new();
    let disk = folder.write("disk", vec![0; 1 << 20]);
    let key = folder.path("psk0");
    code(&run(&["key", "tls", "new", "--output", &key]), 0);
    let address = address();
    let (ip, port) = address.rsplit_once(':').expect("an address");
    let call =
        |method: &str, params: serde_json::Value| json!({ "method": method, "params": params });
    let saved = json!({ "subsystems": [
        { "subsystem": "keyring", "config": [call("keyring_file_add_key", json!({ "name": "key0", "path": key }))] },
        { "subsystem": "sock", "config": [call("sock_impl_set_options", json!({ "impl_name": "posix" }))] },
        { "subsystem": "scheduler", "config": null },
        { "subsystem": "bdev", "config": [
            call("bdev_set_options", json!({ "bdev_io_pool_size": 65535 })),
            call("bdev_aio_create", json!({ "name": "aio0", "block_size": 512, "filename": disk, "readonly": false })),
            call("bdev_malloc_create", json!({ "name": "Malloc0", "num_blocks": 2048, "block_size": 4096, "uuid": UUID })),
            call("bdev_nvme_attach_controller", json!({ "name": "Nvme0", "trtype": "PCIe", "traddr": "0000:01:00.0" })),
        ] },
        { "subsystem": "nvmf", "config": [
            call("nvmf_set_config", json!({})),
            call("nvmf_create_transport", json!({ "trtype": "TCP" })),
            call("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": false, "serial_number": "SPDK1", "model_number": "m" })),
            call("nvmf_subsystem_add_host", json!({ "nqn": NQN, "host": HOST, "psk": "key0" })),
            call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "nsid": 1, "bdev_name": "aio0" } })),
            call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "nsid": 2, "bdev_name": "Malloc0", "uuid": UUID, "nguid": UUID.replace('-', "").to_uppercase() } })),
            call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "nsid": 3, "bdev_name": "Nvme0n1" } })),
            call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "nsid": 4, "bdev_name": "Malloc0" } })),
            call("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "secure_channel": true,
                "listen_address": { "trtype": "TCP", "adrfam": "IPv4", "traddr": ip, "trsvcid": port } })),
        ] },
    ] });
    let file = folder.write("spdk.json", saved.to_string());
    let (serving, text, notes) = serve(&folder, &["spdk", &file]);
    for note in [
        "bdev_nvme_attach_controller of Nvme0",
        "namespace of Nvme0n1",
        "Malloc0 is memory",
    ] {
        assert!(
            notes.contains(note) && text.contains(note),
            "{note}: {notes}"
        );
    }
    assert_eq!(notes.lines().count(), 3, "{notes}");
    let args = ["--nqn", NQN, "--host-nqn", HOST, "--json"];
    let identify = [&["identify", serving.address()], &args[..]].concat();
    code(&run(&identify), 2);
    let output = run(&[&identify[..], &["--tls-key", &key]].concat());
    code(&output, 0);
    let found = json(&output);
    assert_eq!(found["namespaces"][1]["uuid"], UUID, "{found}");
    assert_eq!(found["namespaces"].as_array().map(Vec::len), Some(3));
    assert!(text.contains("shared = true"), "{text}");
}

#[test]
fn what_is_no_such_configuration_is_refused_with_the_reason() {
    let folder = Folder::new();
    for (kind, text, expected) in [
        ("nvmetcli", "", "it is not JSON"),
        ("nvmetcli", "[1, 2]", "no \"subsystems\" and no \"ports\""),
        ("nvmetcli", "{\"ports\": 7}", "\"ports\" is no list"),
        (
            "nvmetcli",
            "{\"subsystems\": [{\"attr\": {}}]}",
            "no \"nqn\" in {\"attr\":{}}",
        ),
        ("spdk", "{}", "rpc.py save_config"),
        ("spdk", "{\"subsystems\": [{}]}", "no \"subsystem\" in {}"),
        (
            "spdk",
            "{\"subsystems\": [{\"subsystem\": \"nvmf\", \"config\": [{\"method\": \"nvmf_subsystem_add_ns\", \
             \"params\": {\"nqn\": \"a\", \"namespace\": {\"bdev_name\": \"b\"}}}]}]}",
            "there is no nvmf_create_subsystem of \"a\" before it",
        ),
        ("spdk", &"[".repeat(100_000), "it is not JSON"),
    ] {
        let file = folder.write("file", text);
        let output = run(&["import", kind, &file]);
        code(&output, 2);
        let error = stderr(&output);
        assert!(
            error.contains(expected) && error.contains(&file),
            "{text:.40}: {error}"
        );
    }
    let output = run(&["import", "configfs", &folder.path("missing")]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("modprobe nvmet"),
        "{}",
        stderr(&output)
    );

    // A configuration that a target would refuse is printed with its problems.
    let mut saved = nvmetcli("127.0.0.1:4420", "/disk");
    saved["subsystems"][0]["attr"]["serial"] = json!("a serial number that is too long");
    let file = folder.write("file", saved.to_string());
    let output = run(&["import", "nvmetcli", &file]);
    code(&output, 1);
    assert!(
        stderr(&output).contains("correct this: "),
        "{}",
        stderr(&output)
    );
    assert!(
        stdout(&output).contains("unknown block size"),
        "{}",
        stdout(&output)
    );
}

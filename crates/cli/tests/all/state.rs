//! Changes by the HTTP interface survive a kill of the target; `switchyard config`.

use crate::common::{
    Folder, NQN, Serving, code, eventually, json, request, run, run_with_input, stderr, stdout,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

/// A target over a file, with its HTTP interface and its state file in `folder`.
fn serve(folder: &Folder, config: &str) -> (Serving, String) {
    let state = folder.path("state.json");
    let mut serving = Serving::start(&["--config", config, "--state", &state]);
    while !serving.line().starts_with("API at ") {}
    (serving, format!("unix:{}", folder.path("api.sock")))
}

fn target_toml(folder: &Folder, more: &str) -> String {
    folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"unix:{}\"\ncores = [0]\n{more}\n\
             [devices.disk]\ntype = \"ram\"\nsize = \"1M\"\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"disk\" }}]\n",
            folder.path("api.sock")
        ),
    )
}

#[test]
fn a_change_by_command_outlives_sigkill_and_sighup_and_is_saved() {
    let folder = Folder::new();
    let config = target_toml(&folder, "");
    let (serving, api) = serve(&folder, &config);
    let diff = run(&["config", "diff", "--api", &api]);
    code(&diff, 0);
    let host = ["--host", "nqn.2026-11.io.example:batch", "--api", &api];
    let add = ["tenant", "add", "batch"].iter().chain(&host).copied();
    code(&run(&add.collect::<Vec<_>>()), 0);
    serving.signal("-KILL");
    drop(serving);

    let (serving, api) = serve(&folder, &config);
    let diff = run(&["config", "diff", "--api", &api]);
    code(&diff, 1);
    assert!(
        stdout(&diff).starts_with("tenants.batch\n  + "),
        "{}",
        stdout(&diff)
    );
    let show = || run(&["config", "show", "--api", &api, "--json"]);
    target_toml(&folder, "default_tenant = false");
    serving.signal("-HUP");
    eventually("the file's change", || {
        json(&show())["default_tenant"] == false
    });
    assert_eq!(json(&show())["tenants"][0]["name"], "batch");

    let refused = run(&["config", "save", &config, "--api", &api]);
    code(&refused, 2);
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    // Users other than this command's may read it.
    std::fs::set_permissions(&config, Permissions::from_mode(0o604)).unwrap();
    code(
        &run(&["config", "save", &config, "--force", "--api", &api]),
        0,
    );
    let mode = std::fs::metadata(&config).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o604);
    code(&run(&["config", "diff", &config, "--api", &api]), 0);
    let remove = || code(&run(&["tenant", "remove", "batch", "--api", &api]), 0);
    remove();
    code(&run(&["config", "diff", &config, "--api", &api]), 1);
    code(&run(&["config", "apply", &config, "--api", &api]), 0);
    assert_eq!(json(&show())["tenants"][0]["name"], "batch");

    // A change after a save or an apply is not undone by the file.
    let change_file_and_hang_up = || {
        let text = std::fs::read_to_string(&config).unwrap();
        let served = text.contains("default_tenant = true");
        let [old, new] = [served, !served].map(|served| format!("default_tenant = {served}"));
        std::fs::write(&config, text.replace(&old, &new)).unwrap();
        serving.signal("-HUP");
        eventually("the file's change", || {
            json(&show())["default_tenant"] == !served
        });
        assert_eq!(json(&show())["tenants"], serde_json::json!([]));
    };
    remove();
    change_file_and_hang_up();
    code(&run(&["config", "apply", &config, "--api", &api]), 0);
    let save = |file: &str| run(&["config", "save", file, "--force", "--api", &api, "--json"]);
    assert_eq!(json(&save(&config))["own"], true);
    remove();
    change_file_and_hang_up();
    // A copy is not the target's own configuration file.
    assert_eq!(json(&save(&folder.path("copy.toml")))["own"], false);
    code(&run(&["config", "diff", "--api", &api]), 1);
    change_file_and_hang_up();
}

/// Regression: it was refused as if the target had to wait for another program.
#[test]
fn a_configuration_that_a_program_writes_is_read_from_a_pipe() {
    let folder = Folder::new();
    let config = target_toml(&folder, "");
    let (_serving, api) = serve(&folder, &config);
    let same = std::fs::read(&config).unwrap();
    let other = std::fs::read(target_toml(&folder, "default_tenant = false")).unwrap();
    for (command, text, expected) in [
        ("diff", &same, 0),
        ("diff", &other, 1),
        ("apply", &other, 0),
        ("diff", &other, 0),
    ] {
        let args = ["config", command, "/dev/stdin", "--api", &api];
        code(&run_with_input(&args, text), expected);
    }
    let endless = run(&["config", "apply", "/dev/zero", "--api", &api]);
    code(&endless, 2);
    assert!(stderr(&endless).contains("larger than"));
}

#[test]
fn a_configuration_is_not_saved_over_a_folder() {
    let folder = Folder::new();
    let config = target_toml(&folder, "");
    let (_serving, api) = serve(&folder, &config);
    let refused = run(&[
        "config",
        "save",
        &folder.path("."),
        "--force",
        "--api",
        &api,
    ]);
    code(&refused, 2);
    assert!(stderr(&refused).contains("name a file in it"));
}

#[test]
fn a_key_that_needs_a_restart_differs_as_well() {
    let folder = Folder::new();
    let config = target_toml(&folder, "");
    let (_serving, api) = serve(&folder, &config);
    let saved = folder.path("saved.toml");
    code(&run(&["config", "save", &saved, "--api", &api]), 0);
    code(&run(&["config", "diff", &saved, "--api", &api]), 0);
    let text = std::fs::read_to_string(&saved).unwrap();
    let other = folder.write("other.toml", text.replace("max_r2t = 4", "max_r2t = 2"));
    let diff = run(&["config", "diff", &other, "--api", &api]);
    code(&diff, 1);
    let told = stdout(&diff);
    assert!(
        told.starts_with("limits.max_r2t (needs a restart)\n"),
        "{told}"
    );
}

/// Returns the whole content of the namespace.
fn content(folder: &Folder, serving: &Serving) -> Vec<u8> {
    let out = folder.path("out");
    let read = ["read", serving.address(), "--output", &out];
    code(&run(&read), 0);
    std::fs::read(out).unwrap()
}

/// Regression: it was treated as a device that the HTTP interface had added, outside of the folders
/// for those.
#[test]
fn a_device_of_the_file_that_grew_is_served_again() {
    let folder = Folder::new();
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\napi = \"unix:{}\"\ncores = [0]\n\
         [devices.disk]\ntype = \"file\"\npath = \"{}\"\nsize = \"4M\"\ncreate = true\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, device = \"disk\", size = \"4M\" }}]\n",
        folder.path("api.sock"),
        folder.path("disk"),
    );
    let config = folder.write("target.toml", config);
    let (serving, _) = serve(&folder, &config);
    let grown = request(
        UnixStream::connect(folder.path("api.sock")).unwrap(),
        &format!("PATCH /v1/subsystems/{NQN}/namespaces/1"),
        r#"{"size":"8M"}"#,
    );
    assert!(grown.starts_with("HTTP/1.1 200"), "{grown}");
    serving.signal("-KILL");
    drop(serving);
    let (serving, _) = serve(&folder, &config);
    assert_eq!(content(&folder, &serving).len(), 8 << 20);
}

//! The page of a process of front ends.

use super::browser::Browser;
use super::{TOKEN, change, column, faults, log_in, run_shown};
use crate::common::attaching::{nbd, nbd_client};
use crate::common::{Folder, eventually, program};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

/// A process with an API at a loopback port, killed when dropped.
struct Process {
    child: Child,
    api: String,
}

impl Process {
    fn start(folder: &Folder, attachments: &str) -> Self {
        let file = format!("api = \"127.0.0.1:0\"\n{attachments}");
        let file = folder.write("attach.toml", file);
        let mut command = program();
        command.env("SWITCHYARD_API_TOKEN", TOKEN);
        let command = command.args(["attach", "--config", &file]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let api = lines
            .map(Result::unwrap)
            .find_map(|line| Some(line.strip_prefix("API at ")?.to_owned()));
        let api = api.expect("it names its API");
        Self { child, api }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn front_ends_are_shown_and_detached() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let folder = Folder::new();
    let names = ["a", "b", "c"];
    let attachments = names.map(|name| nbd(&folder, name, "ram = \"16M\""));
    let process = Process::start(&folder, &attachments.concat());
    browser.open(&format!("http://{}/", process.api));
    log_in(&browser, TOKEN, "#attachment-table tbody th");
    let shown = |title| column(&browser, "#attachment-table", title);
    let has_names = |expected: &[&str]| {
        eventually("the front ends are shown", || shown("Name") == expected);
    };
    has_names(&names);
    assert_eq!(shown("Front end"), ["nbd"; 3]);
    assert_eq!(shown("Size"), ["16 MiB"; 3]);
    assert_eq!(shown("State"), ["local"; 3]);
    assert_eq!(faults(&browser), Vec::<String>::new());

    let client = nbd_client(&folder, "a");
    eventually("the client is shown", || {
        shown("Clients") == ["1", "0", "0"]
    });
    // One in use is detached by force only, as the dialog says.
    browser.click("#attachment-table tbody tr:nth-child(2) button");
    browser.click("#submit");
    browser.wait("document.getElementById('dialog-error').textContent.includes('in use')");
    browser.click("#cancel");
    let refused = browser.console();
    assert!(
        refused.iter().all(|line| line.contains("409")),
        "{refused:?}"
    );
    let first = "#attachment-table tbody tr:nth-child(2) button";
    let forced = change(&browser, first, &[("force", "yes")]);
    assert_eq!(forced, "switchyard detach a --force");
    has_names(&["b", "c"]);
    drop(client);
    let detach = change(&browser, first, &[]);
    has_names(&["c"]);
    run_shown(&process.api, &detach.replace("detach b", "detach c"));
    has_names(&[]);
    assert_eq!(browser.console(), Vec::<String>::new());
    drop(process);
    browser.wait("document.getElementById('state').textContent.includes('no data')");
    assert_eq!(browser.run("return location.pathname", json!([])), "/");
}

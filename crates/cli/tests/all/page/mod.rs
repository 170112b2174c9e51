//! The page of the API in a real browser.

mod browser;
mod front_ends;

use crate::common::{Folder, NQN, Serving, device_model, endless_bench, eventually, program};
pub(crate) use browser::Browser;
use browser::{ESCAPE, TAB, http};
use serde_json::{Value, json};
use std::process::{Child, Command};

/// A cell of the table that is filled last.
pub(crate) const KNOBS: &str = "#knob-table tbody th";

const TOKEN: &str = "0123456789abcdef";

/// A token that may read, and its line in the file of tokens.
const READ: &str = "abcdefghijklmnop";
const READ_LINE: &str =
    "read f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf # a viewer\n";

/// The name of a host that would run a script in a careless page.
const HOSTILE: &str = "nqn.2026-11.com.example:<img src=x onerror=alert(1)>";

const TENANTS: &str = "
[[tenants]]
name = \"database\"
hosts = [\"nqn.2026-11.com.example:db\"]
latency_critical = { latency_us = 500, iops = 10000 }
[[tenants]]
name = \"backup\"
hosts = [\"nqn.2026-11.com.example:backup\"]
best_effort = { weight = 20 }
";

/// A target with an API at a loopback port.
struct Shown {
    serving: Serving,
    api: String,
    folder: Folder,
}

impl Shown {
    fn start(more: &str) -> Self {
        Self::start_with("", more)
    }

    /// Starts it with further keys, and further tables of its configuration.
    fn start_with(keys: &str, more: &str) -> Self {
        let folder = Folder::new();
        let model = folder.write("model.toml", device_model(100_000));
        let config = folder.write(
            "target.toml",
            format!(
                "listen = [\"127.0.0.1:0\"]\napi = \"127.0.0.1:0\"\ncores = [0]\n{keys}\n\
                 [devices.fast]\ntype = \"flash\"\nprofile = \"A/8\"\nsize = \"8M\"\nmodel = \"{model}\"\n\
                 [devices.spare]\ntype = \"ram\"\nsize = \"4M\"\n\
                 [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
                 namespaces = [{{ nsid = 1, device = \"fast\" }}]\n{more}"
            ),
        );
        let mut command = program();
        command.env("SWITCHYARD_API_TOKEN", TOKEN);
        let mut serving = Serving::start_by(command, &["--config", &config]);
        let api = loop {
            if let Some(api) = serving.line().strip_prefix("API at ") {
                break api.to_owned();
            }
        };
        Self {
            serving,
            api,
            folder,
        }
    }

    /// Returns what the API answers; null if there is nothing.
    fn get(&self, path: &str) -> Value {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let (status, body) = http(&self.api, "GET", path, &token, "");
        match status {
            404 => Value::Null,
            _ => serde_json::from_str(&body).unwrap(),
        }
    }

    /// Opens the page, and logs in.
    fn open(&self, browser: &Browser) {
        browser.open(&format!("http://{}/", self.api));
        log_in(browser, TOKEN, KNOBS);
    }

    /// A host with a constant load, ended when dropped.
    fn load(&self, host: &str, iops: u32) -> Load {
        let app = format!("a:rw=randread,bs=4k,depth=1,rate={iops}");
        let target = self.serving.address();
        let args = ["--target", target, "--host-nqn", host, "--app", &app];
        Load(endless_bench(&args))
    }

    /// Runs a command as the page shows it.
    fn run(&self, command: &str) {
        run_shown(&self.api, command);
    }
}

/// Runs a command as the page shows it.
fn run_shown(api: &str, command: &str) {
    let line = format!("{command} --api {api}");
    let switchyard = std::path::Path::new(env!("CARGO_BIN_EXE_switchyard"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", switchyard.parent().unwrap().display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("PATH", path);
    let output = shell.env("SWITCHYARD_API_TOKEN", TOKEN).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
}

struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Logs in, and waits until there is an element that matches.
pub(crate) fn log_in(browser: &Browser, token: &str, awaited: &str) {
    browser.wait("document.getElementById('log-in').checkVisibility()");
    browser.set("#token", token);
    browser.click("#log-in-form button");
    browser.wait(&format!("document.querySelector('{awaited}')"));
}

/// Returns the texts of the cells of a column in the visible rows, by the heading's text.
fn column(browser: &Browser, table: &str, title: &str) -> Vec<String> {
    let script = "const table = document.querySelector(arguments[0]);
        const heads = [...table.querySelectorAll('thead th')];
        const at = heads.findIndex((head) => head.textContent === arguments[1]);
        const rows = [...table.querySelectorAll('tbody tr:not([hidden]):not(.spacer)')];
        return rows.map((row) => row.cells[at].textContent)";
    let texts = browser.run(script, json!([table, title]));
    serde_json::from_value(texts).unwrap()
}

/// Returns the faults that `accessible.js` finds.
fn faults(browser: &Browser) -> Vec<String> {
    let found = browser.run(include_str!("accessible.js"), json!([]));
    serde_json::from_value(found).unwrap()
}

#[test]
fn the_page_shows_what_the_api_says() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let shown = Shown::start(TENANTS);
    let _loads = [
        shown.load("nqn.2026-11.com.example:db", 500),
        shown.load(HOSTILE, 100),
    ];
    let hosts = || shown.get("/v1/controllers")["controllers"].clone();
    eventually("both hosts are connected", || {
        hosts().as_array().unwrap().len() == 2
    });
    shown.open(&browser);
    check_tables(&browser, &shown.get("/v1/stats"));
    check_knobs(&browser, &shown.get("/v1/switch")["knobs"]);

    // The load arrives at the page, and the page notices the end of the target.
    browser.wait("document.querySelector('#tenant-summary').textContent.includes('SLO met in')");
    browser.wait(
        "document.querySelector('#tenant-charts path.latency').getAttribute('d').includes('L')",
    );
    eventually("the rate of the load is shown", || {
        let rates = column(&browser, "#tenant-table", "IOPS");
        rates.iter().any(|it| it != "0" && it != "–")
    });
    assert_eq!(browser.console(), Vec::<String>::new());
    drop(shown);
    browser.wait("document.getElementById('state').textContent.includes('no data')");
    assert!(
        browser
            .text("#problem")
            .contains("the target does not respond")
    );
}

/// Returns these texts of objects, sorted.
fn texts(objects: &Value, key: &str) -> Vec<String> {
    let objects = objects.as_array().unwrap().iter();
    let mut texts: Vec<_> = objects
        .map(|it| it[key].as_str().unwrap().to_owned())
        .collect();
    texts.sort();
    texts
}

fn check_tables(browser: &Browser, stats: &Value) {
    let sorted = |table: &str, title: &str| {
        let mut texts = column(browser, table, title);
        texts.sort();
        texts
    };
    let tenants = sorted("#tenant-table", "Tenant");
    assert_eq!(tenants, ["backup", "database", "default"]);
    assert_eq!(tenants, texts(&stats["devices"][0]["tenants"], "name"));
    assert_eq!(
        sorted("#tenant-table", "SLO or weight"),
        ["p95 ≤ 500 µs at 10 k IOPS", "weight 100", "weight 20"]
    );
    let devices = |title: &str| column(browser, "#device-table", title);
    assert_eq!(devices("Device"), ["fast", "spare"]);
    assert_eq!(stats["devices"][0]["tokens_per_second"], 100_000);
    assert_eq!(devices("Tokens/s"), ["100 k", "–"]);
    assert_eq!(stats["devices"][0]["reserved_tokens_per_second"], 10_000);
    assert_eq!(devices("Reserved"), ["10 k", "–"]);
    assert_eq!(stats["namespaces"][0]["size_bytes"], 8 << 20);
    assert_eq!(column(browser, "#namespace-table", "Size"), ["8 MiB"]);
    assert_eq!(column(browser, "#namespace-table", "Subsystem"), [NQN]);
    // A hostile name is a text.
    let hosts = sorted("#connection-table", "Host");
    assert_eq!(hosts, texts(&stats["controllers"], "host_nqn"));
    assert_eq!(hosts[0], HOSTILE);
    assert!(browser.elements("#connection-table img").is_empty());
}

fn check_knobs(browser: &Browser, knobs: &Value) {
    let text = |key: &String| match &knobs[key] {
        Value::Bool(on) => ["off", "on"][usize::from(*on)].to_owned(),
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    let all = knobs.as_object().unwrap().len();
    let script = "document.querySelector('#knob-table .scroller').style.maxHeight = 'none'";
    browser.run(script, json!([]));
    eventually("all parameters are rows", || {
        column(browser, "#knob-table", "Parameter").len() == all
    });
    let keys = column(browser, "#knob-table", "Parameter");
    let values: Vec<_> = keys.iter().map(text).collect();
    assert_eq!(column(browser, "#knob-table", "Value"), values);
}

/// Makes a change in the dialog that `button` opens; returns the command that it shows.
fn change(browser: &Browser, button: &str, fields: &[(&str, &str)]) -> String {
    browser.click(button);
    browser.wait("document.getElementById('dialog').open");
    for (name, value) in fields {
        browser.set(&format!("#field-{name}"), value);
    }
    let command = browser.text("#command");
    browser.click("#submit");
    browser.wait(
        "!document.getElementById('dialog').open || document.getElementById('dialog-error').textContent",
    );
    assert_eq!(browser.text("#dialog-error"), "", "{command}");
    command
}

/// Runs commands that the page showed; what they change is each time as after the page's change.
fn repeat(shown: &Shown, state: impl Fn() -> Value, changes: &[(String, Value)]) {
    for (command, after) in changes {
        shown.run(command);
        assert_eq!(state(), *after, "{command}");
    }
}

#[test]
fn each_change_does_what_it_says_and_so_does_its_command() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let shown = Shown::start(TENANTS);
    browser.resize(1920, 1200);
    shown.open(&browser);
    change_tenants(&browser, &shown);
    change_namespaces(&browser, &shown);
    change_devices(&browser, &shown);
    change_switch(&browser, &shown);
    assert_eq!(browser.console(), Vec::<String>::new());

    // A refusal says why, and what to do; the dialog stays open.
    browser.click("#add-tenant");
    for (name, value) in [
        ("name", "x"),
        ("hosts", "nqn.2026-11.com.example:x"),
        ("service", "latency-critical"),
        ("iops", "99000000"),
    ] {
        browser.set(&format!("#field-{name}"), value);
    }
    browser.click("#submit");
    browser.wait("document.getElementById('dialog-error').textContent.includes('SLO')");
    assert!(browser.is_visible("#dialog-error"));
    let refused = browser.console();
    assert!(
        refused.iter().all(|line| line.contains("409")),
        "{refused:?}"
    );
}

fn change_tenants(browser: &Browser, shown: &Shown) {
    let tenant = || shown.get("/v1/tenants/web")["tenant"].clone();
    let slo = [
        ("name", "web"),
        (
            "hosts",
            "nqn.2026-11.com.example:w1, nqn.2026-11.com.example:it's",
        ),
        ("service", "latency-critical"),
        ("latency_us", "800"),
        ("percentile", "p99"),
        ("iops", "2000"),
        ("read_percent", "90"),
    ];
    let add = change(browser, "#add-tenant", &slo);
    let added = tenant();
    assert_eq!(added["latency_critical"]["latency_us"], 800);
    assert_eq!(added["hosts"].as_array().unwrap().len(), 2);
    let select = "const buttons = [...document.querySelectorAll('#tenant-table tbody th button')];
        const found = buttons.find((button) => button.textContent === 'web');
        found?.click();
        return Boolean(found)";
    eventually("the tenant is in the table", || {
        browser.run(select, json!([])) == true
    });
    let best_effort = [("service", "best-effort"), ("weight", "7")];
    let set = change(browser, "#set-tenant", &best_effort);
    let changed = tenant();
    assert_eq!(changed["best_effort"]["weight"], 7);
    let remove = change(browser, "#remove-tenant", &[]);
    assert_eq!(tenant(), Value::Null);
    let changes = [(add, added), (set, changed), (remove, Value::Null)];
    repeat(shown, tenant, &changes);
}

fn change_namespaces(browser: &Browser, shown: &Shown) {
    let path = format!("/v1/subsystems/{NQN}/namespaces");
    let namespaces = || shown.get(&path)["namespaces"].clone();
    let button = |verb: &str| format!("button[aria-label='{verb} namespace 9 of {NQN}']");
    let first = namespaces();
    let fields = [("device", "spare"), ("nsid", "9"), ("size", "1M")];
    let share = change(browser, "#share", &fields);
    let shared = namespaces();
    assert_eq!(shared[1]["size"], "1M");
    browser.wait("document.querySelector('button[aria-label^=\"Resize namespace 9\"]')");
    let resize = change(browser, &button("Resize"), &[("size", "2M")]);
    let resized = namespaces();
    assert_eq!(resized[1]["size"], "2M");
    let remove = change(browser, &button("Remove"), &[]);
    assert_eq!(namespaces(), first);
    let changes = [(share, shared), (resize, resized), (remove, first)];
    repeat(shown, namespaces, &changes);
}

fn change_devices(browser: &Browser, shown: &Shown) {
    let device = || shown.get("/v1/devices/extra");
    let add = change(browser, "#add-device", &[("name", "extra"), ("size", "1M")]);
    let added = device();
    assert_eq!(added["device"]["type"], "ram");
    browser.wait("document.querySelector('button[aria-label=\"Remove device extra\"]')");
    let remove = change(browser, "button[aria-label='Remove device extra']", &[]);
    assert_eq!(device()["device"], Value::Null);
    let gone = device();
    repeat(shown, device, &[(add, added), (remove, gone)]);
}

fn change_switch(browser: &Browser, shown: &Shown) {
    let setting = || shown.get("/v1/switch")["setting"].clone();
    let before = setting();
    let off = [("value", "off")];
    let turn = change(browser, "button[aria-label='Change caravan']", &off);
    let turned = setting();
    let expected = json!({ "baseline": "switchyard", "caravan": false });
    assert_eq!(turned, expected);
    let preset = change(browser, "#set-preset", &[("preset", "switchyard")]);
    assert_eq!(setting(), before);
    repeat(shown, setting, &[(turn, turned), (preset, before)]);
}

#[test]
fn a_browser_needs_a_token_and_a_role() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let folder = Folder::new();
    let tokens = folder.write("tokens", READ_LINE);
    std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let shown = Shown::start_with(&format!("api_tokens = \"{tokens}\""), "");
    let url = format!("http://{}/", shown.api);
    browser.open(&url);
    browser.wait("document.getElementById('log-in').checkVisibility()");
    assert_eq!(browser.console(), Vec::<String>::new());
    browser.set("#token", "a-wrong-token-here");
    browser.click("#log-in-form button");
    browser.wait("document.getElementById('log-in-error').textContent.includes('token')");
    assert!(!browser.is_visible("#content"));
    log_in(&browser, READ, KNOBS);
    browser.wait("document.getElementById('read-only').checkVisibility()");
    for button in ["#add-tenant", "#share", "#knob-table td button"] {
        assert!(!browser.is_visible(button), "{button}");
    }
    // The token is kept when the page is read again, and forgotten by a log-out.
    browser.open(&url);
    browser.wait("document.getElementById('content').checkVisibility()");
    browser.click("#log-out");
    browser.open(&url);
    browser.wait("document.getElementById('log-in').checkVisibility()");
    drop(shown.folder);
}

#[test]
fn everybody_can_use_the_page() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let shown = Shown::start(TENANTS);
    let _load = shown.load("nqn.2026-11.com.example:db", 100);
    browser.open(&format!("http://{}/", shown.api));
    browser.wait("document.getElementById('log-in').checkVisibility()");
    assert_eq!(faults(&browser), Vec::<String>::new(), "log-in");
    log_in(&browser, TOKEN, KNOBS);
    browser.wait("document.querySelector('#tenant-charts path.latency').getAttribute('d')");
    for scheme in ["light", "dark"] {
        browser.set_scheme(scheme);
        for (width, height) in [(360, 780), (1440, 900), (3840, 2160)] {
            browser.resize(width, height);
            assert_eq!(
                faults(&browser),
                Vec::<String>::new(),
                "{scheme} at {width} px"
            );
        }
    }
    browser.resize(1440, 900);
    check_names(&browser);
    check_focus(&browser);
    // A dialog takes the focus, and gives it back.
    browser.click("#add-tenant");
    browser.wait("document.activeElement.id === 'field-name'");
    assert_eq!(faults(&browser), Vec::<String>::new(), "dialog");
    browser.press(ESCAPE);
    browser.wait("document.activeElement.id === 'add-tenant'");
}

/// Each control has a name, as a screen reader reads it.
fn check_names(browser: &Browser) {
    for element in browser.elements("button, input:not([hidden]), select, a, [tabindex], svg[role]")
    {
        let label = browser.ask(
            "GET",
            &format!("/element/{element}/computedlabel"),
            &Value::Null,
        );
        let html = browser.ask(
            "GET",
            &format!("/element/{element}/property/outerHTML"),
            &Value::Null,
        );
        let is_hidden = html.as_str().unwrap().contains("tabindex=\"-1\"");
        let visible = browser.run(
            "return arguments[0].checkVisibility()",
            json!([{ browser::ELEMENT: element }]),
        );
        assert!(
            is_hidden || visible == false || label != "",
            "{html} has no name"
        );
    }
}

/// The Tab key visits the controls in the order of the page, and shows where it is.
fn check_focus(browser: &Browser) {
    browser.run("document.activeElement.blur(); scrollTo(0, 0)", json!([]));
    let script = "const now = document.activeElement;
        const before = window.visited;
        window.visited = now;
        // Chromium goes on at the first one, at times without a stop at the document.
        window.first = window.first || now;
        if (now === document.body || before && now === window.first) return 'end';
        if (getComputedStyle(now).outlineStyle === 'none') return `no outline: ${now.outerHTML}`;
        if (before && !(before.compareDocumentPosition(now) & Node.DOCUMENT_POSITION_FOLLOWING))
            return `out of order: ${now.outerHTML}`;
        return ''";
    let mut visited = 0;
    loop {
        browser.press(TAB);
        let found = browser.run(script, json!([]));
        if found == "end" {
            break;
        }
        assert_eq!(found, "", "after {visited} controls");
        visited += 1;
        assert!(visited < 300, "the focus never leaves the page");
    }
    assert!(visited > 40, "{visited} controls");
}

#[test]
fn a_thousand_tenants_are_a_few_rows_of_the_document() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let more: String = (0..1000)
        .map(|i| {
            format!(
                "[[tenants]]\nname = \"tenant-{i:03}\"\nhosts = [\"nqn.2026-11.com.example:{i}\"]\n"
            )
        })
        .collect();
    let shown = Shown::start(&more);
    shown.open(&browser);
    let measure = "window.long = [];
        const note = (list) => long.push(...list.getEntries().map((it) => Math.round(it.duration)));
        new PerformanceObserver(note).observe({ type: 'longtask' });
        window.before = document.getElementById('target').textContent;";
    browser.run(measure, json!([]));
    for _ in 0..3 {
        browser.wait("document.getElementById('target').textContent !== window.before");
        browser.run(
            "window.before = document.getElementById('target').textContent",
            json!([]),
        );
    }
    let long = browser.run("return window.long", json!([]));
    println!("tasks of more than 50 ms in three periods, in ms: {long}");
    let rows = browser.elements("#tenant-table tbody tr").len();
    assert!(rows < 60, "{rows}");
    let table = "document.querySelector('#tenant-table table')";
    browser.wait(&format!("{table}.getAttribute('aria-rowcount') === '1002'"));
    browser.run(
        "document.querySelector('#tenant-table .scroller').scrollTop = 1e9",
        json!([]),
    );
    eventually("the last row is shown", || {
        column(&browser, "#tenant-table", "Tenant")
            .last()
            .is_some_and(|it| it == "tenant-999")
    });
    browser.set("#tenant-filter", "NT-55");
    let found = column(&browser, "#tenant-table", "Tenant");
    let expected: Vec<_> = (0..10).map(|i| format!("tenant-55{i}")).collect();
    assert_eq!(found, expected);
}

/// The picture of the guide; `UPDATE=1` replaces it.
#[test]
fn the_guide_shows_the_page() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let shown = Shown::start(TENANTS);
    let _loads = [
        shown.load("nqn.2026-11.com.example:db", 3000),
        shown.load("nqn.2026-11.com.example:backup", 1500),
    ];
    browser.resize(1280, 860);
    shown.open(&browser);
    let update = std::env::var_os("UPDATE").is_some();
    let samples = if update { 28 } else { 2 };
    browser.wait(&format!(
        "document.querySelectorAll('#tenant-charts path.latency')[1].getAttribute('d').split('L').length > {samples}"
    ));
    let picture = browser.picture();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/page.png");
    if update {
        std::fs::write(file, &picture).unwrap();
    }
    for picture in [picture, std::fs::read(file).unwrap()] {
        assert!(picture.starts_with(b"\x89PNG"));
        assert!(picture.len() < 150 << 10, "{} bytes", picture.len());
    }
}

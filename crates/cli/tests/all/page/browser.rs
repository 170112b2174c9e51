//! A real browser: headless Chromium, driven by WebDriver. `[W3C WebDriver 2]`

use crate::common::{Folder, eventually};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The key by which WebDriver names an element.
pub(super) const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The Tab key.
pub(super) const TAB: &str = "\u{e004}";

/// The Escape key.
pub(super) const ESCAPE: &str = "\u{e00c}";

/// A browser with one window, ended when dropped.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    session: String,
    _folder: Folder,
}

impl Browser {
    /// Starts it; `None` if this machine has none.
    pub(crate) fn start() -> Option<Self> {
        let folder = Folder::new();
        let home = folder.path("");
        let mut command = Command::new("chromedriver");
        command
            .arg("--port=0")
            .env("HOME", &home)
            .env("TMPDIR", &home);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut driver) = command.spawn() else {
            block::skipped("chromedriver is not installed; run scripts/setup");
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let port = line.split_once("started successfully on port ")?.1;
            Some(port.trim_end_matches('.').to_owned())
        });
        let mut browser = Self {
            driver,
            address: format!("127.0.0.1:{}", port.expect("it names its port")),
            session: "/session".to_owned(),
            _folder: folder,
        };
        let options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ];
        let capabilities = json!({
            "acceptInsecureCerts": true,
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": options },
        });
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let session = browser.ask("POST", "", &body);
        let id = session["sessionId"].as_str().expect("a session");
        browser.session = format!("/session/{id}");
        browser.set_scheme("light");
        Some(browser)
    }

    /// Sends a command; returns the value of its response.
    pub(super) fn ask(&self, method: &str, command: &str, body: &Value) -> Value {
        let path = format!("{}{command}", self.session);
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let (status, answer) = http(&self.address, method, &path, "", &body);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(status, 200, "{method} {command}: {answer:#}");
        answer["value"].clone()
    }

    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// Runs the body of a function in the page; returns its value.
    pub(crate) fn run(&self, script: &str, arguments: Value) -> Value {
        let body = json!({ "script": script, "args": arguments });
        self.ask("POST", "/execute/sync", &body)
    }

    /// Sends a command of the DevTools protocol.
    fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.ask("POST", "/goog/cdp/execute", &body)
    }

    pub(super) fn resize(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets the preferred colour scheme, "light" or "dark", and no smooth scrolling.
    pub(super) fn set_scheme(&self, scheme: &str) {
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Returns a picture of the window, as PNG.
    pub(super) fn picture(&self) -> Vec<u8> {
        let picture = self.ask("GET", "/screenshot", &Value::Null);
        BASE64_STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }

    /// Returns the identifiers of the elements that match.
    pub(super) fn elements(&self, selector: &str) -> Vec<String> {
        let body = json!({ "using": "css selector", "value": selector });
        let found = self.ask("POST", "/elements", &body);
        let found = found.as_array().unwrap().iter();
        found
            .map(|it| it[ELEMENT].as_str().unwrap().to_owned())
            .collect()
    }

    /// Clicks the first element that matches, as a user does: it must be visible.
    pub(crate) fn click(&self, selector: &str) {
        // Else the header may cover it.
        let center = "document.querySelector(arguments[0])?.scrollIntoView({ block: 'center' })";
        self.run(center, json!([selector]));
        let elements = self.elements(selector);
        let first = elements.first();
        let first = first.unwrap_or_else(|| panic!("there is no {selector}"));
        self.ask("POST", &format!("/element/{first}/click"), &json!({}));
    }

    /// Sets the value of a field, with the events of a user's input.
    pub(crate) fn set(&self, selector: &str, value: &str) {
        let script = "const field = document.querySelector(arguments[0]);
            field.value = arguments[1];
            field.dispatchEvent(new Event('input', { bubbles: true }));";
        self.run(script, json!([selector, value]));
    }

    pub(super) fn press(&self, key: &str) {
        let strokes = ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.ask("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// Returns the text of the first element that matches, also if it is hidden.
    pub(super) fn text(&self, selector: &str) -> String {
        let script = "return document.querySelector(arguments[0])?.textContent ?? ''";
        let text = self.run(script, json!([selector]));
        text.as_str().unwrap().to_owned()
    }

    pub(super) fn is_visible(&self, selector: &str) -> bool {
        let script = "return document.querySelector(arguments[0])?.checkVisibility() ?? false";
        self.run(script, json!([selector])) == true
    }

    /// Waits until the expression is true in the page.
    #[track_caller]
    pub(crate) fn wait(&self, expression: &str) {
        let script = format!("return Boolean({expression})");
        eventually(expression, || self.run(&script, json!([])) == true);
    }

    /// Returns the messages of the console since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let lines = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let lines = lines.as_array().unwrap().iter();
        lines
            .map(|line| format!("{}: {}", line["level"], line["message"]))
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, which removes its files.
        let path = self.session.clone();
        let _ = std::panic::catch_unwind(|| http(&self.address, "DELETE", &path, "", ""));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Sends a request with further header lines; returns the status and the body.
pub(super) fn http(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    // chromedriver leaves the connection open in spite of the header.
    let patience = std::time::Duration::from_secs(60);
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut stream = BufReader::new(stream);
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().unwrap();
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

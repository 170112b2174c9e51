//! Whoever sends the HTTP interface thousands of requests that it refuses causes no line of log.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

#[path = "all/common/mod.rs"]
mod common;

use std::sync::Mutex;

use common::{control, exchange, request, serve};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps the place of every line that an operator would see.
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        LINES.lock().unwrap().push(format!("{event:?}"));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn refused_requests_are_not_logged() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let (control, _plane) = control("listen = [\"127.0.0.1:4420\"]\n");
    let server = serve(&control, "127.0.0.1:0");
    let json = "Content-Type: application/json\r\n";
    let before = LINES.lock().unwrap().len();
    for _ in 0..500 {
        for (method, path, headers, body, status) in [
            ("GET", "/v1/nothing", "", "", 404),
            ("PUT", "/v1/config", "", "", 405),
            ("POST", "/v1/devices", json, "{", 422),
            (
                "GET",
                "/v1/config",
                "Origin: http://example.com\r\n",
                "",
                403,
            ),
        ] {
            let response = request(&server, method, path, headers, body);
            assert_eq!(response.status, status, "{method} {path}: {response:?}");
        }
        let address = server.address().unwrap();
        let stranger =
            format!("GET /v1/stats HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        assert_eq!(exchange(address, stranger.as_bytes()).status, 401);
    }
    let lines = LINES.lock().unwrap();
    assert_eq!(lines.len(), before, "{lines:#?}");
    drop(lines);
    server.stop();
}

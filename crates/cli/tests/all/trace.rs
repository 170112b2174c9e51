//! `switchyard trace` against a running target, and its export to a collector.

use crate::common;
use crate::common::{
    Folder, NQN, Serving, code, eventually, interrupt, program, run, stderr, stdout,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

const HOST: &str = "nqn.2026-11.com.example:db";

/// A target of which reads take at least 3 ms, with a tenant; returned with its HTTP interface.
fn serving(folder: &Folder) -> (Serving, String) {
    let kind = "type = \"ram\"\nsize = \"8M\"\ndelay = { read_us = 3000 }";
    let tenants = format!(
        "[[tenants]]\nname = \"db\"\nhosts = [\"{HOST}\"]\nbest_effort = {{ weight = 20 }}\n"
    );
    common::serve_by_tokens(folder, ("slow", kind), 1_000_000, &tenants)
}

fn start(socket: &str, args: &[&str]) -> Child {
    let mut command = program();
    command.args(["trace", "--api", socket]).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// Runs a trace, while hosts read 16 KiB again and again, until it ends.
fn traced(folder: &Folder, serving: &Serving, socket: &str, args: &[&str]) -> Output {
    let out = folder.path("out");
    let read = [
        "read",
        serving.address(),
        "--length",
        "16k",
        "--output",
        &out,
    ];
    let trace = start(socket, args);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                code(&run(&read), 0);
                code(&run(&[&read[..], &["--host-nqn", HOST]].concat()), 0);
            }
        });
        let output = trace.wait_with_output();
        done.store(true, Ordering::Relaxed);
        output.expect("the program ends")
    })
}

/// Options that select two reads of the tenant.
const FILTER: [&str; 7] = [
    "--tenant=db",
    "--opcode=read",
    "--nqn",
    NQN,
    "--nsid=1",
    "--slower-than=3ms",
    "--count=2",
];

#[test]
fn slow_commands_of_a_tenant_are_printed_with_a_summary() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let filter = [&FILTER[..], &["--host", HOST]].concat();
    let output = traced(&folder, &serving, &socket, &filter);
    code(&output, 0);
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("TIME (UTC)"), "{text}");
    let titles = "TOTAL_US CORE TRANSFER BUFFER PAUSE TOKENS DEVICE SEND LONGEST THREAD HOST";
    let words: Vec<_> = lines[0].split_whitespace().collect();
    assert!(words.join(" ").ends_with(titles), "{text}");
    for line in &lines[1..3] {
        let words: Vec<_> = line.split_whitespace().collect();
        let found = (words[1], words[2], words[3], words[16]);
        assert_eq!(found, ("db", "read", "1", HOST), "{text}");
        let total = words[6].parse::<f64>();
        assert!(total.is_ok_and(|us| us >= 3_000.0), "{text}");
    }
    let rows = "STAGE core transfer buffer pause tokens device send total";
    let found = lines[4..].iter().zip(rows.split(' '));
    for (line, row) in found {
        assert!(line.starts_with(row), "{text}");
    }
    let last = lines.last().copied();
    assert_eq!(last, Some("2 commands, 0 records lost"));
}

#[test]
fn json_has_one_object_in_each_line() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let json = [&FILTER[..], &["--json"]].concat();
    let output = traced(&folder, &serving, &socket, &json);
    code(&output, 0);
    let text = stdout(&output);
    let lines = text.lines().map(serde_json::from_str);
    let lines: Vec<Value> = lines.map(|line| line.expect("JSON")).collect();
    for record in &lines[..2] {
        let stages = record["stages"].as_array().expect("a list");
        let sum: u64 = stages.iter().filter_map(|it| it["ns"].as_u64()).sum();
        assert_eq!(Some(sum), record["total_ns"].as_u64(), "{record}");
        let mut names = stages.iter().map(|it| &it["stage"]);
        assert!(names.any(|name| name == "device"), "{record}");
        let found = (&record["bytes"], &record["host"]);
        assert_eq!(found, (&16_384.into(), &HOST.into()));
    }
    let summary = &lines[2]["summary"];
    let found = (&summary["commands"], &summary["lost"]);
    assert_eq!(found, (&2.into(), &0.into()));
    assert_eq!(summary["stages"][7]["share_percent"], 100.0, "{summary}");
}

#[test]
fn a_trace_that_ends_without_a_command_says_so_and_leaves_nothing() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let output = start(&socket, &["--seconds", "0.1"])
        .wait_with_output()
        .expect("it ends");
    code(&output, 1);
    assert!(
        stdout(&output).ends_with("\n0 commands, 0 records lost\n"),
        "{output:?}"
    );
    // Each of them has its place until it is killed, for longer than one after another have it.
    for _ in 0..3 {
        let mut traces: Vec<_> = (0..4).map(|_| begun(&socket, &[])).collect();
        let output = run(&["trace", "--api", &socket, "--seconds", "0.1"]);
        code(&output, 2);
        assert!(stderr(&output).contains("4 traces are open, the most at a time; end another"));
        for trace in &mut traces {
            trace.kill().expect("it runs");
            trace.wait().expect("it ends");
        }
        eventually("their places are free", || {
            let output = run(&["trace", "--api", &socket, "--seconds", "0.1"]);
            output.status.code() == Some(1)
        });
    }
    let output = interrupt(begun(&socket, &[]));
    code(&output, 1);
    assert!(stdout(&output).contains("0 commands"), "{output:?}");
    // A target that ends does not wait for a trace, and the trace ends with it.
    let trace = begun(&socket, &[]);
    serving.signal("-TERM");
    let (status, log) = serving.end();
    assert_eq!(status, Some(0), "{log}");
    let output = trace.wait_with_output().expect("it ends");
    code(&output, 2);
    assert!(
        stderr(&output).contains("the target has ended"),
        "{output:?}"
    );
}

/// Starts a trace, and waits until the target has begun it.
fn begun(socket: &str, args: &[&str]) -> Child {
    let mut trace = start(socket, args);
    let mut title = String::new();
    let stdout = trace.stdout.take().expect("captured");
    let mut stdout = BufReader::with_capacity(1, stdout);
    stdout.read_line(&mut title).expect("a title");
    assert!(title.starts_with("TIME (UTC)"), "{title}");
    trace.stdout = Some(stdout.into_inner());
    trace
}

#[test]
fn wrong_options_are_named() {
    let folder = Folder::new();
    let (_serving, socket) = serving(&folder);
    for (args, expected) in [
        (
            &["--tenant", "none"][..],
            "there is no tenant \"none\"; list the tenants",
        ),
        (
            &["--nqn", "nqn.2026-11.io.example:none"],
            "nqn.2026-11.io.example:none",
        ),
        (&["--nsid", "1"], "--nqn <NQN>"),
        (&["--nqn", NQN, "--nsid", "x"], "invalid value 'x'"),
        (&["--opcode", "format"], "write-zeroes"),
        (
            &["--slower-than", "500"],
            "write a number with its unit, like 500us or 2ms",
        ),
        (&["--sample", "10"], "write 1/N, like 1/1000"),
        (&["--count", "0"], "write a number from 1"),
        (&["--seconds", "0"], "'0' for '--seconds <SECONDS>'"),
        (
            &["--otlp", "127.0.0.1:4318"],
            "write http://HOST:PORT or https://HOST:PORT",
        ),
    ] {
        let output = run(&[&["trace", "--api", &socket], args].concat());
        code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let output = run(&["trace", "--api", "unix:/nonexistent/api.sock"]);
    code(&output, 2);
    assert!(stderr(&output).contains("cannot use the API at unix:/nonexistent/api.sock"));
}

/// The messages of OTLP, as JSON of protocol buffers: what is not in them is an error.
#[allow(unreachable_pub)]
mod otlp {
    use super::{BTreeMap, Deserialize};

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub struct ExportTraceServiceRequest {
        pub resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub struct ResourceSpans {
        pub resource: Resource,
        pub scope_spans: Vec<ScopeSpans>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Resource {
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ScopeSpans {
        pub scope: InstrumentationScope,
        pub spans: Vec<Span>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "decoded, not compared")]
    pub struct InstrumentationScope {
        pub name: String,
        pub version: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub struct Span {
        pub trace_id: String,
        pub span_id: String,
        #[serde(default)]
        pub parent_span_id: String,
        pub name: String,
        pub kind: u8,
        pub start_time_unix_nano: String,
        pub end_time_unix_nano: String,
        #[serde(default)]
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct KeyValue {
        pub key: String,
        pub value: AnyValue,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub enum AnyValue {
        StringValue(String),
        /// A 64-bit number is a string.
        IntValue(String),
    }

    /// Returns attributes by their keys, of which each is there once.
    pub fn by_key(attributes: &[KeyValue]) -> BTreeMap<&str, &str> {
        let each = attributes.iter().map(|it| match &it.value {
            AnyValue::StringValue(text) => (&*it.key, &**text),
            AnyValue::IntValue(number) => {
                assert!(number.parse::<i64>().is_ok(), "{number}");
                (&*it.key, &**number)
            }
        });
        let by_key: BTreeMap<_, _> = each.collect();
        assert_eq!(by_key.len(), attributes.len());
        by_key
    }
}

/// Reads a request to export traces. Returns the connection and its body.
fn collect(stream: TcpStream) -> (TcpStream, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    let head = head.to_ascii_lowercase();
    let begins = "post /otel/v1/traces http/1.1\r\n";
    assert!(head.starts_with(begins), "{head}");
    let json = "\r\ncontent-type: application/json\r\n";
    assert!(head.contains(json), "{head}");
    let length = head.split("\r\ncontent-length: ").nth(1).expect(&head);
    let length = length.split("\r\n").next().and_then(|it| it.parse().ok());
    let mut body = vec![0; length.expect("a number")];
    reader.read_exact(&mut body).expect("a body");
    (reader.into_inner(), body)
}

/// Answers it.
fn answer(mut stream: TcpStream, status: &str, body: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).expect("it is read");
}

/// Starts a collector that refuses the first request. Returns its URL and the bodies of all others.
fn collector() -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, bodies) = mpsc::channel();
    // Ends with the test.
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (status, said) = match number {
                0 => ("503 Service Unavailable", "busy"),
                1 => (
                    "200 OK",
                    "{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"why\"}}",
                ),
                _ => ("200 OK", "{\"partialSuccess\":{}}"),
            };
            let (stream, body) = collect(stream.expect("a connection"));
            // Before the answer, with which the trace may end.
            if number > 0 && sender.send(body).is_err() {
                return;
            }
            answer(stream, status, said);
        }
    });
    (format!("http://{address}/otel"), bodies)
}

/// Decodes a request of OTLP.
fn decoded(body: &[u8]) -> Vec<otlp::Span> {
    let request: otlp::ExportTraceServiceRequest =
        serde_json::from_slice(body).expect("a request of OTLP");
    let mut spans = Vec::new();
    for resource in request.resource_spans {
        let of = otlp::by_key(&resource.resource.attributes);
        assert_eq!(of["service.name"], "switchyard");
        let scopes = resource.scope_spans.into_iter();
        spans.extend(scopes.flat_map(|scope| {
            assert!(!scope.scope.name.is_empty());
            scope.spans
        }));
    }
    spans
}

/// Returns true for an identifier: hexadecimal digits, not all of them 0.
fn is_id(id: &str, digits: usize) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    id.len() == digits && id.bytes().all(is_digit) && id.bytes().any(|b| b != b'0')
}

/// Checks that these spans are those of a printed command.
fn check(parent: &otlp::Span, children: &[&otlp::Span], record: &Value) {
    let ns = |text: &str| text.parse::<u64>().expect("nanoseconds");
    assert_eq!((&*parent.name, parent.kind), ("read", 2));
    let start = ns(&parent.start_time_unix_nano);
    let end = ns(&parent.end_time_unix_nano);
    assert_eq!(Some(start), record["unix_ns"].as_u64());
    assert_eq!(Some(end - start), record["total_ns"].as_u64());
    let of = otlp::by_key(&parent.attributes);
    assert_eq!((of["nvme.subnqn"], of["nvme.nsid"]), (NQN, "1"));
    assert_eq!(Some(of["nvme.hostnqn"]), record["host"].as_str());
    assert_eq!(Some(of["switchyard.tenant"]), record["tenant"].as_str());
    let stages = record["stages"].as_array().map(Vec::len);
    assert_eq!(Some(children.len()), stages);
    let mut at = start;
    for child in children {
        assert_eq!((&child.trace_id, child.kind), (&parent.trace_id, 1));
        // A read of one block range is in each of its stages once: no gap, no overlap.
        assert_eq!(ns(&child.start_time_unix_nano), at, "{children:?}");
        at = ns(&child.end_time_unix_nano);
    }
    assert_eq!(at, end, "{children:?}");
}

#[test]
fn commands_are_exported_as_spans_to_a_collector_that_refuses_at_first() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let (url, bodies) = collector();
    let options = ["--slower-than=3ms", "--seconds=3", "--otlp", &url, "--json"];
    let output = traced(&folder, &serving, &socket, &options);
    code(&output, 0);
    let said = stderr(&output);
    let busy = "HTTP status 503 Service Unavailable: busy; trying again";
    assert!(said.contains(busy), "{said}");
    let rejected = "the collector rejected 3 spans: why";
    assert!(said.contains(rejected), "{said}");
    let text = stdout(&output);
    let lines = text.lines().map(serde_json::from_str);
    let lines = lines.map(|line| line.expect("JSON"));
    let printed: Vec<Value> = lines
        .filter(|line: &Value| line["summary"].is_null())
        .collect();
    let spans: Vec<_> = bodies.try_iter().flat_map(|body| decoded(&body)).collect();
    for span in &spans {
        assert!(is_id(&span.trace_id, 32) && is_id(&span.span_id, 16));
    }
    let is_parent = |span: &&otlp::Span| span.parent_span_id.is_empty();
    let (parents, children): (Vec<_>, Vec<_>) = spans.iter().partition(is_parent);
    // The same commands, in the same order, each once.
    assert_eq!(parents.len(), printed.len());
    for (parent, record) in parents.into_iter().zip(&printed) {
        let own = children.iter().copied();
        let own = own.filter(|child| child.parent_span_id == parent.span_id);
        check(parent, &own.collect::<Vec<_>>(), record);
    }
}

#[test]
fn commands_that_no_collector_accepts_are_an_error() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let url = format!("http://{address}");
    let options = ["--slower-than", "3ms", "--count", "1", "--otlp", &url];
    let output = traced(&folder, &serving, &socket, &options);
    code(&output, 2);
    let said = stderr(&output);
    assert!(
        said.contains("1 commands were not exported: cannot export to"),
        "{said}"
    );
    // What was traced is printed nevertheless.
    assert!(
        stdout(&output).ends_with("\n1 commands, 0 records lost\n"),
        "{output:?}"
    );
}

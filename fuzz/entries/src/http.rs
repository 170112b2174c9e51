//! The HTTP interface over a pair of sockets, above a dataplane that only remembers.

use crate::text::comes_back;
use axum::serve::Listener;
use config::{Action, ApplyError, ApplyErrorKind, Configuration};
use config::{Format, parse};
use control::calibration::{CalibrationRequest, CalibrationSnapshot};
use control::snapshot::TargetEvent;
use control::{Control, DataPlane, Snapshot};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Blocking;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// Configuration of the target before the request.
const BEGUN: &str = r#"
[devices.fast]
type = "ram"
size = "16M"

[devices.spare]
type = "null"
size = "1G"

[[subsystems]]
nqn = "nqn.2026-11.io.switchyard:a"
allowed_hosts = ["nqn.2026-11.io.example:host"]
namespaces = [{ nsid = 1, device = "fast" }]
"#;

/// Paths of requests.
const PATHS: [&str; 16] = [
    "/v1/config",
    "/v1/config?dry_run=true",
    "/v1/config/changes",
    "/v1/devices",
    "/v1/devices/spare",
    "/v1/devices/fast/calibration",
    "/v1/subsystems",
    "/v1/subsystems/nqn.2026-11.io.switchyard:a",
    "/v1/subsystems/nqn.2026-11.io.switchyard:a/namespaces",
    "/v1/subsystems/nqn.2026-11.io.switchyard:a/namespaces/1",
    "/v1/subsystems/nqn.2026-11.io.switchyard:a/hosts",
    "/v1/subsystems/nqn.2026-11.io.switchyard:a/hosts/nqn.2026-11.io.example:host",
    "/v1/referrals",
    "/v1/switch",
    "/v1/tenants",
    "/v1/tenants/db",
];

const METHODS: [&str; 5] = ["GET", "POST", "PATCH", "PUT", "DELETE"];

const TYPES: [&str; 3] = ["application/json", "application/toml", "text/plain"];

/// Larger requests are not tried.
const INPUT_BYTES_MAX: usize = 32 * 1024;

/// Time for which an answer is awaited before the sender goes.
const MOMENT: Duration = Duration::from_millis(10);

/// Longest that an end is waited for after that; far more than any takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends what `input` says: with an even first byte a request with a path and a body that it
/// chooses, with an odd one the rest as it is.
///
/// # Panics
/// If the interface fails, answers an error without saying why, or leaves a model behind that is
/// not valid or not the dataplane's.
pub fn http(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    if input.len() > INPUT_BYTES_MAX {
        return;
    }
    let request = if first & 1 == 0 {
        let Some(request) = compose(rest) else {
            return;
        };
        request
    } else {
        rest.to_vec()
    };
    let begun = parse(BEGUN, Format::Toml).expect("a valid configuration");
    let plane = Arc::new(Plane(Mutex::new(begun.emptied())));
    let control = Control::start(&begun, Arc::clone(&plane) as Arc<dyn DataPlane>);
    let control = Arc::new(control.expect("the dataplane only remembers"));
    // A long poll ends early.
    control.set_draining();
    let answer = RUNTIME.with(|runtime| runtime.block_on(exchange(&control, &request)));
    judge(&answer.expect("sockets"));
    let model = control.configuration();
    assert_eq!(*plane.lock(), *model, "model and dataplane");
    comes_back(&model);
}

thread_local! {
    static RUNTIME: Runtime = {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().max_blocking_threads(1);
        // Time passes when nothing else happens, so that an input does the same each time.
        #[cfg(fuzzing)]
        builder.start_paused(true);
        builder.build().expect("a runtime of this thread")
    };
}

/// A request of a method, a path, perhaps with another end, a type, and a body.
fn compose(input: &[u8]) -> Option<Vec<u8>> {
    let (&[method, path, kind, more], rest) = input.split_first_chunk()?;
    let tail = usize::from(more % 32).min(rest.len());
    let (tail, body) = rest.split_at(tail);
    let method = METHODS[usize::from(method) % METHODS.len()];
    let path = PATHS[usize::from(path) % PATHS.len()];
    let kind = TYPES[usize::from(kind) % TYPES.len()];
    let mut request = format!("{method} {path}").into_bytes();
    request.extend_from_slice(tail);
    let head = format!(
        " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    request.extend_from_slice(head.as_bytes());
    request.extend_from_slice(body);
    Some(request)
}

/// A listener with one connection.
struct Once(Option<UnixStream>);

impl Listener for Once {
    type Io = UnixStream;
    type Addr = ();

    async fn accept(&mut self) -> (UnixStream, ()) {
        match self.0.take() {
            Some(stream) => (stream, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

async fn exchange(control: &Arc<Control>, request: &[u8]) -> io::Result<Vec<u8>> {
    let (mut near, far) = Blocking::pair()?;
    // A request is far smaller than what a socket takes.
    near.write_all(request)?;
    let writing = near.try_clone()?;
    for end in [&near, &far] {
        end.set_nonblocking(true)?;
    }
    let (near, far) = (UnixStream::from_std(near)?, UnixStream::from_std(far)?);
    let router = control::api::router(Arc::clone(control), None);
    let server = tokio::spawn(async move { axum::serve(Once(Some(far)), router).await });
    let mut answer = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    // A request that is not complete is answered when its sender goes, and one that is may not
    // lose its sender before.
    let mut patience = MOMENT;
    loop {
        let Ok(ready) = tokio::time::timeout(patience, near.readable()).await else {
            assert_eq!(patience, MOMENT, "the interface closes the connection");
            writing.shutdown(Shutdown::Write)?;
            patience = PATIENCE;
            continue;
        };
        ready?;
        match near.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    server.abort();
    Ok(answer)
}

/// Body of `/healthz` while the process drains: with status 503, but a state and not an error.
const DRAINING: &str = r#"{"status":"draining"}"#;

/// An error says what is wrong, and what to do, if it is the interface's and not the HTTP
/// library's, which has no body. Only the first answer of a connection is judged.
fn judge(answer: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let Some((head, rest)) = text.split_once("\r\n\r\n") else {
        return;
    };
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse::<u16>().ok());
    let status = status.expect("a status");
    assert!(status != 500, "{text}");
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let body = length.map_or(rest, |(_, length)| {
        let length: usize = length.parse().expect("a length");
        // The answer to HEAD has a length and no body.
        rest.get(..length).unwrap_or_default()
    });
    if status >= 400 && !body.is_empty() && (status, body) != (503, DRAINING) {
        for part in ["\"error\":", "\"what_to_do\":"] {
            assert!(body.contains(part), "{text}");
        }
    }
}

/// Applies actions to a model of its own.
struct Plane(Mutex<Configuration>);

impl Plane {
    fn lock(&self) -> MutexGuard<'_, Configuration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_calibration() -> ApplyError {
    ApplyError::new(ApplyErrorKind::NotFound, "there is none", "begin none")
}

impl DataPlane for Plane {
    fn apply(&self, action: &Action, _folders: Option<&[PathBuf]>) -> Result<(), ApplyError> {
        action.apply_to_model(&mut self.lock())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }

    fn events(&self, _after: u64) -> Vec<TargetEvent> {
        Vec::new()
    }

    fn calibrate(&self, _device: &str, _request: CalibrationRequest) -> Result<(), ApplyError> {
        Err(no_calibration())
    }

    fn calibration(&self, _device: &str) -> Result<CalibrationSnapshot, ApplyError> {
        Err(no_calibration())
    }

    fn cancel_calibration(&self, _device: &str) -> Result<(), ApplyError> {
        Err(no_calibration())
    }
}

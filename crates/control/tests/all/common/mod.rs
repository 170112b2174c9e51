//! A dataplane that only remembers, and a client that speaks just enough HTTP.

// Each test program uses a part of this, and a panic is how a test fails.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use config::schema::{ApiAddress, Configuration};
use config::{Action, ApplyError, ApplyErrorKind};
use serde_json::Value;
use switchyard_control::calibration::{CalibrationRequest, CalibrationSnapshot, CalibrationState};
use switchyard_control::server::{Server, ServerOptions, run};
use switchyard_control::snapshot::{
    ConnectionCounters, ControllerSnapshot, NamespaceSnapshot, ScheduledDevice, TargetEvent,
    TenantSnapshot,
};
use switchyard_control::state::ToZero;
use switchyard_control::{Control, DataPlane, Plane, Snapshot, Token};

/// What servers of tests want to be shown over TCP.
pub const TOKEN: &str = "0123456789abcdef";

/// The configuration of a small target.
pub const TOML: &str = "
[devices.fast]
type = \"ram\"
size = \"1M\"
[devices.spare]
type = \"null\"
size = \"1M\"
[[subsystems]]
nqn = \"nqn.2026-11.com.example:a\"
allowed_hosts = []
namespaces = [{ nsid = 1, device = \"fast\" }]
";

type Refusal = Box<dyn Fn(&Action) -> bool + Send>;

/// Applies actions to a model of its own, and refuses those it is told to.
pub struct MemoryPlane {
    pub model: Mutex<Configuration>,
    pub applied: Mutex<Vec<Action>>,
    pub events: Mutex<Vec<TargetEvent>>,
    refuses: Mutex<Option<Refusal>>,
    calibration: Mutex<Option<CalibrationSnapshot>>,
}

impl MemoryPlane {
    pub fn new(model: Configuration) -> Arc<Self> {
        Arc::new(Self {
            model: Mutex::new(model),
            applied: Mutex::default(),
            events: Mutex::default(),
            refuses: Mutex::new(None),
            calibration: Mutex::default(),
        })
    }

    pub fn refuse(&self, which: impl Fn(&Action) -> bool + Send + 'static) {
        *self.refuses.lock().unwrap() = Some(Box::new(which));
    }
}

/// A plane of which a test carries out the actions.
pub struct Intercepted<F> {
    pub plane: Arc<Plane>,
    pub apply: F,
}

impl<F> DataPlane for Intercepted<F>
where
    F: Fn(&Plane, &Action, Option<&[PathBuf]>) -> Result<(), ApplyError> + Send + Sync + 'static,
{
    fn apply(&self, action: &Action, folders: Option<&[PathBuf]>) -> Result<(), ApplyError> {
        (self.apply)(&self.plane, action, folders)
    }

    fn zero_before(&self, action: &Action) -> Result<(), ApplyError> {
        self.plane.zero_before(action)
    }

    fn to_zero(&self) -> Vec<ToZero> {
        self.plane.to_zero()
    }

    fn set_to_zero(&self, ranges: Vec<ToZero>) {
        self.plane.set_to_zero(ranges);
    }

    fn settle(&self) {
        self.plane.settle();
    }

    fn snapshot(&self) -> Snapshot {
        self.plane.snapshot()
    }

    fn events(&self, after: u64) -> Vec<TargetEvent> {
        self.plane.events(after)
    }

    fn calibrate(&self, device: &str, request: CalibrationRequest) -> Result<(), ApplyError> {
        self.plane.calibrate(device, request)
    }

    fn calibration(&self, device: &str) -> Result<CalibrationSnapshot, ApplyError> {
        self.plane.calibration(device)
    }

    fn cancel_calibration(&self, device: &str) -> Result<(), ApplyError> {
        self.plane.cancel_calibration(device)
    }
}

impl DataPlane for MemoryPlane {
    fn apply(&self, action: &Action, _: Option<&[PathBuf]>) -> Result<(), ApplyError> {
        if self
            .refuses
            .lock()
            .unwrap()
            .as_ref()
            .is_some_and(|refuses| refuses(action))
        {
            return Err(ApplyError::new(
                ApplyErrorKind::Failed,
                "no space left on device",
                "free some space",
            ));
        }
        action.apply_to_model(&mut self.model.lock().unwrap())?;
        self.applied.lock().unwrap().push(action.clone());
        Ok(())
    }

    fn events(&self, after: u64) -> Vec<TargetEvent> {
        let events = self.events.lock().unwrap();
        let after = events.iter().filter(|event| event.number > after);
        after.cloned().collect()
    }

    fn snapshot(&self) -> Snapshot {
        let model = self.model.lock().unwrap();
        let namespaces = model.subsystems.iter().flat_map(|subsystem| {
            subsystem
                .namespaces
                .iter()
                .map(|namespace| NamespaceSnapshot {
                    nqn: subsystem.nqn.clone(),
                    device: namespace.device.clone(),
                    size_bytes: 0,
                    namespace: target::NamespaceSnapshot {
                        nsid: namespace.nsid,
                        ..target::NamespaceSnapshot::default()
                    },
                })
        });
        let mut tenant = TenantSnapshot {
            name: "db".to_owned(),
            ..TenantSnapshot::default()
        };
        tenant.stats.waiting = 7;
        Snapshot {
            connections: ConnectionCounters {
                open: 5,
                ..ConnectionCounters::default()
            },
            namespaces: namespaces.collect(),
            devices: vec![ScheduledDevice {
                name: "fast".to_owned(),
                tenants: vec![tenant],
                ..ScheduledDevice::default()
            }],
            controllers: vec![ControllerSnapshot {
                id: 1,
                kind: target::ControllerKind::Io,
                nqn: String::new(),
                host_nqn: "nqn.2026-11.com.example:host".to_owned(),
                host_id: String::new(),
                identity: target::Authentication::default(),
                peer: ([127, 0, 0, 1], 4420).into(),
                io_queues: Vec::new(),
                errors: 0,
            }],
            ..Snapshot::default()
        }
    }

    fn calibrate(&self, device: &str, request: CalibrationRequest) -> Result<(), ApplyError> {
        let mut calibration = self.calibration.lock().unwrap();
        if calibration
            .as_ref()
            .is_some_and(|c| c.state == CalibrationState::Running)
        {
            let kind = ApplyErrorKind::Conflict;
            return Err(ApplyError::new(kind, "one runs already", "wait"));
        }
        *calibration = Some(CalibrationSnapshot {
            device: device.to_owned(),
            share_percent: request.share_percent,
            seconds: request.seconds,
            ..CalibrationSnapshot::default()
        });
        Ok(())
    }

    fn calibration(&self, device: &str) -> Result<CalibrationSnapshot, ApplyError> {
        let calibration = self.calibration.lock().unwrap().clone();
        let missing = || ApplyError::new(ApplyErrorKind::NotFound, "there was none", "begin one");
        calibration
            .filter(|c| c.device == device)
            .ok_or_else(missing)
    }

    fn cancel_calibration(&self, device: &str) -> Result<(), ApplyError> {
        let mut calibration = self.calibration(device)?;
        calibration.state = CalibrationState::Cancelled;
        *self.calibration.lock().unwrap() = Some(calibration);
        Ok(())
    }
}

/// A control plane over a [`MemoryPlane`], both begun with `toml`.
pub fn control(toml: &str) -> (Arc<Control>, Arc<MemoryPlane>) {
    let configuration = config::parse(toml, config::Format::Toml).unwrap();
    let plane = MemoryPlane::new(configuration.emptied());
    let control = Control::start(&configuration, Arc::clone(&plane) as Arc<dyn DataPlane>).unwrap();
    (Arc::new(control), plane)
}

pub fn serve(control: &Arc<Control>, api: &str) -> Server {
    let options = ServerOptions {
        api: Some(api.parse().unwrap()),
        token: Some(Token::new(TOKEN).unwrap()),
        ..ServerOptions::default()
    };
    run(Arc::clone(control), options, || {}).unwrap()
}

/// A response: its status, its headers and its body.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error, which must have both its parts.
    pub fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let json = self.json();
        let part = |key| {
            json[key]
                .as_str()
                .filter(|text| !text.is_empty())
                .unwrap()
                .to_owned()
        };
        format!("{}; {}", part("error"), part("what_to_do"))
    }
}

/// Sends `request` as it is, and reads until the server closes.
pub fn exchange(address: &ApiAddress, request: &[u8]) -> Response {
    let mut bytes = Vec::new();
    match address {
        ApiAddress::Loopback(address) => {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request).unwrap();
            stream.read_to_end(&mut bytes).unwrap();
        }
        ApiAddress::Unix(path) => {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(request).unwrap();
            stream.read_to_end(&mut bytes).unwrap();
        }
        ApiAddress::Https { .. } => panic!("this client does not encrypt"),
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Response {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

/// One request with the given extra header lines and body.
pub fn request(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> Response {
    let address = server.address().unwrap();
    let host = address.authority();
    let host = host.unwrap_or_else(|| "localhost".to_owned());
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    exchange(address, text.as_bytes())
}

pub fn get(server: &Server, path: &str) -> Response {
    request(server, "GET", path, "", "")
}

/// A request with a JSON body.
pub fn send(server: &Server, method: &str, path: &str, body: &str) -> Response {
    request(
        server,
        method,
        path,
        "Content-Type: application/json\r\n",
        body,
    )
}

/// A directory that is gone when the test ends.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        Self(block::temporary_folder(name))
    }
}

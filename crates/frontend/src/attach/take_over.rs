//! Another process takes the attachments over: `attach --take-over`
//! (docs/design/decisions/0030-attach-takeover.md).

use super::attached::{Attached, Taken};
use super::front_end::Offered;
use super::identifier_hash::hash;
use super::running::Running;
use super::wanted::{FrontEndOptions, Origin, Wanted};
use crate::Handed;
use crate::nbd::Address;
use anyhow::{Context as _, Result, bail};
use config::{Value, with_causes};
use control::limits::TAKEOVER_PATIENCE;
use control::takeover::{Gives, Paused, State, TakeOverError, Taker};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Version of the offer and of the states of front ends.
const PROTOCOL: u32 = 1;

/// What a successor needs before it can start. The files follow: those of the attachments, and the
/// socket of the interface.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    attachments: Vec<OfferedAttachment>,
    /// Address of the interface.
    api: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OfferedAttachment {
    name: String,
    kind: String,
    /// Hash of its keys in the file; 0 without a file.
    keys: u64,
    /// Identities of the volumes, by namespace.
    volumes: Vec<(u32, u64)>,
    read_only: bool,
    /// The file of its device is among the files.
    has_device: bool,
    /// So is a file of the front end.
    has_file: bool,
    state: serde_json::Value,
}

/// The state of a paused front end; its bytes and files follow.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    state: serde_json::Value,
    bytes: usize,
    files: usize,
}

/// Returns the address at which a process with this origin is taken over; `None` if a successor could
/// not know it.
pub(super) fn address_of(origin: &Origin) -> Option<io::Result<UnixAddr>> {
    let of_path = |kind: &str, path: &Path| {
        let path = std::path::absolute(path)?;
        Ok(hash(kind, path.as_os_str().as_bytes()))
    };
    let number = match origin {
        Origin::File { path, only, .. } => {
            let kind = format!("file {}", only.as_deref().unwrap_or_default());
            of_path(&kind, path)
        }
        Origin::One(wanted) => match (&wanted.front_end, wanted.front_end.address()) {
            (FrontEndOptions::Ublk(options), _) => Ok(hash("ublk", &options.id?.to_le_bytes())),
            (FrontEndOptions::Fuse(options), _) => of_path("fuse", &options.mountpoint),
            (_, Some(Address::Unix(path))) => of_path("unix", &path),
            (_, Some(Address::Tcp(address))) => {
                (address.port() != 0).then(|| Ok(hash("tcp", address.to_string().as_bytes())))?
            }
            (_, None) => return None,
        },
    };
    let name = |number| format!("switchyard-attach/{number:016x}");
    Some(number.and_then(|number| UnixAddr::from_abstract_name(name(number))))
}

/// The attachments of a process, as it gives them.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) running: Arc<Running>,
    /// The socket of the interface, and its address.
    pub(super) api: Option<(OwnedFd, String)>,
    /// The configuration file, which is applied first.
    pub(super) file: Option<PathBuf>,
}

impl Gives for Given {
    const PROTOCOL: u32 = PROTOCOL;
    type Offer = Offer;
    type Handed = (Vec<Attached>, Vec<Handed>);

    fn offer(&self) -> Result<(Offer, Vec<OwnedFd>), String> {
        // What a pipe gave cannot be read again.
        if let Some(file) = self.file.as_ref().filter(|file| file.is_file()) {
            self.running.reload(file);
        }
        self.running.begin_to_leave()?;
        let mut files = Vec::new();
        let lists = self.running.shared.lock();
        let attachments = lists.attached.iter().map(|attached| {
            let offered = offer(attached, &mut files);
            offered.map_err(|error| format!("{}: {}", attached.wanted.name, with_causes(&error)))
        });
        let attachments = attachments.collect::<Result<_, _>>()?;
        drop(lists);
        let api = self.api.as_ref();
        let socket = api.map(|(socket, _)| socket.try_clone()).transpose();
        files.extend(socket.map_err(|error| format!("the socket of the interface: {error}"))?);
        let api = api.map(|(_, address)| address.clone());
        Ok((Offer { attachments, api }, files))
    }

    fn pause(&self) -> Result<Self::Handed, String> {
        let mut all = self.running.shared.lock().take_out();
        let by = Instant::now() + TAKEOVER_PATIENCE;
        let pause = |attached: &mut Attached| {
            let paused = attached.started.front_end.pause(by);
            paused.map_err(|reason| format!("{}: {reason}", attached.wanted.name))
        };
        let paused: Vec<_> = std::thread::scope(|scope| {
            let threads = all.iter_mut().map(|attached| {
                let thread = std::thread::Builder::new().name("take-over".to_owned());
                thread.spawn_scoped(scope, move || pause(attached))
            });
            let threads: Vec<_> = threads.collect();
            let paused = threads.into_iter().map(|thread| match thread {
                // One that panicked has said so.
                Ok(thread) => thread.join().unwrap_or_else(|_| Err("a bug".to_owned())),
                Err(error) => Err(format!("cannot start a thread: {error}")),
            });
            paused.collect()
        });
        let (mut states, mut reasons) = (Vec::new(), Vec::new());
        let (mut stopped, mut serving) = (Vec::new(), Vec::new());
        for (attached, paused) in all.into_iter().zip(paused) {
            match paused {
                Ok(state) => {
                    states.push(state);
                    stopped.push(attached);
                }
                Err(reason) => {
                    reasons.push(reason);
                    serving.push(attached);
                }
            }
        }
        if reasons.is_empty() {
            return Ok((stopped, states));
        }
        resume(&mut stopped, states);
        stopped.append(&mut serving);
        self.running.shared.lock().put_back(stopped);
        Err(reasons.join("; "))
    }

    fn state<'a>(&self, (_, states): &'a Self::Handed) -> Result<State<'a>, String> {
        let part = |handed: &Handed| Part {
            state: handed.state.clone(),
            bytes: handed.bytes.len(),
            files: handed.files.len(),
        };
        let parts: Vec<_> = states.iter().map(part).collect();
        let text = serde_json::to_vec(&parts).map_err(|error| error.to_string())?;
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text);
        states.iter().for_each(|it| bytes.extend(&it.bytes));
        let files = states.iter().flat_map(|it| &it.files);
        Ok((bytes.into(), files.map(OwnedFd::as_fd).collect()))
    }

    fn resume(&self, (mut all, states): Self::Handed) {
        resume(&mut all, states);
        self.running.shared.lock().put_back(all);
    }

    fn stay(&self) {
        self.running.shared.lock().is_leaving = false;
    }

    fn leave(&self, (all, states): Self::Handed) -> String {
        let count = all.len();
        drop(states);
        for mut attached in all {
            attached.started.front_end.give_away();
            // Its controllers are shut down with it.
            drop(attached);
        }
        self.running.shared.lock().put_back(Vec::new());
        self.running.end();
        format!("{count} attachments")
    }
}

fn offer(attached: &Attached, files: &mut Vec<OwnedFd>) -> Result<OfferedAttachment> {
    let source = &attached.started.source;
    let device = source.share_file()?;
    let Offered { state, file } = attached.started.front_end.offer()?;
    let offered = OfferedAttachment {
        name: attached.wanted.name.clone(),
        kind: attached.wanted.front_end.kind().to_owned(),
        keys: keys(&attached.wanted),
        volumes: source.volumes.clone(),
        read_only: attached.started.read_only,
        has_device: device.is_some(),
        has_file: file.is_some(),
        state,
    };
    files.extend(device.map(OwnedFd::from));
    files.extend(file);
    Ok(offered)
}

/// Serves paused attachments; one that fails is started again like each that fails.
fn resume(all: &mut [Attached], states: Vec<Handed>) {
    for (attached, state) in all.iter_mut().zip(states) {
        if let Err(error) = attached.started.front_end.resume(state) {
            tracing::error!("{}: {error}", attached.wanted.name);
        }
    }
}

/// Returns a hash of an attachment's keys in the file, wherever they stand in it.
fn keys(wanted: &Wanted) -> u64 {
    fn write(value: &Value, text: &mut String) {
        match value {
            Value::Array(all) => {
                text.push('[');
                for item in all {
                    write(&item.value, text);
                    text.push(',');
                }
                text.push(']');
            }
            Value::Table(all) => {
                text.push('{');
                for (key, item) in all {
                    text.push_str(&format!("{key:?}="));
                    write(&item.value, text);
                    text.push(',');
                }
                text.push('}');
            }
            other => text.push_str(&format!("{other:?}")),
        }
    }
    let Some(value) = &wanted.entry else {
        return 0;
    };
    let mut text = String::new();
    write(value, &mut text);
    hash("keys", text.as_bytes())
}

/// Attachments that were taken over, and serve.
#[derive(Debug)]
pub(super) struct TakenOver {
    pub(super) attached: Vec<Attached>,
    /// Those of the file that the predecessor did not have.
    pub(super) others: Vec<Wanted>,
    /// The socket of the interface.
    pub(super) api: Option<Arc<OwnedFd>>,
    /// The socket at which the next successor connects.
    pub(super) door: OwnedFd,
}

/// Takes the process at `address` over, with these attachments and this interface.
///
/// # Errors
/// Why the running process serves on.
pub(super) fn take_over(
    address: Option<io::Result<UnixAddr>>,
    mut wanted: Vec<Wanted>,
    api: Option<String>,
) -> Result<TakenOver> {
    let Some(address) = address else {
        bail!(
            "--take-over finds the running process by its number of the block device (--id), or by \
             its port, which is not 0: give it the same way in both processes"
        );
    };
    let what = || "process to take over has these attachments".to_owned();
    let mut taker = Taker::<Offer>::connect(address, PROTOCOL, what)?;
    let attached = match prepare(&mut taker, &mut wanted, api) {
        Ok(attached) => attached,
        Err(error) => return Err(taker.refuse(with_causes(&error)).into()),
    };
    let has_api = taker.offer.api.is_some();
    let api = has_api.then(|| taker.file()).transpose()?;
    let door = taker.file()?;
    let count = attached.len();
    let mut attached = attached;
    let states = taker.take(|paused| divide(paused, count));
    let states = states.map_err(|error: TakeOverError| anyhow::Error::from(error))?;
    resume(&mut attached, states);
    Ok(TakenOver {
        attached,
        others: wanted,
        api: api.map(Arc::new),
        door,
    })
}

/// Starts everything that can be started before the running process stops, and removes it from
/// `wanted`.
fn prepare(
    taker: &mut Taker<Offer>,
    wanted: &mut Vec<Wanted>,
    api: Option<String>,
) -> Result<Vec<Attached>> {
    if taker.offer.api != api {
        bail!(
            "its interface is at {:?}, not at {api:?}: use the same",
            taker.offer.api
        );
    }
    let offered = std::mem::take(&mut taker.offer.attachments);
    let mut all = Vec::new();
    for offered in offered {
        let name = &offered.name;
        let same = |it: &Wanted| it.name == *name && it.front_end.kind() == offered.kind;
        let place = wanted.iter().position(same);
        let place = place.with_context(|| {
            format!(
                "it serves {name:?} ({}), which is not configured",
                offered.kind
            )
        })?;
        let wanted = wanted.remove(place);
        if keys(&wanted) != offered.keys {
            bail!(
                "{name:?} has other keys in the file than in the running process, where it is in use"
            );
        }
        let device = offered.has_device.then(|| taker.file()).transpose()?;
        let file = offered.has_file.then(|| taker.file()).transpose()?;
        let taken = Taken {
            device: device.map(Into::into),
            offered: Offered {
                state: offered.state,
                file,
            },
        };
        let attached = Attached::start(wanted, &|| Ok(()), Some(taken))?;
        let started = &attached.started;
        if (&started.source.volumes, started.read_only) != (&offered.volumes, offered.read_only) {
            bail!("{name:?} has other volumes or rights to write than in the running process");
        }
        all.push(attached);
    }
    Ok(all)
}

/// Returns the states of the front ends, in their order.
fn divide(paused: Paused, count: usize) -> Result<Vec<Handed>, String> {
    let short = || "the state is incomplete".to_owned();
    let (length, rest) = paused.bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
    let (text, mut rest) = rest.split_at_checked(length).ok_or_else(short)?;
    let parts: Vec<Part> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut files = paused.files.into_iter();
    let states = parts.into_iter().map(|part| {
        let (bytes, after) = rest.split_at_checked(part.bytes)?;
        rest = after;
        let handed = Handed {
            state: part.state,
            bytes: bytes.to_vec(),
            files: files.by_ref().take(part.files).collect(),
        };
        (handed.files.len() == part.files).then_some(handed)
    });
    let states: Option<Vec<_>> = states.collect();
    let states = states.filter(|states| states.len() == count);
    states.ok_or_else(short)
}

//! The process of attachments, from its start to its end.

use super::file::Interface;
use crate::attach::reporter::Reporter;
use crate::attach::running::Running;
use crate::attach::shared::SharedAttachments;
use crate::attach::take_over::{self, Given};
use crate::attach::wanted::{File, FileReader, Origin, Wanted};
use crate::passed_sockets;
use anyhow::{Context as _, Result, bail};
use config::schema::ApiAddress;
use control::process::service_manager::ServiceManager;
use control::server::{self, ServerOptions};
use control::takeover::Giver;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Time that files and block devices in use get at the end of a process that serves a file of
/// attachments, as much as requests under way get.
const PATIENCE: Duration = Duration::from_secs(10);

/// Attaches, serves, and detaches at a signal. The HTTP interface is at the address that the file
/// names, or else at `api`. If it `takes_over`, a running process with the same origin stops serving
/// when this one begins. Returns false if the end cut clients off, or gave up their requests.
///
/// # Errors
/// A file with faults, a passed socket of no attachment, a device or target that cannot be used, an
/// interface that cannot be offered, or an attachment without a file that cannot serve any more.
pub fn run(
    origin: Origin,
    api: Option<ApiAddress>,
    takes_over: bool,
    reporter: Arc<dyn Reporter>,
) -> Result<bool> {
    let door = take_over::address_of(&origin);
    let (path, of_file, mut wanted) = read(origin)?;
    let addresses = wanted.iter().filter_map(|it| it.front_end.address());
    passed_sockets::check_used(&addresses.collect::<Vec<_>>())?;
    let interface = of_file.as_ref().map(|(interface, _)| interface.clone());
    let interface = interface.unwrap_or_default();
    let patience = path.is_some().then_some(PATIENCE);
    let (signals, receiver) = mpsc::channel();
    let running = Arc::new(Running::new(of_file, signals, reporter));
    let mut options = ServerOptions {
        api: interface.address.or(api),
        limits: interface.limits,
        files: interface.files,
        token: control::client::token()?,
        config_path: path.clone(),
        ..ServerOptions::default()
    };
    let api = options.api.as_ref().map(ToString::to_string);
    let door = if takes_over {
        let taken = take_over::take_over(door, wanted, api.clone())?;
        let mut lists = running.shared.lock();
        taken.attached.into_iter().for_each(|it| lists.add(it));
        (wanted, options.socket) = (taken.others, taken.api);
        Some(Ok(UnixListener::from(taken.door)))
    } else {
        door.map(|address| UnixListener::bind_addr(&address?))
    };
    let managed = SharedAttachments::new(Arc::clone(&running));
    let server = server::start(Arc::new(managed), options)?;
    let manager = match begin(&running, wanted, server.address()) {
        Ok(manager) => manager,
        Err(error) => {
            running.abandon();
            return Err(error);
        }
    };
    let given = || {
        Ok(Given {
            running: Arc::clone(&running),
            api: server.socket()?.zip(api),
            file: path,
        })
    };
    let giver = door.and_then(|door| Giver::start(door, manager.clone(), given));
    let watched = Arc::clone(&running);
    let watch = manager.watch(move |time| watched.responds(time));
    let watch = watch.context("cannot start the thread of the watchdog")?;
    running.serve(&receiver);
    if giver.as_ref().is_some_and(Giver::is_given) {
        server.keep_file();
        server.stop();
        return Ok(true);
    }
    manager.tell("STOPPING=1");
    running.drain(&receiver, patience);
    drop((watch, giver));
    server.stop();
    if running.has_failed() {
        bail!("an attachment could not serve any more; the log says why: start it again");
    }
    Ok(!running.was_forced())
}

/// What a process reads at its start: the path of its file, the interface that this names and how it is
/// read again, and the attachments.
type Read = (
    Option<PathBuf>,
    Option<(Interface, FileReader)>,
    Vec<Wanted>,
);

fn read(origin: Origin) -> Result<Read> {
    let (path, read) = match origin {
        Origin::One(wanted) => return Ok((None, None, vec![*wanted])),
        Origin::File { path, read, only } => (path, FileReader { read, only }),
    };
    let File { interface, wanted } = read.read(&path, true)?;
    if let (Some(name), true) = (&read.only, wanted.is_empty()) {
        let path = path.display();
        bail!("{path} has no attachment {name:?}; see its keys \"name\"");
    }
    Ok((Some(path), Some((interface, read)), wanted))
}

/// Starts all, and says that they are ready, unless the process is to end.
fn begin(
    running: &Running,
    wanted: Vec<Wanted>,
    api: Option<&ApiAddress>,
) -> Result<ServiceManager> {
    running.start(wanted)?;
    let manager = ServiceManager::from_environment();
    let manager = manager.context("the service manager cannot be told that this is ready")?;
    if !running.is_draining() {
        if let Some(api) = api {
            running.reporter().interface(api)?;
        }
        manager.tell("READY=1");
    }
    Ok(manager)
}

//! The process of attachments, from its start to its end.

use crate::attach::reporter::Reporter;
use crate::attach::running::Running;
use crate::attach::shared::SharedAttachments;
use crate::attach::wanted::{File, FileReader, ReadFile, Wanted};
use crate::passed_sockets;
use anyhow::{Context as _, Result, bail};
use config::schema::ApiAddress;
use control::process::service_manager::ServiceManager;
use control::server::{self, ServerOptions};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Time that files and block devices in use get at the end of a process that serves a file of
/// attachments, as much as requests under way get.
const PATIENCE: Duration = Duration::from_secs(10);

/// The origin of the attachments of a process.
#[derive(Debug)]
pub enum Origin {
    /// The command line names one, with which the process ends.
    One(Box<Wanted>),
    /// A file names them, which is read again at SIGHUP.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reads it.
        read: ReadFile,
        /// The name of the one attachment that this process serves, without the interface of the file;
        /// `None` for all.
        only: Option<String>,
    },
}

/// Attaches, serves, and detaches at a signal. The HTTP interface is at the address that the file
/// names, or else at `api`. Returns false if the end cut clients off, or gave up their requests.
///
/// # Errors
/// A file with faults, a passed socket of no attachment, a device or target that cannot be used, an
/// interface that cannot be offered, or an attachment without a file that cannot serve any more.
pub fn run(origin: Origin, api: Option<ApiAddress>, reporter: Arc<dyn Reporter>) -> Result<bool> {
    let (path, of_file, wanted) = match origin {
        Origin::One(wanted) => (None, None, vec![*wanted]),
        Origin::File { path, read, only } => {
            let read = FileReader { read, only };
            let File { interface, wanted } = read.read(&path, true)?;
            if let (Some(name), true) = (&read.only, wanted.is_empty()) {
                let path = path.display();
                bail!("{path} has no attachment {name:?}; see its keys \"name\"");
            }
            (Some(path), Some((interface, read)), wanted)
        }
    };
    let addresses = wanted.iter().filter_map(|it| it.front_end.address());
    passed_sockets::check_used(&addresses.collect::<Vec<_>>())?;
    let interface = of_file.as_ref().map(|(interface, _)| interface.clone());
    let interface = interface.unwrap_or_default();
    let patience = path.is_some().then_some(PATIENCE);
    let (signals, receiver) = mpsc::channel();
    let running = Arc::new(Running::new(of_file, signals, reporter));
    let options = ServerOptions {
        api: interface.address.or(api),
        limits: interface.limits,
        files: interface.files,
        token: control::client::token()?,
        config_path: path,
        ..ServerOptions::default()
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
    let watched = Arc::clone(&running);
    let watch = manager.watch(move |time| watched.responds(time));
    let watch = watch.context("cannot start the thread of the watchdog")?;
    running.serve(&receiver);
    manager.tell("STOPPING=1");
    running.drain(&receiver, patience);
    drop(watch);
    server.stop();
    if running.has_failed() {
        bail!("an attachment could not serve any more; the log says why: start it again");
    }
    Ok(!running.was_forced())
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

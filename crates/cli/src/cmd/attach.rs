//! `switchyard attach`: front ends for unmodified applications.

mod attached;
mod file;
mod front_end;
mod fuse;
mod lists;
mod nbd;
mod running;
mod source;
#[cfg(test)]
mod test_front_end;
mod ublk;
mod vhost;

use crate::args::AttachArgs;
use crate::exit::Outcome;
use crate::output::{Output, print};
use anyhow::{Context as _, Result, bail};
use attached::Wanted;
use control::model::ApiAddress;
use control::process::service_manager::ServiceManager;
use control::server::{self, ServerOptions};
use frontend::ClassRules;
use running::Running;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Time that open files of FUSE get at the end of a process that serves a file of attachments, as
/// much as requests under way get.
const PATIENCE: Duration = Duration::from_secs(10);

/// Attaches, and detaches at a signal.
///
/// # Errors
/// A device or target that cannot be used, or an interface that cannot be offered.
pub fn run(args: &AttachArgs, output: Output) -> Result<Outcome> {
    let (wanted, file_api) = match (&args.kind, &args.config) {
        (Some(command), None) => {
            let wanted = Wanted {
                name: command.kind().to_owned(),
                command: command.clone(),
                rules: ClassRules::default(),
                entry: None,
            };
            (vec![wanted], None)
        }
        (None, Some(path)) => {
            let file = file::load(path, true)?;
            (file.wanted, Some(file.api))
        }
        (Some(_), Some(_)) => bail!("--config FILE names the attachments; omit the kind"),
        (None, None) => bail!("name a kind, or a file with --config FILE; see --help"),
    };
    let (signals, receiver) = mpsc::channel();
    let api = file_api.clone().flatten().or_else(|| args.api.clone());
    let running = Arc::new(Running::new(file_api, signals, output));
    let options = ServerOptions {
        api,
        token: control::client::token()?,
        config_path: args.config.clone(),
        ..ServerOptions::default()
    };
    let server = server::run_attachments(Arc::clone(&running) as _, options)?;
    let api = server.address().filter(|_| !output.json);
    let manager = match begin(&running, wanted, api) {
        Ok(manager) => manager,
        Err(error) => {
            running.abandon();
            return Err(error);
        }
    };
    running.serve(&receiver);
    manager.tell("STOPPING=1");
    running.drain(&receiver, args.config.is_some().then_some(PATIENCE));
    server.stop();
    if running.has_failed() {
        bail!("an attachment could not serve any more; the log says why: start it again");
    }
    Ok(Outcome::Done)
}

/// Starts all, and says that they are ready.
fn begin(
    running: &Running,
    wanted: Vec<Wanted>,
    api: Option<&ApiAddress>,
) -> Result<ServiceManager> {
    running.start(wanted)?;
    if let Some(api) = api {
        print(format_args!("interface at {api}\n"))?;
    }
    let manager = ServiceManager::from_environment();
    let manager = manager.context("the service manager cannot be told that this is ready")?;
    manager.tell("READY=1");
    Ok(manager)
}

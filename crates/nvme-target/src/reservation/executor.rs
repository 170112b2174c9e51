//! Execution of the commands that change registrations or the reservation of a namespace.

use super::job::Job;
use super::state::Outcome;
use crate::change::ack::{Ack, AckError};
use crate::change::step::{AfterPause, ChangeStep};
use crate::controller::async_events::Notice;
use crate::error::TargetError;
use crate::message::CoreMessage;
use crate::namespace::Namespace;
use crate::shared::Shared;
use crate::subsystem::Subsystem;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

/// Time between two attempts to pause a namespace whose device does not answer.
const RETRY: Duration = Duration::from_millis(10);

/// Starts the thread, which ends with the target.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<(), TargetError> {
    let (jobs, waiting) = mpsc::channel::<Job>();
    if shared.reserver.set(jobs).is_err() {
        return Ok(());
    }
    let shared = Arc::downgrade(shared);
    let work = move || {
        while let Ok(job) = waiting.recv() {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let status = execute(&shared, &job).err().unwrap_or(Status::SUCCESS);
            let Job { core, asker, .. } = job;
            shared.deliver(core, CoreMessage::Reserved { asker, status });
        }
    };
    let thread = thread::Builder::new().name("reservations".to_owned());
    let failed = |error| TargetError::Invalid(format!("cannot start a thread: {error}"));
    thread.spawn(work).map(drop).map_err(failed)
}

fn execute(shared: &Shared, job: &Job) -> Result<(), Status> {
    let subsystem = &job.subsystem;
    let namespaces = match job.nsid {
        NSID_BROADCAST => subsystem.namespaces(),
        nsid => {
            let found = subsystem.namespace(nsid);
            vec![found.ok_or(Status::INVALID_NAMESPACE.with_dnr())?]
        }
    };
    for namespace in namespaces {
        change(shared, subsystem, &namespace, job)?;
        let current = subsystem.namespace(namespace.nsid());
        if !current.is_some_and(|current| Arc::ptr_eq(&current, &namespace)) {
            return Err(Status::INVALID_NAMESPACE.with_dnr());
        }
    }
    Ok(())
}

/// Changes one namespace: first on stable storage, then on every core.
fn change(
    shared: &Shared,
    subsystem: &Subsystem,
    namespace: &Namespace,
    job: &Job,
) -> Result<(), Status> {
    let before = namespace.reservations().clone();
    let mut after = before.clone();
    let Outcome { notices, aborts } = after.apply(&job.host, &job.request)?;
    let keeper = shared.reservation_keeper.get();
    if after.persists() && keeper.is_none() {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let has_changed = before != after;
    let excludes = before.exclusion() != after.exclusion();
    let persists = before.persists() || after.persists();
    *namespace.reservations() = after;
    if let Some(keeper) = keeper.filter(|_| has_changed && persists)
        && !keeper.keep()
    {
        *namespace.reservations() = before;
        // The host may retry: the state file may be writable by then.
        return Err(Status::COMMAND_INTERRUPTED);
    }
    if excludes {
        let step = ChangeStep::Reserve(subsystem.index, namespace.nsid());
        let ack = shared.post(&[step]);
        while let Err(AckError::TimedOut { .. }) = wait(shared, &ack) {}
    }
    if aborts {
        drain(shared, subsystem.index, namespace.nsid());
    }
    for (host, kind) in notices {
        let nsid = namespace.nsid();
        shared.deliver_all(|| CoreMessage::Notify {
            subsystem: Some(subsystem.index),
            notice: Notice::Reservation { nsid, host, kind },
        });
    }
    Ok(())
}

fn wait(shared: &Shared, ack: &Ack) -> Result<(), AckError> {
    ack.wait(shared.limits.change_timeout.into())
}

/// Waits until the commands in flight in a namespace have ended, however long its device takes.
fn drain(shared: &Shared, subsystem: u32, nsid: u32) {
    loop {
        let order = shared.changing();
        let paused = wait(shared, &shared.post(&[ChangeStep::Pause(subsystem, nsid)]));
        let resume = ChangeStep::Resume(subsystem, nsid, AfterPause::Keep);
        let resumed = shared.post(&[resume]);
        while let Err(AckError::TimedOut { .. }) = wait(shared, &resumed) {}
        if !matches!(paused, Err(AckError::TimedOut { .. })) {
            return;
        }
        // Other changes may be made.
        drop(order);
        thread::sleep(RETRY);
    }
}

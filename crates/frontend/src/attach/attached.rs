//! Attachments that serve.

use crate::IoCounts;
use crate::attach::front_end::{Offered, Started, fuse, nbd, ublk, vhost};
use crate::attach::snapshot::{AttachmentClass, AttachmentSnapshot, AttachmentState};
use crate::attach::source::{Source, SourceDevice};
use crate::attach::succession::identity_at;
use crate::attach::wanted::{FrontEndOptions, Wanted};
use crate::nbd::Address;
use anyhow::{Context as _, Result};
use control::socket_access::SocketAccess;
use reactor::placement;
use std::fs::File;
use std::time::Instant;
use switch::Class;

/// An attachment that serves.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Its number among all that were asked for.
    pub(crate) id: u64,
    pub(crate) began: Instant,
    /// Failures before it served.
    pub(crate) failures: u32,
    /// Clients were told where it is.
    pub(crate) is_told: bool,
    pub(crate) wanted: Wanted,
    pub(crate) started: Started,
    /// The state of the way to the device that was logged last, or that of the start.
    logged: AttachmentState,
}

impl Attached {
    /// Starts an attachment; one that was `taken` over serves when its front end resumes. `may_offer` is
    /// asked when its device is there: an error ends the start
    /// before anything is offered.
    ///
    /// # Errors
    /// A device or target that cannot be used, or an interface that cannot be offered.
    pub(crate) fn start(
        wanted: Wanted,
        may_offer: &(dyn Fn() -> Result<()> + Sync),
        taken: Option<Taken>,
    ) -> Result<Self> {
        let started = match wanted.nice {
            0 => start_here(&wanted, may_offer, taken),
            // Its threads inherit the value of the one that starts them.
            nice => std::thread::scope(|scope| {
                let starter = scope.spawn(|| {
                    placement::set_nice(nice)?;
                    start_here(&wanted, may_offer, taken)
                });
                starter.join().expect("starting does not panic")
            }),
        };
        let started = match &wanted.entry {
            Some(_) => {
                let kind = wanted.front_end.kind();
                let name = || format!("attachment {:?} ({kind})", wanted.name);
                started.with_context(name)
            }
            None => started,
        }?;
        Ok(Self {
            id: 0,
            began: Instant::now(),
            failures: 0,
            is_told: false,
            logged: started.source.state().0,
            wanted,
            started,
        })
    }

    /// Returns the wish to start it again: a block device that it leaves behind is that of its number.
    pub(crate) fn again(&self) -> Wanted {
        let mut wanted = self.wanted.clone();
        if let FrontEndOptions::Ublk(options) = &mut wanted.front_end {
            options.id = self.started.front_end.block_device().or(options.id);
        }
        wanted
    }

    pub(crate) fn clients(&self) -> usize {
        self.started.front_end.clients()
    }

    /// Ends it; see [`FrontEnd::detach`](crate::attach::front_end::FrontEnd::detach).
    pub(crate) fn detach(&mut self, force: bool) -> Result<()> {
        self.started.front_end.detach(force)
    }

    /// Ends it with the process; see [`FrontEnd::leave`](crate::attach::front_end::FrontEnd::leave).
    pub(crate) fn leave(&mut self) -> Result<()> {
        self.started.front_end.leave()
    }

    /// Logs the state of the way to the device where it is another one than before.
    pub(crate) fn log_state(&mut self) {
        let Started { source, .. } = &self.started;
        let (state, error) = source.state();
        if std::mem::replace(&mut self.logged, state) == state {
            return;
        }
        let (name, device) = (&self.wanted.name, &source.text);
        let reason = error.map_or_else(String::new, |error| format!(": {error}"));
        match state {
            AttachmentState::Local | AttachmentState::NotStarted => {}
            AttachmentState::Connected => tracing::warn!("{name}: {device}: connected again"),
            AttachmentState::NotConnected => tracing::warn!(
                "{name}: {device}: the connection is lost{reason}; requests wait until it is back, or for --io-timeout"
            ),
            AttachmentState::Gone => {
                tracing::error!("{name}: {device}: it is gone{reason}; requests fail");
            }
        }
    }

    pub(crate) fn snapshot(&self) -> AttachmentSnapshot {
        let Started {
            front_end,
            source,
            ways,
            read_only,
            ..
        } = &self.started;
        let (state, error) = source.state();
        let counts = front_end.counts();
        AttachmentSnapshot {
            name: self.wanted.name.clone(),
            kind: self.wanted.front_end.kind().to_owned(),
            at: ways.iter().map(|(way, _)| way.clone()).collect(),
            device: source.text.clone(),
            class: self.wanted.front_end.class_name().to_owned(),
            class_rules: self.wanted.class_rules,
            read_only: *read_only,
            size_bytes: source.bytes(),
            clients: front_end.clients() as u64,
            state,
            error,
            classes: Class::ALL
                .map(|class| of_class(class, counts[class]))
                .into(),
        }
    }
}

/// What a predecessor gives of an attachment before it stops.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The file of a device of this machine.
    pub(crate) device: Option<File>,
    pub(crate) offered: Offered,
}

fn start_here(
    wanted: &Wanted,
    may_offer: &dyn Fn() -> Result<()>,
    taken: Option<Taken>,
) -> Result<Started> {
    let is_taken_over = taken.is_some();
    let (file, taken) = taken.map_or((None, None), |it| (it.device, Some(it.offered)));
    if let FrontEndOptions::Fuse(options) = &wanted.front_end
        && !is_taken_over
    {
        fuse::check_empty(&options.mountpoint)?;
    }
    // A front end with one device has the first namespace unless another one is named.
    let is_fuse = matches!(wanted.front_end, FrontEndOptions::Fuse(_));
    let mut device = wanted.device.clone();
    if let FrontEndOptions::Vhost(options) = &wanted.front_end
        && let SourceDevice::Remote(remote) = &mut device
        && let Some(identity) = identity_at(&options.socket)
    {
        remote.host = remote.host.clone().identity_or(identity);
    }
    let cores = wanted.front_end.cores();
    let source = Source::open(&device, wanted.path, (!is_fuse).then_some(1), cores, file)?;
    may_offer()?;
    let started = match &wanted.front_end {
        FrontEndOptions::Nbd(options) => nbd::start(options, source, taken)?,
        FrontEndOptions::Fuse(options) => fuse::start(options, source, taken)?,
        FrontEndOptions::Vhost(options) => vhost::start(options, source, taken)?,
        FrontEndOptions::Ublk(options) => ublk::start(options, source, taken)?,
    };
    if let Some(Address::Unix(path)) = wanted.front_end.address()
        && !is_taken_over
    {
        let applied = wanted.socket_access.apply(&path);
        applied.with_context(|| format!("{}: {}", path.display(), SocketAccess::REMEDY))?;
    }
    Ok(started)
}

pub(crate) fn of_class(class: Class, counts: IoCounts) -> AttachmentClass {
    AttachmentClass {
        class: class.properties().name.to_owned(),
        // A core counts one after the other, so a part may be ahead of its whole.
        outstanding: counts.begun.saturating_sub(counts.requests()),
        counts,
    }
}

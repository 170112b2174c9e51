//! Attachments, from a wish to one that serves.

use super::front_end::Started;
use super::{fuse, nbd, ublk, vhost};
use crate::args::AttachCommand;
use anyhow::{Context as _, Result};
use control::attachments::{AttachmentClass, AttachmentSnapshot, AttachmentState, Entry};
use frontend::{ClassRules, IoCounts};
use reactor::placement;
use std::time::Instant;
use switch::Class;

/// An attachment to be made.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) command: AttachCommand,
    pub(super) rules: ClassRules,
    /// Its entry in the file, if there is a file.
    pub(super) entry: Option<Entry>,
}

impl Wanted {
    /// Starts it.
    ///
    /// # Errors
    /// A device or target that cannot be used, or an interface that cannot be offered.
    pub(super) fn start(self) -> Result<Attached> {
        let nice = self.command.source().nice;
        let started = match nice {
            0 => self.start_here(),
            // Its threads inherit the value of the one that starts them.
            _ => std::thread::scope(|scope| {
                let starter = scope.spawn(|| {
                    placement::set_nice(nice)?;
                    self.start_here()
                });
                starter.join().expect("starting does not panic")
            }),
        };
        let started = match &self.entry {
            Some(entry) => {
                let name = || format!("attachment {:?} ({})", self.name, entry.kind);
                started.with_context(name)
            }
            None => started,
        };
        let started = started?;
        Ok(Attached {
            id: 0,
            began: Instant::now(),
            failures: 0,
            is_told: false,
            logged: started.source.state().0,
            wanted: self,
            started,
        })
    }

    fn start_here(&self) -> Result<Started> {
        let rules = &self.rules;
        match &self.command {
            AttachCommand::Nbd(args) => nbd::start(args, rules),
            AttachCommand::Fuse(args) => fuse::start(args, rules),
            AttachCommand::Vhost(args) => vhost::start(args, rules),
            AttachCommand::Ublk(args) => ublk::start(args, rules),
        }
    }
}

/// An attachment that serves.
#[derive(Debug)]
pub(super) struct Attached {
    /// Its number among all that were asked for.
    pub(super) id: u64,
    pub(super) began: Instant,
    /// Failures before it served.
    pub(super) failures: u32,
    /// Clients were told where it is.
    pub(super) is_told: bool,
    pub(super) wanted: Wanted,
    pub(super) started: Started,
    /// The state of the way to the device that was logged last, or that of the start.
    logged: AttachmentState,
}

impl Attached {
    /// Returns the wish to start it again: a block device that it leaves behind is that of its number.
    pub(super) fn again(&self) -> Wanted {
        let mut wanted = self.wanted.clone();
        if let AttachCommand::Ublk(args) = &mut wanted.command {
            args.id = self.started.front_end.block_device().or(args.id);
        }
        wanted
    }

    pub(super) fn clients(&self) -> usize {
        self.started.front_end.clients()
    }

    /// Ends it; see [`FrontEnd::detach`](super::front_end::FrontEnd::detach).
    pub(super) fn detach(&mut self, force: bool) -> Result<()> {
        self.started.front_end.detach(force)
    }

    /// Logs the state of the way to the device where it is another one than before.
    pub(super) fn log_state(&mut self) {
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

    pub(super) fn snapshot(&self) -> AttachmentSnapshot {
        let Started {
            front_end,
            source,
            read_only,
            ..
        } = &self.started;
        let (state, error) = source.state();
        let counts = front_end.counts();
        let ways = front_end.ways().into_iter();
        let rules = self.wanted.entry.as_ref();
        AttachmentSnapshot {
            name: self.wanted.name.clone(),
            kind: self.wanted.command.kind().to_owned(),
            at: ways.map(|(way, _)| way).collect(),
            device: source.text.clone(),
            class: self.wanted.command.class_name().to_owned(),
            class_rules: rules.map_or(0, |entry| entry.class_rules.len()),
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

pub(super) fn of_class(class: Class, counts: IoCounts) -> AttachmentClass {
    AttachmentClass {
        class: class.properties().name.to_owned(),
        // A core counts one after the other, so a part may be ahead of its whole.
        under_way: counts.begun.saturating_sub(counts.requests()),
        counts,
    }
}

//! Attachments as files.

use super::front_end::{End, FrontEnd, Started};
use super::source::{Devices, Source};
use crate::args::AttachFuseArgs;
use anyhow::{Context as _, Result};
use base::units::CoreId;
use frontend::fuse::{Attachment, Options};
use frontend::{ClassRules, IoCounts};
use serde::Serialize;
use std::path::PathBuf;
use switch::{Class, PerClass};

/// Files that serve.
#[derive(Debug, Serialize)]
struct ReadyFiles {
    kind: &'static str,
    files: Vec<ReadyFile>,
}

#[derive(Debug, Serialize)]
struct ReadyFile {
    path: PathBuf,
    bytes: u64,
    block_bytes: u32,
}

#[derive(Debug)]
struct Fuse {
    attachment: Attachment,
    files: Vec<(String, u64)>,
}

impl FrontEnd for Fuse {
    fn ways(&self) -> Vec<(String, u64)> {
        self.files.clone()
    }

    fn clients(&self) -> usize {
        self.attachment.open_files()
    }

    fn clients_in_words(&self, count: usize) -> String {
        match count {
            1 => "1 open file".to_owned(),
            count => format!("{count} open files"),
        }
    }

    fn counts(&self) -> PerClass<IoCounts> {
        self.attachment.counts()
    }

    fn detach(&mut self, force: bool) -> Result<()> {
        if force {
            self.attachment.detach_forced();
            return Ok(());
        }
        Ok(self.attachment.detach()?)
    }

    fn end(&self) -> Option<End> {
        if self.attachment.has_failed() {
            return Some(End::Failed);
        }
        self.attachment.has_ended().then_some(End::Removed)
    }
}

/// Mounts the files.
///
/// # Errors
/// A device that cannot be used, or a mount point that cannot be.
pub(super) fn start(args: &AttachFuseArgs, rules: &ClassRules) -> Result<Started> {
    let source = Source::open(&args.source, args.read_only, args.source.nsid)?;
    let options = Options {
        mountpoint: args.mountpoint.clone(),
        class: args.class,
        rules: rules.clone(),
        core: args.core.map(CoreId),
        poll: args.poll.into(),
        allow_other: args.allow_other,
        read_only: args.read_only,
    };
    let attachment = Attachment::start(source.namespaces.clone(), &options)?;
    let file = |(nsid, devices): &(u32, Devices)| {
        let geometry = devices[Class::DEFAULT].geometry();
        ReadyFile {
            path: attachment.mountpoint().join(nsid.to_string()),
            bytes: geometry.bytes(),
            block_bytes: geometry.block_bytes,
        }
    };
    let ready = ReadyFiles {
        kind: "fuse",
        files: source.namespaces.iter().map(file).collect(),
    };
    let files = ready.files.iter();
    let files = files.map(|file| (file.path.display().to_string(), file.bytes));
    let fuse = Fuse {
        files: files.collect(),
        attachment,
    };
    Ok(Started {
        front_end: Box::new(fuse),
        class: args.class.name(),
        read_only: args.read_only,
        source,
        ready: serde_json::to_value(&ready).context("cannot make JSON")?,
    })
}

//! Attachments as files.

use super::front_end::{End, FrontEnd, Started};
use super::source::Source;
use crate::args::AttachFuseArgs;
use anyhow::{Context as _, Result};
use base::units::CoreId;
use frontend::fuse::{Attachment, Options};
use frontend::{ClassRules, IoCounts};
use serde_json::json;
use switch::{Class, PerClass};

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
    let mut files = Vec::new();
    let mut ready = Vec::new();
    for (nsid, devices) in &source.namespaces {
        let path = attachment.mountpoint().join(nsid.to_string());
        let geometry = devices[Class::DEFAULT].geometry();
        ready.push(json!({
            "path": serde_json::to_value(&path).context("cannot make JSON")?,
            "bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
        }));
        files.push((path.display().to_string(), geometry.bytes()));
    }
    Ok(Started {
        front_end: Box::new(Fuse { attachment, files }),
        class: args.class.name(),
        read_only: args.read_only,
        source,
        ready: json!({ "kind": "fuse", "files": ready }),
    })
}

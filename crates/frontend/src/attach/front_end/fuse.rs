//! Attachments as files.

use super::{End, FrontEnd, Offered, Started};
use crate::attach::modified::Modified;
use crate::attach::source::Source;
use crate::fuse::{Attachment, Options, TakenMount};
use crate::{Handed, IoCounts, Ping};
use anyhow::{Context as _, Result, ensure};
use rustix::fs::statfs;
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;
use switch::{Class, PerClass};

/// A mount, and the means to keep when its files were changed last.
#[derive(Debug)]
struct Mounted {
    attachment: Attachment,
    modified: Modified,
}

impl Mounted {
    fn keep_times(&self) {
        self.modified.keep(&self.attachment.modified());
    }
}

impl FrontEnd for Mounted {
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

    fn ping(&self, ping: &Ping) {
        self.attachment.ping(ping);
    }

    fn detach(&mut self, force: bool) -> Result<()> {
        if force {
            self.attachment.detach_forced();
        } else {
            self.attachment.detach()?;
        }
        self.keep_times();
        Ok(())
    }

    fn offer(&self) -> Result<Offered> {
        let (description, connection) = self.attachment.share_mount()?;
        Ok(Offered {
            // A path that is no text is an error.
            state: serde_json::to_value(description)?,
            file: Some(connection),
        })
    }

    fn pause(&mut self, by: Instant) -> Result<Handed, String> {
        self.attachment.pause(by)
    }

    fn resume(&mut self, handed: Handed) -> Result<(), String> {
        self.attachment.resume(handed)
    }

    fn give_away(&mut self) {
        self.attachment.leave();
    }

    fn was_forced(&self) -> bool {
        self.attachment.was_forced()
    }

    fn end(&self) -> Option<End> {
        if self.attachment.has_failed() {
            return Some(End::Failed);
        }
        self.attachment.has_ended().then_some(End::Removed)
    }
}

/// Mounts the files; a mount that was `taken` over is served when it resumes.
///
/// # Errors
/// A device that cannot be used, or a mount point that cannot be.
pub(crate) fn start(options: &Options, source: Source, taken: Option<Offered>) -> Result<Started> {
    let options = Options {
        modified: source.modified.take(),
        ..options.clone()
    };
    let mount = |taken: Offered| -> Result<TakenMount> {
        let description = serde_json::from_value(taken.state)?;
        Ok((description, taken.file.context("the mount is missing")?))
    };
    let mount = taken.map(mount).transpose()?;
    let attachment = Attachment::prepare(source.namespaces.clone(), &options, mount)?;
    let mut ways = Vec::new();
    let mut files = Vec::new();
    for (nsid, devices) in &source.namespaces {
        let path = attachment.mountpoint().join(nsid.to_string());
        let geometry = devices[Class::DEFAULT].geometry();
        files.push(json!({
            "path": serde_json::to_value(&path).context("cannot make JSON")?,
            "bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
        }));
        ways.push((path.display().to_string(), geometry.bytes()));
    }
    Ok(Started {
        front_end: Box::new(Mounted {
            attachment,
            modified: source.modified.clone(),
        }),
        read_only: options.read_only,
        source,
        ways,
        description: json!({ "kind": "fuse", "files": files }),
    })
}

/// The type of FUSE file systems in `statfs`.
const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Refuses a directory with something in it, which the mount would hide. What is no directory, or
/// the mount point of a FUSE file system, the front end refuses with its own reason.
pub(crate) fn check_empty(path: &Path) -> Result<()> {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let is_fuse = statfs(path).is_ok_and(|found| found.f_type == FUSE_SUPER_MAGIC);
    if is_fuse && device(path) != device(&path.join("..")) {
        return Ok(());
    }
    let is_empty = fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none());
    ensure!(
        is_empty,
        "mount point {} is not empty, and the mount would hide its content; choose an empty \
         directory",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of the directory was hidden without a word.
    #[test]
    fn a_mount_point_is_an_empty_directory() {
        let folder = block::temporary_folder("folder");
        check_empty(&folder).expect("it is empty");
        check_empty(&folder.join("missing")).expect("the front end's own error says it");
        fs::write(folder.join("file"), "").expect("a file");
        let error = check_empty(&folder).expect_err("it is not empty");
        assert!(error.to_string().contains("is not empty"), "{error}");
    }
}

//! A folder for files that programs of a measurement read.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// A folder of this process in the system's temporary folder; removed with its contents when
/// dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder. Folders of the same process need different names.
    ///
    /// # Errors
    /// It cannot be created, or exists already.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let name = format!("switchyard-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Small files: at worst they stay until the system clears its temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

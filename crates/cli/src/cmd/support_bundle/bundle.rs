//! The archive in the making.

use super::secrets::{self, Secrets};
use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::fs::File;

/// Folder of all files in the archive.
const FOLDER: &str = "switchyard-support";

/// An archive in the making.
pub struct Bundle {
    tar: tar::Builder<GzEncoder<File>>,
    secrets: Secrets,
    missing: Vec<String>,
}

impl Bundle {
    /// An archive in `file`, without these secrets.
    pub fn new(file: File, secrets: Secrets) -> Self {
        Self {
            tar: tar::Builder::new(GzEncoder::new(file, Compression::default())),
            secrets,
            missing: Vec::new(),
        }
    }

    /// Adds a file without the secrets in `text`.
    pub fn add(&mut self, name: &str, text: &str) -> Result<()> {
        let text = self.secrets.removed_from(text);
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        header.set_mtime(now.tv_sec.unsigned_abs());
        let path = format!("{FOLDER}/{name}");
        Ok(self.tar.append_data(&mut header, path, text.as_bytes())?)
    }

    /// Adds JSON.
    pub fn add_json(&mut self, name: &str, mut value: Value) -> Result<()> {
        secrets::remove_commands(&mut value);
        self.add(name, &format!("{value:#}"))
    }

    /// Notes that a part is missing.
    pub fn missing(&mut self, name: &str, why: impl std::fmt::Display) {
        self.missing.push(format!("{name}: {why}"));
    }

    /// Ends the archive with the list of missing parts, and returns that list.
    pub fn finish(mut self) -> Result<Vec<String>> {
        let missing = std::mem::take(&mut self.missing);
        self.add("missing.txt", &missing.join("\n"))?;
        let file = self.tar.into_inner()?.finish()?;
        file.sync_all()?;
        Ok(missing)
    }
}

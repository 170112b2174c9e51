//! Why a file of credentials cannot be used.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{key}: cannot use {}: {why}", .path.display())]
pub struct CredentialsError {
    key: &'static str,
    path: PathBuf,
    why: String,
}

impl CredentialsError {
    pub(super) fn new(key: &'static str, path: &Path, why: impl Display) -> Self {
        Self {
            key,
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

//! Words about attachments, for people and programs.

use anyhow::Result;
use config::schema::ApiAddress;
use serde_json::Value;
use std::fmt;

/// A new attachment, for its clients.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its name in the file, if there is a file.
    pub name: Option<String>,
    /// Its description for programs.
    pub description: Value,
    /// Ways for clients, each with the size of its device in bytes.
    pub ways: Vec<(String, u64)>,
}

/// Tells people and programs of attachments.
pub trait Reporter: fmt::Debug + Send + Sync + 'static {
    /// Tells of new attachments; of none where those of a file cannot be started at first.
    ///
    /// # Errors
    /// An output that cannot be written.
    fn ready(&self, new: Vec<Ready>) -> Result<()>;

    /// Tells of the HTTP interface.
    ///
    /// # Errors
    /// An output that cannot be written.
    fn interface(&self, address: &ApiAddress) -> Result<()>;

    /// Tells a person something else.
    fn note(&self, text: &str);
}

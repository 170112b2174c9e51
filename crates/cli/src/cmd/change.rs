//! Parts of commands that change a running target.

use crate::output::Output;
use anyhow::{Context as _, Result};
use control::client::{Interface, Method, ask};
use serde_json::Value;
use std::path::Path;

/// Tells a person that the target forgets the change that was made when it exits, if so.
///
/// # Errors
/// An API that is unreachable.
pub fn note_forgotten(api: &Interface, output: Output) -> Result<()> {
    let changes = ask(api, Method::GET, "/v1/config/changes", None)?;
    if changes["state"].is_null() {
        output.note(
            "note: this change is lost when the target exits, because it runs without --state \
             FILE; `switchyard config save FILE` writes it to the configuration file",
        );
    }
    Ok(())
}

/// Splits the values of an option for hosts: true if one is `any`, and the NQNs.
pub fn hosts(given: &[String]) -> (bool, Vec<&String>) {
    let any = given.iter().any(|host| host == "any");
    (any, given.iter().filter(|host| *host != "any").collect())
}

/// Returns the absolute path, as the target needs it.
///
/// # Errors
/// A path that is no text, or without a current directory.
pub fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path)
        .with_context(|| format!("cannot find the absolute path of {}", path.display()))?;
    let text = path.into_os_string().into_string();
    text.map_err(|path| anyhow::anyhow!("{} is not UTF-8; rename it", path.display()))
}

/// Removes the fields without a value of a request.
pub fn without_nulls(mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    body
}

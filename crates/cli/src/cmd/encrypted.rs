//! `switchyard device change-key` and `erase-key`: the key of an encrypted device.

use crate::output::Output;
use anyhow::{Context as _, Result};
use block::device::{FileDevice, FileOptions};
use block::layer::Crypt;
use config::schema;
use control::plane::read_crypt_key;
use serde_json::json;
use std::path::Path;

/// Replaces the key of a device.
///
/// # Errors
/// A device that cannot be opened or has no encryption header, or an unusable key.
pub fn change_key(path: &Path, key_file: &Path, new_key_file: &Path, output: Output) -> Result<()> {
    let key = |path: &Path| {
        let crypt = schema::Crypt {
            key_file: Some(path.to_owned()),
            key_command: Vec::new(),
            create: false,
        };
        read_crypt_key(&crypt, None)
    };
    let (old, new) = (key(key_file)?, key(new_key_file)?);
    Crypt::change_key(&open(path)?, &old, &new).with_context(|| shown(path))?;
    tell(
        path,
        "the new key opens it, the old one no longer does",
        output,
    )
}

/// Erases the key of a device.
///
/// # Errors
/// A device that cannot be opened or has no encryption header.
pub fn erase_key(path: &Path, output: Output) -> Result<()> {
    Crypt::erase_key(&open(path)?).with_context(|| shown(path))?;
    let text = "key erased, flushed and verified: no key opens it any more";
    tell(path, text, output)
}

fn tell(path: &Path, text: &str, output: Output) -> Result<()> {
    let shown = shown(path);
    output.result(
        &json!({ "path": path, "result": text }),
        format_args!("{shown}: {text}"),
    )
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Opens the device for the header alone, past the page cache if possible.
fn open(path: &Path) -> Result<FileDevice> {
    let options = FileOptions {
        path: path.to_owned(),
        block_bytes: 4096,
        size: None,
        create: false,
        read_only: false,
        direct: true,
    };
    FileDevice::open(options).context(
        "the device must not be in use: stop its target, or remove it there \
         (switchyard device remove NAME)",
    )
}

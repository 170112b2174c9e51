//! `switchyard import`: converts configurations of other targets.
//!
//! Nothing is dropped silently: a part without an equivalent becomes a note, and a part that would
//! give hosts more access than they had is left out with a note.

mod configfs;
mod draft;
mod json;
mod nvmet;
mod spdk;

use crate::args::{ImportArgs, ImportSource};
use crate::exit::Outcome;
use crate::output::{Output, print};
use anyhow::{Context as _, Result};
use base::printable;
use config::files::read_any;
use draft::Import;
use json::Json;
use serde_json::{Value, json};
use std::path::Path;

/// Bytes of a file: a thousand times a large configuration.
const FILE_BYTES_MAX: usize = 64 << 20;

/// Prints the converted configuration.
///
/// # Errors
/// A source that cannot be read, or is no configuration of that kind.
pub fn run(args: &ImportArgs, output: Output) -> Result<Outcome> {
    let (path, import) = match &args.source {
        ImportSource::Nvmetcli { file } => (file, read(file, nvmet::convert)),
        ImportSource::Spdk { file } => (file, read(file, spdk::convert)),
        ImportSource::Configfs { folder } => {
            let tree = configfs::read(folder);
            (folder, tree.and_then(|tree| nvmet::convert(Json(&tree))))
        }
    };
    let import = import.with_context(|| format!("cannot import {}", path.display()))?;
    let (configuration, notes) = import.finish();
    let checked = config::validate(&configuration).map_err(|error| error.to_string());
    let problems = checked.as_ref().err().into_iter().flat_map(|it| it.lines());
    let problems = problems.map(|line| format!("correct this: {line}"));
    let notes: Vec<_> = notes.into_iter().chain(problems).collect();
    for note in &notes {
        output.note(note);
    }
    if output.json {
        output.result(
            &json!({ "configuration": configuration, "notes": notes }),
            "",
        )?;
    } else {
        let mut text = format!("# Imported from {}\n", printable(&path.to_string_lossy()));
        for note in &notes {
            text += &format!("# - {note}\n");
        }
        print(format_args!("{text}\n{}", configuration.to_short_toml()))?;
    }
    Ok(Outcome::of(checked.is_ok()))
}

fn read(file: &Path, convert: impl FnOnce(Json<'_>) -> Result<Import>) -> Result<Import> {
    let text = read_any(file, FILE_BYTES_MAX)?;
    let value: Value = serde_json::from_str(&text).context("it is not JSON")?;
    convert(Json(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `each` with every copy of `value` in which one part is replaced by another value.
    fn with_replaced_parts(value: &Value, each: &mut dyn FnMut(&Value)) {
        let others = json!([
            null,
            true,
            -1,
            1e300,
            u64::MAX,
            "",
            "x\u{0}\n",
            [],
            {},
            [[7]]
        ]);
        others
            .as_array()
            .expect("a list")
            .iter()
            .for_each(&mut *each);
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    with_replaced_parts(item, &mut |other| {
                        let mut copy = items.clone();
                        copy[index] = other.clone();
                        each(&copy.into());
                    });
                }
            }
            Value::Object(entries) => {
                for (key, part) in entries {
                    with_replaced_parts(part, &mut |other| {
                        let mut copy = entries.clone();
                        copy.insert(key.clone(), other.clone());
                        each(&copy.into());
                    });
                }
            }
            _ => {}
        }
    }

    #[test]
    fn any_wrong_part_gives_an_error_or_a_configuration() {
        let nvmet = json!({
            "hosts": [{ "nqn": "nqn.a", "dhchap": { "key": true, "ctrl_key": true } }],
            "ports": [{
                "addr": { "traddr": "::1", "trsvcid": "4420", "trtype": "tcp", "tsas": "tls1.3" },
                "ana_groups": [{ "ana": { "state": "inaccessible" }, "grpid": 1 }],
                "portid": 1, "subsystems": ["nqn.s"],
                "referrals": [{ "addr": { "traddr": "::2", "trtype": "tcp" }, "enable": 1 }],
            }],
            "subsystems": [{
                "allowed_hosts": ["nqn.a"], "attr": { "serial": "1" }, "nqn": "nqn.s",
                "namespaces": [{ "device": { "path": "/no" }, "enable": 1, "nsid": 1 }],
            }],
        });
        let address = json!({ "trtype": "tcp", "traddr": "::1", "trsvcid": "4420" });
        let call = |method: &str, params: Value| json!({ "method": method, "params": params });
        let spdk = json!({ "subsystems": [
            { "subsystem": "keyring", "config": [call("keyring_file_add_key", json!({ "name": "k", "path": "/k" }))] },
            { "subsystem": "bdev", "config": [
                call("bdev_malloc_create", json!({ "name": "m", "num_blocks": 8, "block_size": 512 })),
                call("bdev_aio_create", json!({ "name": "a", "filename": "/a", "block_size": 512 })),
            ] },
            { "subsystem": "nvmf", "config": [
                call("nvmf_create_subsystem", json!({ "nqn": "nqn.s", "allow_any_host": true })),
                call("nvmf_subsystem_add_host", json!({ "nqn": "nqn.s", "host": "h", "psk": "k", "dhchap_key": "/c/k" })),
                call("nvmf_subsystem_add_ns", json!({ "nqn": "nqn.s", "namespace": { "nsid": 1, "bdev_name": "m" } })),
                call("nvmf_subsystem_add_listener", json!({ "nqn": "nqn.s", "listen_address": address })),
                call("nvmf_discovery_add_referral", json!({ "address": address })),
            ] },
        ] });
        type Convert = fn(Json<'_>) -> Result<Import>;
        let converts: [(Value, Convert); 2] = [(nvmet, nvmet::convert), (spdk, spdk::convert)];
        for (value, convert) in converts {
            let mut accepted = 0;
            with_replaced_parts(&value, &mut |value| match convert(Json(value)) {
                Err(error) => assert!(!error.to_string().is_empty()),
                Ok(import) => {
                    accepted += 1;
                    let (configuration, notes) = import.finish();
                    assert!(!notes.iter().any(|note| note.contains('\n')), "{notes:?}");
                    if config::validate(&configuration).is_ok() {
                        let text = configuration.to_short_toml();
                        let read = config::parse(&text, config::Format::Toml);
                        assert_eq!(read.as_ref(), Ok(&configuration), "{text}");
                    }
                }
            });
            assert!(accepted > 0);
        }
    }
}

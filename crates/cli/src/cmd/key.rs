//! `switchyard key`: makes and checks keys of TLS and secrets of DH-HMAC-CHAP.

use crate::args::{ChapKeyCommand, KeyArgs, KeyCommand, NewKeyFile, TlsKeyCommand};
use crate::exit::Outcome;
use crate::output::{Output, new_private_file};
use anyhow::{Context as _, Result};
use secure::chap::Secret;
use secure::psk::{Derivation, offers};
use secure::{Hash, KeyError, TlsKey};
use serde_json::json;
use std::fs;
use std::io::{self, Read as _, Write as _};
use transport::key_file;
use transport::limits::KEY_FILE_BYTES_MAX;
use zeroize::Zeroizing;

/// Runs `switchyard key`.
///
/// # Errors
/// An invalid key, or a file that cannot be read or created.
pub fn run(args: &KeyArgs, output: Output) -> Result<Outcome> {
    match &args.command {
        KeyCommand::Tls { command } => tls(command, output)?,
        KeyCommand::Chap { command } => chap(command, output)?,
    }
    Ok(Outcome::Done)
}

fn tls(command: &TlsKeyCommand, output: Output) -> Result<()> {
    match command {
        TlsKeyCommand::New { hmac, output: to } => {
            let hash = Hash::from_code(*hmac).expect("1 or 2");
            let key = TlsKey::new(Some(hash), &random(hash.bytes()))?;
            write(&key.to_text(), to, output)
        }
        TlsKeyCommand::Check { input } => {
            let keys = match &input.file {
                Some(path) => key_file::tls_keys(path)?,
                None => from_stdin(TlsKey::parse, "switchyard key tls new")?,
            };
            show(keys.iter().map(|key| (key.hash(), key.bytes())), output)
        }
        TlsKeyCommand::ShowIdentity {
            file,
            hostnqn,
            subnqn,
        } => {
            let hostnqn = host::parse_nqn(hostnqn)?;
            let subnqn = host::parse_nqn(subnqn)?;
            let keys = key_file::tls_keys(file)?;
            show_identities(&keys, hostnqn.as_str(), subnqn.as_str(), output)
        }
    }
}

fn chap(command: &ChapKeyCommand, output: Output) -> Result<()> {
    match command {
        ChapKeyCommand::New {
            hmac,
            length,
            output: to,
        } => {
            let hash = Hash::from_code(*hmac);
            let bytes = length.map_or(hash.map_or(32, Hash::bytes), usize::from);
            let secret = Secret::new(hash, &random(bytes)).context("--length")?;
            write(&secret.to_text(), to, output)
        }
        ChapKeyCommand::Check { input } => {
            let secrets = match &input.file {
                Some(path) => key_file::chap_secrets(path)?,
                None => from_stdin(Secret::parse, "switchyard key chap new")?,
            };
            let found = secrets.iter().map(|secret| (secret.hash(), secret.bytes()));
            show(found, output)
        }
    }
}

/// Returns random bytes of the kernel.
fn random(bytes: usize) -> Zeroizing<Vec<u8>> {
    let mut random = Zeroizing::new(vec![0; bytes]);
    reactor::fill_random(&mut random);
    random
}

/// Writes a new key to a file that only its owner may access, or to stdout.
fn write(key: &str, to: &NewKeyFile, output: Output) -> Result<()> {
    let Some(path) = &to.output else {
        return output.result(&json!({ "key": key }), key);
    };
    let mut file = new_private_file(path)?;
    let written = writeln!(file, "{key}").and_then(|()| file.sync_all());
    if written.is_err() {
        // Otherwise the next attempt finds a file.
        let _ = fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    let shown = path.display();
    output.result(&json!({ "file": path }), format_args!("wrote {shown}"))
}

/// Reads the keys of stdin. `command` makes a key.
fn from_stdin<T>(
    key: impl Fn(&str) -> Result<T, KeyError>,
    command: &'static str,
) -> Result<Vec<T>> {
    // Of its final size from the start: growing would leave copies behind.
    let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX + 1));
    let mut input = io::stdin().take(KEY_FILE_BYTES_MAX as u64 + 1);
    input
        .read_to_string(&mut text)
        .context("cannot read keys of standard input")?;
    anyhow::ensure!(
        text.len() <= KEY_FILE_BYTES_MAX,
        "standard input has more than {KEY_FILE_BYTES_MAX} bytes; a key is one line"
    );
    key_file::parse(&text, key, command).context("standard input")
}

/// Shows the hash function and length of each key.
fn show(keys: impl Iterator<Item = (Option<Hash>, usize)>, output: Output) -> Result<()> {
    let (mut values, mut lines) = (Vec::new(), Vec::new());
    for (hash, bytes) in keys {
        let hash = hash.map(Hash::name);
        values.push(json!({ "hash": hash, "bytes": bytes }));
        let hash = hash.unwrap_or("no hash function");
        lines.push(format!("valid: {hash}, {bytes} bytes"));
    }
    output.result(&json!({ "keys": values }), lines.join("\n"))
}

/// Shows the identities by which a target can find each key.
fn show_identities(keys: &[TlsKey], host: &str, subsystem: &str, output: Output) -> Result<()> {
    let (mut values, mut lines) = (Vec::<serde_json::Value>::new(), Vec::new());
    for psk in keys.iter().flat_map(|key| offers(key, host, subsystem)) {
        if values
            .iter()
            .any(|known| known["identity"] == *psk.identity)
        {
            continue;
        }
        let libnvme = psk.derivation == Derivation::Libnvme;
        let by = if libnvme {
            " of nvme-cli up to 2.15"
        } else {
            ""
        };
        lines.push(format!("version {}{by}: {}", psk.version, psk.identity));
        values.push(json!({
            "version": psk.version,
            "libnvme": libnvme,
            "identity": psk.identity,
        }));
    }
    output.result(&json!({ "identities": values }), lines.join("\n"))
}

//! Secrets of the target, and their removal from texts.

use crate::cmd::doctor;
use aho_corasick::{AhoCorasick, MatchKind};
use anyhow::Result;
use config::limits::API_FILE_BYTES_MAX;
use config::schema::Configuration;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The text in place of a secret.
const REMOVED: &str = "[removed]";

/// Beginnings of keys and secrets, which continue with base64 and colons.
const PREFIXES: [&str; 2] = ["NVMeTLSkey-1:", "DHHC-1:"];

/// Shortest part of a line that is a secret by itself: shorter ones are words.
const PART_BYTES_MIN: usize = 16;

/// The secrets of a target.
pub struct Secrets(AhoCorasick);

impl Secrets {
    /// Reads the secrets that these configurations name, and the token of this process. A file that
    /// cannot be read has none to remove: no other part of the bundle contains it.
    ///
    /// # Errors
    /// More secrets than fit into memory.
    pub fn find(configurations: &[&Configuration], file: Option<&Path>) -> Result<Self> {
        let mut found = BTreeSet::new();
        let mut add = |text: &str| {
            let parts = text.lines().flat_map(|line| {
                let line = line.trim();
                let parts = line.split(|c: char| c == ':' || c.is_whitespace());
                std::iter::once(line).chain(parts)
            });
            let parts = parts.filter(|part| part.len() >= PART_BYTES_MIN);
            // The first line of a PEM file is none.
            let parts = parts.filter(|part| !part.starts_with("-----"));
            found.extend(parts.map(str::to_owned));
        };
        let files = configurations
            .iter()
            .flat_map(|it| doctor::secret_files(it, file));
        for path in files {
            if let Ok(text) = config::files::read_regular(&path, API_FILE_BYTES_MAX) {
                add(&text);
            }
        }
        if let Ok(Some(token)) = control::client::token() {
            let header = token.header();
            add(header
                .to_str()
                .unwrap_or_default()
                .trim_start_matches("Bearer "));
        }
        let mut known = AhoCorasick::builder();
        known.match_kind(MatchKind::LeftmostLongest);
        Ok(Self(known.build(&found)?))
    }

    /// Returns a text without secrets.
    pub fn removed_from(&self, text: &str) -> String {
        let removed = vec![REMOVED; self.0.patterns_len()];
        let mut text = self.0.replace_all(text, &removed);
        for prefix in PREFIXES {
            text = without(&text, prefix);
        }
        text
    }
}

/// Returns a text without the keys that begin with `prefix`.
fn without(text: &str, prefix: &str) -> String {
    let mut parts = text.split(prefix);
    let mut cleaned = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || "+/=:".contains(c);
        cleaned += REMOVED;
        cleaned += part.trim_start_matches(is_of_key);
    }
    cleaned
}

/// Removes the arguments of programs that print keys.
pub fn remove_commands(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_commands),
        Value::Object(entries) => {
            for (key, value) in entries {
                match (key.as_str(), value) {
                    ("key_command", Value::Array(words)) => words.truncate(1),
                    (_, value) => remove_commands(value),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_removed_wherever_they_are() {
        let folder = block::Folder::new();
        let path = folder.path().join("disk.key");
        let secret = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IQ==";
        std::fs::write(&path, format!("{secret}\n")).expect("a file");
        let configuration = Configuration {
            tls_key: Some(path),
            ..Configuration::default()
        };
        let secrets = Secrets::find(&[&configuration], None).expect("few");
        let text = format!("a {secret}: b \"NVMeTLSkey-1:01:abc+/=:\" DHHC-1:00:xyz: end");
        let expected = "a [removed]: b \"[removed]\" [removed] end";
        assert_eq!(secrets.removed_from(&text), expected);
    }

    #[test]
    fn arguments_of_key_commands_are_removed() {
        let mut value =
            json!([{ "crypt": { "key_command": ["/bin/kms", "pass"], "create": true } }]);
        remove_commands(&mut value);
        assert_eq!(
            value,
            json!([{ "crypt": { "key_command": ["/bin/kms"], "create": true } }])
        );
    }
}

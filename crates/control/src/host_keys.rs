//! Keys of hosts that the HTTP interface added. They are no part of the configuration, which anyone
//! who may read it sees; the state file keeps them.

use crate::limits::HOST_KEYS_MAX;
use config::ApplyError;
use config::schema::Configuration;
use secure::chap::Secret;
use secure::{HostKeys, KeyError, TlsKey};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroize as _;

/// Keys that were added, by the NQN of their host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedKeys(pub BTreeMap<String, KnownKeys>);

/// Keys of a host, and since when they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownKeys {
    /// The keys.
    pub keys: HostKeys,
    /// The time, in milliseconds since 1970.
    pub since_unix_ms: u64,
}

/// Returns the folder of the files with keys of hosts: the one given, or that of the configuration file.
#[must_use]
pub fn folder(configuration: &Configuration, file: Option<&Path>) -> PathBuf {
    let beside = file.and_then(Path::parent).map(Path::to_owned);
    let folder = configuration.keys.clone().or(beside);
    // A name without a folder has an empty one.
    folder
        .filter(|it| !it.as_os_str().is_empty())
        .unwrap_or_else(|| ".".into())
}

/// Reads the keys of a host from an object with `tls_keys`, `chap_secrets` and
/// `chap_controller_secret`.
///
/// # Errors
/// What is wrong, and the remedy; never a text of the object.
pub(crate) fn parse(object: &Value) -> Result<HostKeys, ApplyError> {
    const WHAT_TO_DO: &str = "send {\"tls_keys\": [\"NVMeTLSkey-1:…\"], \"chap_secrets\": \
                              [\"DHHC-1:…\"], \"chap_controller_secret\": \"DHHC-1:…\"}, of which \
                              each may be left out";
    let wrong = |what: &str| ApplyError::invalid(format!("keys of a host: {what}"), WHAT_TO_DO);
    let entries = object
        .as_object()
        .ok_or_else(|| wrong("this is no object"))?;
    let known = ["tls_keys", "chap_secrets", "chap_controller_secret"];
    if entries.keys().any(|key| !known.contains(&key.as_str())) {
        return Err(wrong("there is an unknown key"));
    }
    let keys = HostKeys {
        tls: list(entries, "tls_keys", TlsKey::parse).map_err(|why| wrong(&why))?,
        chap: list(entries, "chap_secrets", Secret::parse).map_err(|why| wrong(&why))?,
        controller: match entries.get("chap_controller_secret") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => {
                let secret = Secret::parse(text);
                Some(secret.map_err(|why| wrong(&format!("chap_controller_secret: {why}")))?)
            }
            Some(_) => return Err(wrong("chap_controller_secret is no text")),
        },
    };
    if keys == HostKeys::default() {
        return Err(wrong("there is none"));
    }
    Ok(keys)
}

fn list<T>(
    entries: &Map<String, Value>,
    key: &str,
    parse: impl Fn(&str) -> Result<T, KeyError>,
) -> Result<Vec<T>, String> {
    let items = match entries.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(format!("{key} is no list")),
    };
    if items.len() > HOST_KEYS_MAX {
        return Err(format!("{key} has more than {HOST_KEYS_MAX}"));
    }
    let items = items.iter().enumerate().map(|(index, item)| {
        let text = item
            .as_str()
            .ok_or_else(|| format!("{key}[{index}] is no text"))?;
        parse(text).map_err(|why| format!("{key}[{index}]: {why}"))
    });
    items.collect()
}

impl Serialize for KnownKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let HostKeys {
            tls,
            chap,
            controller,
        } = &self.keys;
        let mut value = json!({
            "tls_keys": tls.iter().map(|key| key.to_text().to_string()).collect::<Vec<_>>(),
            "chap_secrets": chap.iter().map(|it| it.to_text().to_string()).collect::<Vec<_>>(),
            "chap_controller_secret": controller.as_ref().map(|it| it.to_text().to_string()),
            "since_unix_ms": self.since_unix_ms,
        });
        let written = value.serialize(serializer);
        wipe(&mut value);
        written
    }
}

/// Overwrites the texts of a value.
pub(crate) fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(entries) => entries.values_mut().for_each(wipe),
        _ => {}
    }
}

impl<'de> Deserialize<'de> for KnownKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let since = value
            .as_object_mut()
            .and_then(|it| it.remove("since_unix_ms"));
        let keys = parse(&value);
        wipe(&mut value);
        Ok(Self {
            keys: keys.map_err(|error| D::Error::custom(error.message))?,
            since_unix_ms: since.and_then(|since| since.as_u64()).unwrap_or_default(),
        })
    }
}

impl Serialize for AddedKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AddedKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self)
    }
}

/// The time of day in milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "people see since when a key is known"
)]
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    #[test]
    fn keys_are_kept_and_no_error_shows_one() {
        let keys = parse(&json!({ "tls_keys": [KEY] })).expect("a key");
        let known = KnownKeys {
            keys,
            since_unix_ms: 7,
        };
        assert!(!format!("{known:?}").contains("VRLbtn"), "{known:?}");
        let added = AddedKeys([("nqn.a".to_owned(), known)].into());
        let text = serde_json::to_string(&added).expect("it has a form");
        assert_eq!(serde_json::from_str::<AddedKeys>(&text).ok(), Some(added));
        for bad in [
            json!(KEY),
            json!({}),
            json!({ "tls_keys": KEY }),
            json!({ "tls_keys": [KEY, KEY.replace("VR", "VS")] }),
            json!({ "chap_secrets": [KEY] }),
            json!({ "chap_controller_secret": [KEY] }),
            json!({ KEY: 1 }),
            json!({ "tls_keys": vec![KEY; HOST_KEYS_MAX + 1] }),
        ] {
            let error = parse(&bad).expect_err("it is wrong");
            assert!(!error.to_string().contains("LbtnN9"), "{error}");
            let state = json!({ "nqn.a": bad }).to_string();
            let error = serde_json::from_str::<AddedKeys>(&state).expect_err("it is wrong");
            assert!(!error.to_string().contains("LbtnN9"), "{error}");
        }
    }
}

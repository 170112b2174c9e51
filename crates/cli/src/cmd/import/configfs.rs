//! The configuration of the kernel's target in configfs, in the form of `nvmetcli save`.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Bytes of an attribute: a page of the kernel.
const ATTRIBUTE_BYTES_MAX: usize = 4096;

/// Reads the tree below `root`. Keys of hosts are not read: only their presence is told.
///
/// # Errors
/// A folder that cannot be read, or is not nvmet's.
pub fn read(root: &Path) -> Result<Value> {
    ensure!(
        root.join("subsystems").is_dir() && root.join("ports").is_dir(),
        "there is no subsystems/ and ports/; mount configfs and load nvmet (modprobe nvmet), or name \
         the folder of nvmet"
    );
    let each = |folder: &str, read: fn(&Path, &str) -> Result<Value>| -> Result<Value> {
        let folder = root.join(folder);
        let names = names(&folder)?.into_iter();
        names.map(|name| read(&folder.join(&name), &name)).collect()
    };
    Ok(json!({
        "hosts": each("hosts", host)?,
        "ports": each("ports", port)?,
        "subsystems": each("subsystems", subsystem)?,
    }))
}

fn host(folder: &Path, nqn: &str) -> Result<Value> {
    let has = |name: &str| attribute(&folder.join(name)).is_some_and(|it| !it.is_empty());
    Ok(json!({
        "nqn": nqn,
        "dhchap": { "key": has("dhchap_key"), "ctrl_key": has("dhchap_ctrl_key") },
    }))
}

fn port(folder: &Path, id: &str) -> Result<Value> {
    let referrals = names(&folder.join("referrals"))?.into_iter().map(|name| {
        let folder = folder.join("referrals").join(name);
        Ok(json!({ "addr": group(&folder, "addr_")?, "enable": attribute(&folder.join("enable")) }))
    });
    let groups = names(&folder.join("ana_groups"))?.into_iter().map(|name| {
        let group = group(&folder.join("ana_groups").join(&name), "ana_")?;
        Ok(json!({ "ana": group, "grpid": name }))
    });
    Ok(json!({
        "portid": id,
        "addr": group(folder, "addr_")?,
        "subsystems": names(&folder.join("subsystems"))?,
        "referrals": referrals.collect::<Result<Value>>()?,
        "ana_groups": groups.collect::<Result<Value>>()?,
    }))
}

fn subsystem(folder: &Path, nqn: &str) -> Result<Value> {
    let namespaces = names(&folder.join("namespaces"))?.into_iter().map(|nsid| {
        let folder = folder.join("namespaces").join(&nsid);
        Ok(json!({
            "nsid": nsid,
            "device": group(&folder, "device_")?,
            "resv": group(&folder, "resv_")?,
            "enable": attribute(&folder.join("enable")),
        }))
    });
    let passthru = folder.join("passthru");
    let passthru = passthru.is_dir().then(|| {
        json!([{
            "device": { "path": attribute(&passthru.join("device_path")) },
            "enable": attribute(&passthru.join("enable")),
        }])
    });
    Ok(json!({
        "nqn": nqn,
        "attr": group(folder, "attr_")?,
        "allowed_hosts": names(&folder.join("allowed_hosts"))?,
        "namespaces": namespaces.collect::<Result<Value>>()?,
        "passthru": passthru,
    }))
}

/// Returns the names in a folder, in order; none if it does not exist.
fn names(folder: &Path) -> Result<Vec<String>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let cannot = || format!("cannot read {}", folder.display());
    let entries = fs::read_dir(folder).with_context(cannot)?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(cannot)?;
    names.sort();
    Ok(names)
}

/// Returns the attributes of a folder that begin with `prefix`.
fn group(folder: &Path, prefix: &str) -> Result<Value> {
    let mut found = Map::new();
    for name in names(folder)? {
        if let Some(key) = name.strip_prefix(prefix)
            && let Some(value) = attribute(&folder.join(&name))
        {
            found.insert(key.to_owned(), value.into());
        }
    }
    Ok(found.into())
}

/// Returns an attribute; `None` if it cannot be read.
fn attribute(path: &Path) -> Option<String> {
    let text = config::files::read_regular(path, ATTRIBUTE_BYTES_MAX).ok()?;
    Some(text.trim().to_owned())
}

//! Files of keys, secrets and tokens that the configuration names.

use super::finding::Finding;
use config::limits::API_FILE_BYTES_MAX;
use config::schema::Configuration;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use transport::key_file::{self, KeyFileError, KeyFileFault};

const CHECK: &str = "key file";

/// Bytes of a file with another secret.
const BYTES_MAX: usize = API_FILE_BYTES_MAX;

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// TLS keys.
    Tls,
    /// Secrets of DH-HMAC-CHAP.
    Chap,
    /// Another secret.
    Other,
}

/// Returns the files with secrets of a configuration, which was read from `file`.
pub fn files(configuration: &Configuration, file: Option<&Path>) -> Vec<(PathBuf, Content)> {
    let it = configuration;
    let given = [
        (&it.tls_key, Content::Tls),
        (&it.chap_secret, Content::Chap),
        (&it.chap_controller_secret, Content::Chap),
        (&it.api_files.api_key, Content::Other),
        (&it.api_files.api_tokens, Content::Other),
    ];
    let given = given.into_iter();
    let given = given.filter_map(|(path, content)| Some((path.clone()?, content)));
    let folder = control::host_keys::folder(it, file);
    let hosts = it.hosts.iter().filter(|_| knows_folder(it, file));
    let of_hosts = hosts.flat_map(|host| host.files());
    let of_hosts = of_hosts.map(|(key, name)| {
        let content = if key == "tls_keys" {
            Content::Tls
        } else {
            Content::Chap
        };
        (folder.join(name), content)
    });
    let crypt = it
        .devices
        .values()
        .filter_map(|device| device.crypt.as_ref()?.key_file.clone());
    let crypt = crypt.map(|path| (path, Content::Other));
    given.chain(of_hosts).chain(crypt).collect()
}

/// Returns true if the folder with the keys of hosts is known.
fn knows_folder(configuration: &Configuration, file: Option<&Path>) -> bool {
    configuration.keys.is_some() || file.is_some()
}

/// Checks the files with secrets.
pub fn check(configuration: &Configuration, file: Option<&Path>) -> Vec<Finding> {
    let files = files(configuration, file).into_iter();
    let mut found: Vec<_> = files
        .map(|(path, content)| of_file(&path, content))
        .collect();
    if !configuration.hosts.is_empty() && !knows_folder(configuration, file) {
        let why = "keys of hosts are beside the configuration file; name it with --config";
        found.push(Finding::unknown(CHECK, why));
    }
    found
}

fn of_file(path: &Path, content: Content) -> Finding {
    let shown = path.display();
    let (read, command) = match content {
        Content::Tls => (key_file::tls_keys(path).map(drop), "switchyard key tls new"),
        Content::Chap => (
            key_file::chap_secrets(path).map(drop),
            "switchyard key chap new",
        ),
        Content::Other => {
            let read = key_file::read_private(path, BYTES_MAX).map(drop);
            let path = path.to_owned();
            (read.map_err(|why| KeyFileError { path, why }), "")
        }
    };
    let Err(error) = read else {
        return Finding::ok(CHECK, format!("{shown}: only its owner may access it"));
    };
    let create = match command {
        "" => format!("create {shown} with mode 0600"),
        command => format!("{command} --output {shown}"),
    };
    let text = error.to_string();
    match &error.why {
        KeyFileFault::Mode { mode, .. } => Finding::fail(
            CHECK,
            format!("{shown}: mode {mode:04o} lets other users access it"),
            format!("chmod 600 {shown}"),
        ),
        KeyFileFault::Io(error) if error.kind() == ErrorKind::PermissionDenied => {
            Finding::unknown(CHECK, format!("{text} (run as root)"))
        }
        KeyFileFault::Io(_) if path.is_relative() => {
            Finding::unknown(CHECK, format!("{text} (relative to the target's folder)"))
        }
        KeyFileFault::Io(error) if error.kind() == ErrorKind::NotFound => {
            Finding::fail(CHECK, text, create)
        }
        _ => Finding::fail(
            CHECK,
            text,
            format!("correct the file, or remove it and: {create}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_of_keys_are_private_and_contain_keys() {
        let folder = block::Folder::new();
        let path = folder.path().join("hosts.key");
        let configuration = Configuration {
            tls_key: Some(path.clone()),
            ..Configuration::default()
        };
        let found = || check(&configuration, None).remove(0);
        assert!(
            found()
                .remedy
                .is_some_and(|it| it.starts_with("switchyard key tls new --output /"))
        );
        fs::write(&path, "no key").expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        assert_eq!(
            found().remedy,
            Some(format!("chmod 600 {}", path.display()))
        );
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
        assert_eq!(found().status, Status::Fail);
        let key = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
        fs::write(&path, key).expect("a file");
        assert_eq!(found().status, Status::Ok, "{:?}", found());
    }
}

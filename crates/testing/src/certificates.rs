//! Certificates of a test authority, created with the command `openssl`.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `openssl req` and `openssl ca`, independent of the machine's configuration files.
const CONFIGURATION: &str = "
[req]
distinguished_name = name
[name]
[ca]
default_ca = authority
[authority]
database = index.txt
crlnumber = number
default_md = sha256
default_crl_days = 30
";

/// Directories of an authority: `authority`, and one for each certificate, with the file names that
/// NBD servers and clients expect.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Creates an authority in this directory.
    ///
    /// # Panics
    /// If `openssl` fails.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        let authority = Self {
            folder: folder.to_owned(),
        };
        let own = authority.path("authority");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("openssl.cnf"), CONFIGURATION).unwrap();
        std::fs::write(own.join("index.txt"), "").unwrap();
        std::fs::write(own.join("number"), "01\n").unwrap();
        authority.request(
            ("ca-key.pem", "ca-cert.pem"),
            &["-subj", "/CN=authority"],
            &[
                "basicConstraints=critical,CA:TRUE",
                "keyUsage=critical,keyCertSign,cRLSign",
            ],
        );
        authority
    }

    /// Returns the path of the directory `name`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(self.path("authority"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }

    /// Creates a key and its certificate.
    fn request(&self, (key, certificate): (&str, &str), more: &[&str], extensions: &[&str]) {
        let mut arguments = vec![
            "req",
            "-x509",
            "-config",
            "openssl.cnf",
            "-nodes",
            "-days",
            "30",
        ];
        arguments.extend(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        arguments.extend(["-keyout", key, "-out", certificate]);
        arguments.extend(more);
        arguments.extend(
            extensions
                .iter()
                .flat_map(|extension| ["-addext", extension]),
        );
        self.openssl(&arguments);
    }

    /// Creates the directory `name` with a certificate for `kind`, `server` or `client`, and the
    /// certificate of this authority. Returns its path.
    ///
    /// # Panics
    /// If `openssl` fails.
    pub fn issue(&self, name: &str, kind: &str) -> PathBuf {
        let to = self.path(name);
        std::fs::create_dir_all(&to).unwrap();
        let file = |what: &str| to.join(format!("{kind}-{what}.pem"));
        let (key, certificate) = (file("key"), file("cert"));
        self.request(
            (key.to_str().unwrap(), certificate.to_str().unwrap()),
            &[
                "-subj",
                "/CN=localhost",
                "-CA",
                "ca-cert.pem",
                "-CAkey",
                "ca-key.pem",
            ],
            &[
                "basicConstraints=critical,CA:FALSE",
                "keyUsage=critical,digitalSignature",
                &format!("extendedKeyUsage={kind}Auth"),
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
            ],
        );
        let own = self.path("authority").join("ca-cert.pem");
        std::fs::copy(own, to.join("ca-cert.pem")).unwrap();
        to
    }

    /// Revokes the certificate in the file `revoked`, and writes the revocation list to the
    /// directory `name`.
    ///
    /// # Panics
    /// If `openssl` fails.
    pub fn revoke(&self, revoked: &Path, name: &str) {
        let ca = ["ca", "-config", "openssl.cnf", "-cert", "ca-cert.pem"];
        let ca = [&ca[..], &["-keyfile", "ca-key.pem"]].concat();
        let list = self.path(name).join("ca-crl.pem");
        self.openssl(&[&ca[..], &["-revoke", revoked.to_str().unwrap()]].concat());
        self.openssl(&[&ca[..], &["-gencrl", "-out", list.to_str().unwrap()]].concat());
    }
}

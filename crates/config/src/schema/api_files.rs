//! The files of an HTTP interface on a TCP port.

use super::ApiAddress;
use super::declare::of_empty;
use crate::spot::Spot;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

crate::schema! {
    /// The files of an HTTP interface on a TCP port. SIGHUP reads them again; the names are fixed while
    /// running.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ApiFiles {
        /// PEM file with the certificate chain. SIGHUP reads it again; its name is fixed while running.
        pub api_certificate: Option<PathBuf> = optional("required for https"),
        /// PEM file with the certificate's private key, mode 0600. As `api_certificate`.
        pub api_key: Option<PathBuf> = optional("required for https"),
        /// File with tokens, mode 0600: in each line a role, `read` or `change`, and the token's SHA-256
        /// in hexadecimal digits. As `api_certificate`.
        pub api_tokens: Option<PathBuf> = optional("only the variable's token, role `change`"),
    }
}

impl Default for ApiFiles {
    fn default() -> Self {
        of_empty()
    }
}

impl ApiFiles {
    /// Returns the files.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        let all = [&self.api_certificate, &self.api_key, &self.api_tokens];
        all.into_iter().flatten().map(PathBuf::as_path)
    }

    /// Reports files that do not belong to an interface at `address`, and those that it lacks.
    pub fn check(&self, address: Option<&ApiAddress>, root: &Spot<'_>) {
        let is_https = matches!(address, Some(ApiAddress::Https { .. }));
        for (key, file) in [
            ("api_certificate", &self.api_certificate),
            ("api_key", &self.api_key),
        ] {
            let place = root.key(key);
            match (is_https, file) {
                (true, None) => place.report(
                    "is missing, and the interface has an https address",
                    format!("write {key} = \"FILE\" with the name of a PEM file"),
                ),
                (false, Some(_)) => place.report(
                    "has no interface with TLS",
                    "write api = \"https://ADDRESS:PORT\", or omit the key",
                ),
                _ => {}
            }
        }
        let is_tcp = is_https || matches!(address, Some(ApiAddress::Loopback(_)));
        if self.api_tokens.is_some() && !is_tcp {
            root.key("api_tokens").report(
                "has no interface on a port",
                "write api = \"127.0.0.1:4421\" or \"https://ADDRESS:PORT\", or omit the key: the \
                 mode of a Unix socket says who may use it",
            );
        }
        if let Some(ApiAddress::Https { host, port }) = address
            && host.parse::<IpAddr>().is_err()
        {
            root.key("api").report(
                format!("{host:?} is the name of a machine"),
                format!("write the IP address to listen at, like \"https://0.0.0.0:{port}\""),
            );
        }
    }
}

//! Hosts: the keys that prove their names.

use std::collections::BTreeSet;

use super::keyword;

crate::schema! {
    /// The keys that prove the name of a host.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Host {
        /// NQN of the host.
        pub nqn: String = required("write its name, like nqn = \"nqn.2026-11.com.example:db\""),
        /// Names of files with TLS keys, in the folder `keys`. All keys are valid at the same time.
        pub tls_keys: BTreeSet<String> = list("none"),
        /// Names of files with secrets of DH-HMAC-CHAP that prove the host, in the folder `keys`. All
        /// secrets are valid at the same time.
        pub chap_secrets: BTreeSet<String> = list("none"),
        /// Name of the file with the secret that proves the controller to the host.
        pub chap_controller_secret: Option<String> = optional("the host cannot request a proof"),
        /// Connections of the host with TLS.
        pub tls: HostTls = or(HostTls::Allowed),
    }
}

keyword! {
    /// Use of TLS by a host.
    pub enum HostTls {
        /// Its TLS keys are not valid.
        Off = "off",
        /// With TLS or without.
        Allowed = "allowed",
        /// Only with TLS.
        Required = "required",
    }
}

keyword! {
    /// The proof of their names that hosts have to give.
    pub enum Authentication {
        /// None: the name is the host's claim.
        None = "none",
        /// DH-HMAC-CHAP.
        Chap = "chap",
        /// TLS with a key of the host.
        Tls = "tls",
        /// Both.
        ChapAndTls = "chap+tls",
    }
}

impl Host {
    /// Returns the key and the name of each file.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let tls = self.tls_keys.iter().map(|file| ("tls_keys", file));
        let chap = self.chap_secrets.iter().map(|file| ("chap_secrets", file));
        let controller = self.chap_controller_secret.iter();
        let controller = controller.map(|file| ("chap_controller_secret", file));
        tls.chain(chap).chain(controller)
    }
}

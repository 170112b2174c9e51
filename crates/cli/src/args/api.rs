//! Flags of the HTTP API: of processes that have one, and of commands that use it.

use clap::Args;
use config::schema::{ApiAddress, ApiFiles};
use control::client::Interface;
use std::path::PathBuf;

/// Address of the API of a running target.
#[derive(Args, Clone, Debug)]
pub struct ApiArgs {
    /// Address of the target's HTTP API: unix:/PATH, 127.0.0.1:PORT or https://HOST:PORT
    ///
    /// Over TCP, set SWITCHYARD_API_TOKEN, or SWITCHYARD_API_TOKEN_FILE to the path of a file with the
    /// token.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "unix:/run/switchyard/api.sock"
    )]
    pub api: ApiAddress,
    #[command(flatten)]
    pub authority: ApiAuthorityArgs,
}

/// The authority of an API with TLS.
#[derive(Args, Clone, Debug)]
pub struct ApiAuthorityArgs {
    /// PEM file with the certificate of the authority that signed the API's, or with the API's own;
    /// required with https://
    #[arg(long, value_name = "FILE")]
    pub api_ca: Option<PathBuf>,
}

impl ApiAuthorityArgs {
    /// Returns the interface at this address.
    pub fn interface(&self, address: &ApiAddress) -> Interface {
        Interface {
            address: address.clone(),
            authority: self.api_ca.clone(),
        }
    }
}

impl ApiArgs {
    /// Returns the interface.
    pub fn interface(&self) -> Interface {
        self.authority.interface(&self.api)
    }
}

/// Files of an API on a TCP port.
#[derive(Args, Clone, Debug)]
pub struct ApiFilesArgs {
    /// PEM file with the certificate chain of the API at https://ADDRESS:PORT; SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "api")]
    pub api_certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate, mode 0600; SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "api")]
    pub api_key: Option<PathBuf>,
    /// File with tokens, mode 0600: in each line "read HASH" or "change HASH"; SIGHUP reads it again
    ///
    /// HASH is the output of: printf %s "$TOKEN" | sha256sum
    #[arg(long, value_name = "FILE", requires = "api")]
    pub api_tokens: Option<PathBuf>,
}

impl ApiFilesArgs {
    /// Returns the files.
    pub fn files(&self) -> ApiFiles {
        ApiFiles {
            api_certificate: self.api_certificate.clone(),
            api_key: self.api_key.clone(),
            api_tokens: self.api_tokens.clone(),
        }
    }
}

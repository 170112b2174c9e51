//! What the HTTP interface on a TCP port shows to clients, and what clients show: its certificate, and
//! their tokens.
//!
//! Both are in files that SIGHUP reads again. A connection uses the certificate that is in force when
//! it begins, a request the tokens in force when it comes.

mod certificate;
mod error;
mod token;
mod tokens;

use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::ServerConfig;

use crate::limits::CERTIFICATE_WARNING_S;
use certificate::Certificate;
pub(crate) use certificate::{TLS_VERSIONS, provider};
use config::limits::API_FILE_BYTES_MAX;
use config::schema::{ApiAddress, ApiFiles};
use transport::key_file::read_private;

pub use error::CredentialsError;
pub use token::{Token, TokenError};
pub(crate) use tokens::{Role, Tokens};

/// The credentials of an interface on a TCP port.
#[derive(Debug)]
pub(crate) struct Credentials {
    files: ApiFiles,
    /// The token of the environment.
    token: Option<Token>,
    is_https: bool,
    current: RwLock<Arc<Current>>,
}

/// The credentials in force.
#[derive(Debug)]
pub(crate) struct Current {
    certificate: Option<Certificate>,
    pub(crate) tokens: Tokens,
}

impl Current {
    /// Returns the parameters of TLS; `None` for an interface without it.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        let certificate = self.certificate.as_ref()?;
        Some(Arc::clone(&certificate.tls))
    }

    /// Returns the end of the certificate's life, in seconds since 1970.
    pub(crate) fn expiry(&self) -> Option<u64> {
        Some(self.certificate.as_ref()?.expiry)
    }
}

impl Credentials {
    /// Reads the files of an interface at `address`; `None` for a Unix socket, of which the mode of its
    /// file says who may use it.
    pub(crate) fn load(
        address: &ApiAddress,
        files: &ApiFiles,
        token: Option<&Token>,
    ) -> Result<Option<Self>, CredentialsError> {
        if matches!(address, ApiAddress::Unix(_)) {
            return Ok(None);
        }
        let is_https = matches!(address, ApiAddress::Https { .. });
        let current = read(files, token, is_https)?;
        Ok(Some(Self {
            files: files.clone(),
            token: token.cloned(),
            is_https,
            current: RwLock::new(Arc::new(current)),
        }))
    }

    /// Returns the credentials in force.
    pub(crate) fn current(&self) -> Arc<Current> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Reads the files again. Those in force stay if one cannot be used; the log says which.
    pub(crate) fn reload(&self) {
        match read(&self.files, self.token.as_ref(), self.is_https) {
            Ok(read) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = Arc::new(read);
                if self.files.iter().next().is_some() {
                    tracing::info!("SIGHUP: certificate and tokens of the HTTP API are in force");
                }
            }
            Err(error) => tracing::error!(
                "SIGHUP: certificate and tokens of the HTTP API stay as they were: {error}"
            ),
        }
    }
}

fn read(
    files: &ApiFiles,
    token: Option<&Token>,
    is_https: bool,
) -> Result<Current, CredentialsError> {
    let certificate = if is_https {
        let certificate = certificate::load(files)?;
        warn_of_expiry(certificate.expiry);
        Some(certificate)
    } else {
        None
    };
    let mut tokens = Tokens::default();
    if let Some(path) = &files.api_tokens {
        let wrong = |why: &dyn Display| CredentialsError::new("api_tokens", path, why);
        let text = read_private(path, API_FILE_BYTES_MAX);
        let text = text.map_err(|error| wrong(&error))?;
        tokens = Tokens::parse(&text).map_err(|why| wrong(&why))?;
    }
    if let Some(token) = token {
        tokens.add(Role::Change, token);
    }
    Ok(Current {
        certificate,
        tokens,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "certificates end at a time of day"
)]
fn warn_of_expiry(expiry: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let left = expiry.saturating_sub(now.map_or(0, |now| now.as_secs()));
    if left == 0 {
        tracing::warn!(
            "the certificate of the HTTP API has expired: clients refuse it; put a new one into the \
             files api_certificate and api_key, and send SIGHUP"
        );
    } else if left < CERTIFICATE_WARNING_S {
        tracing::warn!(
            "the certificate of the HTTP API expires in {} days: put a new one into the files \
             api_certificate and api_key, and send SIGHUP",
            left / 86_400
        );
    }
}

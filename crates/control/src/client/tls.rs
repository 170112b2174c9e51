//! TLS to a server on another machine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::credentials::{TLS_VERSIONS, provider};
use config::files::read_regular;

/// Bytes of a file with authorities: all that systems trust take a quarter of this.
const AUTHORITIES_BYTES_MAX: usize = 1 << 20;

/// Returns what connects to servers whose certificates the file `authority` vouches for; `option` names
/// the file.
///
/// # Errors
/// A file that cannot be read, or without a certificate.
fn connector(authority: &Path, option: &str) -> Result<TlsConnector> {
    let shown = authority.display();
    let text = read_regular(authority, AUTHORITIES_BYTES_MAX);
    let text = text.with_context(|| format!("{option} {shown}"))?;
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let added = authorities.add(certificate.with_context(|| format!("{option} {shown}"))?);
        added.with_context(|| format!("{option} {shown}"))?;
    }
    ensure!(
        !authorities.is_empty(),
        "{option} {shown}: it has no certificate in PEM form"
    );
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(TLS_VERSIONS)?;
    let mut config = builder
        .with_root_certificates(authorities)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects to a port of the machine `host`, whose certificate must name it and be signed by an
/// authority of the file `authority`; `option` names the file.
///
/// # Errors
/// A file without a certificate, a certificate of another authority or machine, or no TLS there.
pub(super) async fn connect(
    (host, port): (&str, u16),
    authority: &Path,
    option: &str,
) -> Result<TlsStream<TcpStream>> {
    let tls = connector(authority, option)?;
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TcpStream::connect((host, port)).await?;
    tls.connect(name, stream).await.with_context(|| {
        format!(
            "no TLS with {host}; its certificate must name {host} and be signed by one of {option}"
        )
    })
}

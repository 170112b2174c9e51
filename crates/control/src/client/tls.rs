//! TLS to an interface of another machine.

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

/// Returns what connects to interfaces whose certificates the file `authority` vouches for.
///
/// # Errors
/// No file, or one without a certificate.
pub(super) fn connector(authority: Option<&Path>) -> Result<TlsConnector> {
    let file = authority.context(
        "https needs the certificate that the interface's own is checked by; name a PEM file with \
         --api-ca",
    )?;
    let shown = file.display();
    let text = read_regular(file, AUTHORITIES_BYTES_MAX);
    let text = text.with_context(|| format!("--api-ca {shown}"))?;
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let added = authorities.add(certificate.with_context(|| format!("--api-ca {shown}"))?);
        added.with_context(|| format!("--api-ca {shown}"))?;
    }
    ensure!(
        !authorities.is_empty(),
        "--api-ca {shown}: it has no certificate in PEM form"
    );
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(TLS_VERSIONS)?;
    let mut config = builder
        .with_root_certificates(authorities)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects to the machine `host`, whose certificate must name it.
///
/// # Errors
/// A certificate of another authority or machine, or no TLS there.
pub(super) async fn connect(
    tls: &TlsConnector,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned())?;
    tls.connect(name, stream).await.with_context(|| {
        format!(
            "no TLS with {host}; its certificate must name {host} and be signed by one of --api-ca"
        )
    })
}

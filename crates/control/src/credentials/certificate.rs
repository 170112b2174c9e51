//! The certificate of the interface, and TLS with it.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;

use super::error::CredentialsError;
use config::files::read_regular;
use config::limits::API_FILE_BYTES_MAX;
use config::schema::ApiFiles;
use transport::key_file::read_private;

/// The versions that server and client speak.
pub(crate) const TLS_VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13];

/// Returns the cryptography of TLS.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A certificate with its key, ready for use.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) tls: Arc<ServerConfig>,
    /// The end of its life, in seconds since 1970.
    pub(super) expiry: u64,
}

/// Reads certificate and key.
pub(super) fn load(files: &ApiFiles) -> Result<Certificate, CredentialsError> {
    let path = |key: &'static str, file: &Option<PathBuf>| {
        let missing = "https needs a certificate and its key as PEM files";
        file.clone()
            .ok_or_else(|| CredentialsError::new(key, Path::new("nothing"), missing))
    };
    let chain_path = path("api_certificate", &files.api_certificate)?;
    let key_path = path("api_key", &files.api_key)?;
    let wrong_chain =
        |why: &dyn Display| CredentialsError::new("api_certificate", &chain_path, why);
    let wrong_key = |why: &dyn Display| CredentialsError::new("api_key", &key_path, why);

    let text = read_regular(&chain_path, API_FILE_BYTES_MAX);
    let text = text.map_err(|error| wrong_chain(&error))?;
    let chain = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| wrong_chain(&error))?;
    let first = chain.first();
    let first = first.ok_or_else(|| wrong_chain(&"it has no certificate in PEM form"))?;
    let expiry = expiry(first).ok_or_else(|| wrong_chain(&"it is no X.509 certificate"))?;

    let text = read_private(&key_path, API_FILE_BYTES_MAX);
    let text = text.map_err(|error| wrong_key(&error))?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let key = key.map_err(|_| wrong_key(&"it has no private key in PEM form"))?;

    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(TLS_VERSIONS);
    let builder = builder.expect("the provider has suites of TLS 1.3");
    let tls = builder.with_no_client_auth().with_single_cert(chain, key);
    // A key of another certificate, for example.
    let mut tls = tls.map_err(|error| wrong_key(&error))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(Certificate {
        tls: Arc::new(tls),
        expiry,
    })
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the end of a certificate's life, in seconds since 1970 `[RFC 5280 §4.1]`.
fn expiry(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if let Some((VERSION, _, rest)) = element(fields) {
        fields = rest;
    }
    // The serial number, the algorithm of the signature, the issuer.
    for _ in 0..3 {
        (_, _, fields) = element(fields)?;
    }
    let (SEQUENCE, validity, _) = element(fields)? else {
        return None;
    };
    let (_, _, not_after) = element(validity)?;
    let (kind, time, _) = element(not_after)?;
    let time = str::from_utf8(time).ok()?;
    match kind {
        UTC_TIME => {
            let century = if time.get(..2)? < "50" { "20" } else { "19" };
            seconds(&format!("{century}{time}"))
        }
        GENERALIZED_TIME => seconds(time),
        _ => None,
    }
}

/// Returns the kind, the content, and what follows the first element of DER.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            let join = |sum: usize, &byte: &u8| (sum << 8) | usize::from(byte);
            (length.iter().fold(0, join), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

/// Returns the time `YYYYMMDDHHMMSSZ` in seconds since 1970; 0 for one before.
fn seconds(time: &str) -> Option<u64> {
    let digits = time.strip_suffix('Z').filter(|digits| digits.len() == 14)?;
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    if !(1..=12).contains(&month) || year == 0 {
        return None;
    }
    // Years begin in March: the day that comes every four years is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.saturating_sub(719_469);
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_from_1970() {
        for (time, expected) in [
            ("19700101000000Z", Some(0)),
            ("20000228235959Z", Some(951_782_399)),
            ("20000229000000Z", Some(951_782_400)),
            ("20240301000000Z", Some(1_709_251_200)),
            ("21000301000000Z", Some(4_107_542_400)),
            ("99991231235959Z", Some(253_402_300_799)),
            ("19600101000000Z", Some(0)),
            ("20241301000000Z", None),
            ("20240101000000", None),
            ("2024010100000éZ", None),
            ("", None),
        ] {
            assert_eq!(seconds(time), expected, "{time}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for bad in [
            &[][..],
            &[0x30],
            &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0x30, 0x02, 0x30, 0x00],
            &[0x30, 0x80, 0x00],
        ] {
            assert_eq!(expiry(bad), None, "{bad:?}");
        }
    }
}

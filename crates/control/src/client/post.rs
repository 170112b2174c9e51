//! Requests to a collector of OpenTelemetry, by OTLP over HTTP.

use super::{answered_over, collected, runtime, tls};
use anyhow::{Context as _, Result};
use base::printable;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri, header};
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::TcpStream;

/// Port of a collector for OTLP over HTTP, unless its address names another. `[OTLP 1.5 §OTLP/HTTP]`
const PORT: u16 = 4318;

/// Time that a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    host: String,
    port: u16,
    /// Path below which it serves, without a slash at its end.
    path: String,
    is_https: bool,
    /// PEM file with the authorities that its certificate is checked by; used with https alone.
    pub authority: PathBuf,
}

impl FromStr for Collector {
    type Err = String;

    /// Reads a URL, like http://127.0.0.1:4318.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "write http://HOST:PORT or https://HOST:PORT".to_owned();
        let uri: Uri = text.parse().map_err(|_| form())?;
        let (scheme, host) = (uri.scheme_str(), uri.host());
        let (Some(scheme @ ("http" | "https")), Some(host)) = (scheme, host) else {
            return Err(form());
        };
        if host.is_empty() || uri.query().is_some() {
            return Err(form());
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(PORT),
            path: uri.path().trim_end_matches('/').to_owned(),
            is_https: scheme == "https",
            authority: PathBuf::new(),
        })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host_and_port(), self.path)
    }
}

impl Collector {
    fn host_and_port(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Sends an ExportTraceServiceRequest as JSON. Returns the answer: an ExportTraceServiceResponse,
    /// or null for an empty one.
    ///
    /// # Errors
    /// No collector is there, it does not answer within 10 s, or it refuses.
    pub fn export_traces(&self, request: &Value) -> Result<Value> {
        let export = async {
            tokio::time::timeout(TIMEOUT, self.exchange(request))
                .await
                .with_context(|| format!("no response within {} s", TIMEOUT.as_secs()))?
        };
        let exported = runtime()?.block_on(export);
        exported.with_context(|| format!("cannot export to {self}"))
    }

    async fn exchange(&self, request: &Value) -> Result<Value> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/v1/traces", self.path))
            .header(header::HOST, self.host_and_port())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(request.to_string())))
            .context("invalid HTTP request")?;
        let place = (self.host.as_str(), self.port);
        let response = if self.is_https {
            let stream = tls::connect(place, &self.authority, "--otlp-ca").await?;
            answered_over(stream, request).await?
        } else {
            answered_over(TcpStream::connect(place).await?, request).await?
        };
        let (head, body) = collected(response).await?;
        if head.status != StatusCode::OK {
            let text = String::from_utf8_lossy(&body);
            anyhow::bail!("HTTP status {}: {}", head.status, printable(text.trim()));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).context("its answer is not JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_url() {
        let shown = |text: &str| text.parse::<Collector>().map(|it| it.to_string());
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(shown("http://127.0.0.1:4318"), ok("http://127.0.0.1:4318"));
        assert_eq!(
            shown("https://otel.example/a/"),
            ok("https://otel.example:4318/a")
        );
        assert_eq!(shown("http://[::1]:1"), ok("http://[::1]:1"));
        for bad in [
            "",
            "127.0.0.1:4318",
            "ftp://a",
            "http://",
            "http://a?b=c",
            "a b",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}

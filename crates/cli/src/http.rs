//! A request to the HTTP interface of a running target.

use anyhow::{Context as _, Result, bail, ensure};
use control::model::ApiAddress;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longer than a target takes for any change, short of a person's patience.
const TIMEOUT: Duration = Duration::from_secs(30);

/// More than the interface ever answers.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Asks the interface at `api`, and returns its answer as JSON: null where it says nothing.
///
/// # Errors
/// An interface that cannot be reached, or what it says is wrong with the request.
pub fn ask(
    api: &ApiAddress,
    method: Method,
    path: &str,
    body: Option<&serde_json::Value>,
) -> Result<serde_json::Value> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let host = match api {
        ApiAddress::Loopback(address) => address.to_string(),
        ApiAddress::Unix(_) => "localhost".to_owned(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(
            body.map(ToString::to_string).unwrap_or_default(),
        )))
        .context("the request has no form in HTTP")?;
    let answered = runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, exchange(api, request))
            .await
            .with_context(|| format!("no answer within {} s", TIMEOUT.as_secs()))?
    });
    let (status, text) = answered.with_context(|| {
        format!("the interface at {api} (name the one of serve's --api with --api ADDRESS)")
    })?;
    if status == StatusCode::NO_CONTENT {
        return Ok(serde_json::Value::Null);
    }
    let answer: serde_json::Value = serde_json::from_slice(&text)
        .with_context(|| format!("what answers at {api} is no switchyard"))?;
    if status.is_success() {
        return Ok(answer);
    }
    let (Some(error), Some(remedy)) = (answer["error"].as_str(), answer["what_to_do"].as_str())
    else {
        bail!("what answers at {api} is no switchyard: HTTP status {status}");
    };
    let problems = answer["problems"].as_array().into_iter().flatten();
    let problems: Vec<String> = problems
        .map(|problem| {
            let part = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}; {}", part("key"), part("error"), part("what_to_do"))
        })
        .collect();
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    bail!("{error}; {remedy}")
}

/// A name as a part of a path: whatever is no letter or digit travels percent-encoded.
#[must_use]
pub fn escaped(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

async fn exchange(api: &ApiAddress, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
    match api {
        ApiAddress::Loopback(address) => {
            exchange_over(TcpStream::connect(address).await?, request).await
        }
        ApiAddress::Unix(path) => exchange_over(UnixStream::connect(path).await?, request).await,
    }
}

async fn exchange_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the connection; what goes wrong there, the request learns.
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!(error))?;
    Ok((status, body.to_bytes()))
}

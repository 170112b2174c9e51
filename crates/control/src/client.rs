//! A client of the HTTP interface of a running target.

mod calibration;
mod lines;
mod post;
mod tls;
mod token;

pub use calibration::calibrate;
pub use hyper::Method;
pub use lines::Lines;
pub use post::Collector;
pub use token::token;

use anyhow::{Context as _, Result, bail, ensure};
use base::printable;
use config::schema::ApiAddress;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use hyper::http::response::Parts;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

/// Time that an answer may take to a question that changes nothing: it waits for no core.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(90);

/// Time that a change may take: longer than a target tries to bring its cores to a pause (see
/// `change_timeout` of its limits), so that its own verdict is what the user sees.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(600);

/// More than the interface ever answers.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Number of times that a change is decided anew because another client was faster.
const CHANGES_MAX: u32 = 16;

/// The interface of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its address.
    pub address: ApiAddress,
    /// PEM file with the certificates of authorities, or of itself, by which its own is checked; required
    /// for one with TLS.
    pub authority: Option<PathBuf>,
}

impl From<ApiAddress> for Interface {
    fn from(address: ApiAddress) -> Self {
        Self {
            address,
            authority: None,
        }
    }
}

/// Asks the interface `api`, and returns its answer as JSON: null where it says nothing.
///
/// # Errors
/// An interface that cannot be reached, or what it says is wrong with the request.
pub fn ask(api: &Interface, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
    send(api, method, path, body, None)?.value()
}

/// Returns the answer of the interface `api` to a query, as text.
///
/// # Errors
/// As [`ask`].
pub fn text(api: &Interface, path: &str) -> Result<String> {
    let (head, body) = exchanged(api, Method::GET, path, None, None)?;
    ensure!(
        head.status.is_success(),
        "{path}: HTTP status {}",
        head.status
    );
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Reads an answer of the interface as the value that it stands for.
///
/// # Errors
/// An answer of another form.
pub fn read<'a, T: Deserialize<'a>>(answer: &'a Value) -> Result<T> {
    T::deserialize(answer).context("cannot parse the target's response")
}

/// Replaces what is at `path` by what `decide` makes of it; where another client changes it
/// meanwhile, it is decided anew.
///
/// # Errors
/// As [`ask`]; what `decide` says; and where others never cease to change it.
pub fn change(
    api: &Interface,
    path: &str,
    mut decide: impl FnMut(&Value) -> Result<Value>,
) -> Result<Value> {
    for _ in 0..CHANGES_MAX {
        let seen = send(api, Method::GET, path, None, None)?;
        let tag = seen.tag.clone();
        let body = decide(&seen.value()?)?;
        let answer = send(api, Method::PUT, path, Some(&body), tag.as_ref())?;
        if answer.status != StatusCode::PRECONDITION_FAILED {
            return answer.value();
        }
    }
    bail!(
        "{CHANGES_MAX} attempts failed because other clients changed it at the same time; try \
        again"
    )
}

/// An answer.
struct Answer {
    status: StatusCode,
    tag: Option<HeaderValue>,
    body: Value,
    from: ApiAddress,
}

/// Sends a request and returns its answer; with `if_match` one that is for what still has this tag.
fn send(
    api: &Interface,
    method: Method,
    path: &str,
    body: Option<&Value>,
    if_match: Option<&HeaderValue>,
) -> Result<Answer> {
    let (head, text) = exchanged(api, method, path, body, if_match)?;
    Answer::new(&head, &text, &api.address)
}

impl Answer {
    fn new(head: &Parts, text: &[u8], address: &ApiAddress) -> Result<Self> {
        let body = if head.status == StatusCode::NO_CONTENT {
            Value::Null
        } else {
            serde_json::from_slice(text)
                .with_context(|| format!("the server at {address} is not switchyard"))?
        };
        Ok(Self {
            status: head.status,
            tag: head.headers.get(header::ETAG).cloned(),
            body,
            from: address.clone(),
        })
    }
}

/// Sends a request and returns the response.
fn exchanged(
    api: &Interface,
    method: Method,
    path: &str,
    body: Option<&Value>,
    if_match: Option<&HeaderValue>,
) -> Result<(Parts, Bytes)> {
    let request = request(api, method, path, body, if_match)?;
    let (timeout, hint) = match *request.method() {
        Method::GET => (QUESTION_TIMEOUT, ""),
        _ => (
            CHANGE_TIMEOUT,
            "; the change may still take effect, see `switchyard config show`",
        ),
    };
    let answered = runtime()?.block_on(async {
        tokio::time::timeout(timeout, exchange(api, request))
            .await
            .with_context(|| format!("no response within {} s{hint}", timeout.as_secs()))?
    });
    answered.with_context(|| unreachable(&api.address))
}

fn unreachable(address: &ApiAddress) -> String {
    format!("cannot use the API at {address} (set the address with --api)")
}

fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the HTTP client")
}

/// Returns a request to the interface, with the token if it is at a TCP port.
fn request(
    api: &Interface,
    method: Method,
    path: &str,
    body: Option<&Value>,
    if_match: Option<&HeaderValue>,
) -> Result<Request<Full<Bytes>>> {
    let address = &api.address;
    let authority = address.authority();
    let is_tcp = authority.is_some();
    let host = authority.unwrap_or_else(|| "localhost".to_owned());
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(tag) = if_match {
        request = request.header(header::IF_MATCH, tag);
    }
    if let (true, Some(token)) = (is_tcp, token()?) {
        request = request.header(header::AUTHORIZATION, token.header());
    }
    let body = body.map(ToString::to_string).unwrap_or_default();
    request
        .body(Full::new(Bytes::from(body)))
        .context("invalid HTTP request")
}

impl Answer {
    /// Returns the value, if it is no error.
    fn value(self) -> Result<Value> {
        let Self {
            status, body, from, ..
        } = self;
        if status.is_success() {
            return Ok(body);
        }
        let (Some(error), Some(remedy)) = (body["error"].as_str(), body["what_to_do"].as_str())
        else {
            bail!("the server at {from} is not switchyard: HTTP status {status}");
        };
        let problems = body["problems"].as_array().into_iter().flatten();
        let problems: Vec<String> = problems
            .map(|problem| {
                let part = |key: &str| printable(problem[key].as_str().unwrap_or_default());
                format!("{}: {}; {}", part("key"), part("error"), part("what_to_do"))
            })
            .collect();
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        bail!("{}; {}", printable(error), printable(remedy))
    }
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

async fn exchange(api: &Interface, request: Request<Full<Bytes>>) -> Result<(Parts, Bytes)> {
    collected(answered(api, request).await?).await
}

/// Sends the request; the body of its answer is still to be read.
async fn answered(api: &Interface, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
    match &api.address {
        ApiAddress::Loopback(address) => {
            answered_over(TcpStream::connect(address).await?, request).await
        }
        ApiAddress::Https { host, port } => {
            let authority = api.authority.as_deref().context(
                "https needs the certificate that the interface's own is checked by; name a PEM \
                 file with --api-ca",
            )?;
            let stream = tls::connect((host, *port), authority, "--api-ca").await?;
            answered_over(stream, request).await
        }
        ApiAddress::Unix(path) => answered_over(UnixStream::connect(path).await?, request).await,
    }
}

async fn answered_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the connection; what goes wrong there, the request learns.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

async fn collected(response: Response<Incoming>) -> Result<(Parts, Bytes)> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!(error))?;
    Ok((head, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::EVENTS_WAIT_MS_MAX;

    /// Thirty seconds once were too few for changes that a target gives sixty: it made them, and
    /// the command said that it had failed.
    #[test]
    fn a_target_comes_to_its_verdict_before_the_command_does() {
        let limit = target::limits::LIMITS
            .iter()
            .find(|limit| limit.key == "change_timeout_ms");
        let longest = *limit.expect("it is one of them").range.end();
        assert!(CHANGE_TIMEOUT > Duration::from_millis(longest));
        assert!(QUESTION_TIMEOUT > Duration::from_millis(EVENTS_WAIT_MS_MAX));
    }
}

//! Questions to the HTTP interface of a target that this process started.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

/// Address at which targets are asked what they sent.
pub(super) const INTERFACE: &str = "127.0.0.1:0";

/// Longest time that an answer takes.
const PATIENCE: Duration = Duration::from_secs(90);

/// The token of every target that this process starts: as many random bits as hexadecimal digits.
static TOKEN: OnceLock<String> = OnceLock::new();

fn token() -> &'static str {
    TOKEN.get_or_init(|| {
        let mut bytes = [0; 16];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .expect("the kernel has random numbers");
        bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    })
}

/// The variable of a target's environment that gives it the token.
pub(super) fn environment() -> (&'static str, &'static str) {
    ("SWITCHYARD_API_TOKEN", token())
}

/// Returns the answer to a GET.
///
/// # Errors
/// An interface that cannot be reached, or that answers anything but JSON with status 200.
pub(super) fn get(address: SocketAddr, path: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(address).context("the target's interface")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The version of HTTP in which a connection ends with its answer.
    let question = format!(
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\r\n",
        token()
    );
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the target's interface does not speak HTTP")?;
    let status = head.split_whitespace().nth(1);
    ensure!(
        status == Some("200"),
        "the target's interface says: {answer}"
    );
    serde_json::from_str(body).context("the target's answer is no JSON")
}

//! An answer that has no end of its own: lines, as they come.

use super::{ANSWER_BYTES_MAX, Answer, Interface, Method};
use super::{answered, collected, request, runtime, unreachable};
use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait for the caller; the connection waits behind them.
const LINES_MAX: usize = 1024;

/// Longest silence of a server, which writes a line at least every second.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The lines of an answer. A thread reads them; it ends soon after this is dropped.
#[derive(Debug)]
pub struct Lines {
    lines: Receiver<Result<String>>,
}

impl Lines {
    /// Asks the interface for what is at `path`.
    ///
    /// # Errors
    /// The thread cannot be started. What the interface answers is in the lines.
    pub fn open(api: &Interface, path: &str) -> Result<Self> {
        let (sender, lines) = sync_channel(LINES_MAX);
        let (api, path) = (api.clone(), path.to_owned());
        let read = move || {
            if let Err(error) = read(&api, &path, &sender) {
                // Without a receiver there is nobody to tell.
                let _ = sender.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("lines".to_owned());
        thread.spawn(read).context("cannot start a thread")?;
        Ok(Self { lines })
    }

    /// Returns the next line, without its end, or `None` if none comes within `wait`.
    ///
    /// # Errors
    /// The interface refused, cannot be reached, or has ended the answer.
    pub fn next(&self, wait: Duration) -> Result<Option<String>> {
        match self.lines.recv_timeout(wait) {
            Ok(line) => line.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the target has ended"),
        }
    }
}

/// Reads the answer until it ends, or nobody receives its lines.
fn read(api: &Interface, path: &str, lines: &SyncSender<Result<String>>) -> Result<()> {
    let request = request(api, Method::GET, path, None, None)?;
    runtime()?.block_on(async {
        let asked = tokio::time::timeout(SILENCE_MAX, answered(api, request));
        let response = asked.await.context("no response").flatten();
        let response = response.with_context(|| unreachable(&api.address))?;
        if !response.status().is_success() {
            let (head, body) = collected(response).await?;
            Answer::new(&head, &body, &api.address)?.value()?;
            return Ok(());
        }
        let mut body = response.into_body();
        let mut rest = Vec::new();
        while let Some(bytes) = next_bytes(&mut body).await? {
            rest.extend_from_slice(&bytes);
            let whole = rest.iter().rposition(|&byte| byte == b'\n');
            let next = rest.split_off(whole.map_or(0, |end| end + 1));
            let whole = std::mem::replace(&mut rest, next);
            let whole = String::from_utf8_lossy(&whole);
            let mut whole = whole.lines().map(str::to_owned);
            if whole.any(|line| lines.send(Ok(line)).is_err()) {
                return Ok(());
            }
            let is_line = rest.len() <= ANSWER_BYTES_MAX;
            ensure!(is_line, "the server at {} is not switchyard", api.address);
        }
        Ok(())
    })
}

/// Returns the next part of the body; `None` at its end.
async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>> {
    loop {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame());
        let silent = || format!("the target was silent for {} s", SILENCE_MAX.as_secs());
        let Some(frame) = frame.await.with_context(silent)? else {
            return Ok(None);
        };
        let frame = frame.context("the target closed the connection")?;
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
}

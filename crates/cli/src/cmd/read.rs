//! `switchyard read`: from a namespace to a file or stdout.

use crate::args::ReadArgs;
use crate::exit::Outcome;
use crate::output::{Output, human_bytes, written};
use anyhow::{Context as _, Result, ensure};
use host::Namespace;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::time::Instant;

/// Bytes per read: several transfers of the largest size, which the host keeps in flight together.
pub const CHUNK_BYTES: u64 = 8 << 20;

/// The outcome of a copy.
#[derive(Debug, Serialize)]
pub struct Copied {
    /// Bytes copied.
    pub bytes: u64,
    /// Its duration in seconds.
    pub seconds: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

impl Copied {
    /// `bytes` since `started`.
    #[must_use]
    pub fn since(started: Instant, bytes: u64) -> Self {
        let seconds = started.elapsed().as_secs_f64();
        Self {
            bytes,
            seconds,
            bytes_per_second: bytes as f64 / seconds.max(1e-9),
        }
    }
}

impl std::fmt::Display for Copied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = self.bytes_per_second / f64::from(1 << 20);
        write!(
            f,
            "{} in {:.2} s, {mib:.1} MiB/s",
            human_bytes(self.bytes),
            self.seconds
        )
    }
}

/// Copies.
///
/// # Errors
/// A range beyond the end, a device or connection that fails, or a file that cannot be written.
pub fn run(args: &ReadArgs, output: Output) -> Result<Outcome> {
    let namespace = args.namespace.connect()?;
    let (offset, size) = (args.offset.bytes, namespace.size());
    ensure!(
        offset <= size,
        "--offset {}: the namespace has only {size} bytes; choose a smaller offset",
        args.offset
    );
    let length = args.length.map_or(size - offset, |length| length.bytes);
    ensure!(
        length <= size - offset,
        "--length {}: only {} bytes follow offset {offset}; reduce or omit --length",
        length,
        size - offset
    );
    let started = Instant::now();
    match &args.output {
        Some(path) => {
            let cannot = || format!("cannot write to {}; choose another file", path.display());
            let mut file = File::create(path).with_context(cannot)?;
            copy(&namespace, offset, length, output, |bytes| {
                file.write_all(bytes).with_context(cannot)
            })?;
            file.flush().with_context(cannot)?;
        }
        None => {
            let mut stdout = io::stdout().lock();
            copy(&namespace, offset, length, output, |bytes| {
                written(stdout.write_all(bytes))
            })?;
            written(stdout.flush())?;
        }
    }
    let copied = Copied::since(started, length);
    report(&copied, args.output.is_some(), output)
}

/// Prints the outcome: on stdout, or on stderr if the data went to stdout.
fn report(copied: &Copied, stdout_is_free: bool, output: Output) -> Result<Outcome> {
    if stdout_is_free {
        output.result(copied, format_args!("read {copied}"))?;
    } else if output.json {
        output.note(serde_json::to_string(copied)?);
    } else {
        output.note(format_args!("read {copied}"));
    }
    Ok(Outcome::Done)
}

/// Passes `length` bytes from `offset` on to `take`, in pieces; reads whole blocks.
fn copy(
    namespace: &Namespace,
    offset: u64,
    length: u64,
    output: Output,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let block = u64::from(namespace.block_bytes());
    let bar = output.bytes_bar(Some(length));
    let mut buffer = Vec::new();
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let first = at - at % block;
        // Later pieces begin on a block, whatever the offset.
        let last = end.min(first + CHUNK_BYTES);
        let whole = last.next_multiple_of(block) - first;
        buffer.resize(in_memory(whole), 0);
        namespace
            .read(first, &mut buffer)
            .with_context(|| format!("cannot read at byte {at}"))?;
        take(&buffer[in_memory(at - first)..in_memory(last - first)])?;
        bar.inc(last - at);
        at = last;
    }
    bar.finish_and_clear();
    Ok(())
}

/// A length of at most a chunk and two blocks.
pub fn in_memory(length: u64) -> usize {
    usize::try_from(length).expect("a piece is small")
}

//! `switchyard write`: from a file or stdin to a namespace.

use super::read::{CHUNK_BYTES, Copied, in_memory};
use crate::args::WriteArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result, bail, ensure};
use host::Namespace;
use std::fs::File;
use std::io::{self, Read};
use std::time::Instant;

/// Copies.
///
/// # Errors
/// Input that does not fit, a device or connection that fails, or a file that cannot be read.
pub fn run(args: &WriteArgs, output: Output) -> Result<Outcome> {
    let mut total = args.length.map(|length| length.bytes);
    let mut input: Box<dyn Read> = match &args.input {
        Some(path) => {
            let cannot = || format!("cannot read {}; name an existing file", path.display());
            let file = File::open(path).with_context(cannot)?;
            let metadata = file.metadata().with_context(cannot)?;
            ensure!(
                !metadata.is_dir(),
                "{} is a directory; name a file",
                path.display()
            );
            if metadata.is_file() {
                total = Some(total.map_or(metadata.len(), |total| total.min(metadata.len())));
            }
            Box::new(file)
        }
        None => Box::new(io::stdin().lock()),
    };
    if let Some(length) = args.length {
        input = Box::new(input.take(length.bytes));
    }
    let namespace = args.namespace.connect()?;
    let (offset, size) = (args.offset.bytes, namespace.size());
    // Input that is too large is refused before the first write.
    let room = size.checked_sub(offset);
    let Some(room) = room else {
        bail!(
            "--offset {}: the namespace has only {size} bytes; choose a smaller offset",
            args.offset
        );
    };
    // For stdin, the length is an upper bound.
    if let (Some(total), true) = (total, args.input.is_some()) {
        let what_to_do = match room {
            0 => "choose a smaller --offset".to_owned(),
            _ => format!("use --length {room} to write the part that fits"),
        };
        ensure!(
            total <= room,
            "the input has {total} bytes, but only {room} follow offset {offset}; nothing was \
             written; {what_to_do}"
        );
    }
    let started = Instant::now();
    let bar = output.bytes_bar(total);
    let bytes = copy(&namespace, offset, &mut input, &mut |bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    if args.flush {
        namespace
            .flush()
            .context("the data was written, but Flush failed")?;
    }
    let copied = Copied::since(started, bytes);
    output.result(&copied, format_args!("wrote {copied}"))?;
    Ok(Outcome::Done)
}

/// Writes all of `input` from `offset` on. Returns the number of bytes.
fn copy(
    namespace: &Namespace,
    offset: u64,
    input: &mut dyn Read,
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let block = u64::from(namespace.block_bytes());
    let size = namespace.size();
    let mut buffer = vec![0; in_memory(CHUNK_BYTES)];
    let mut at = offset;
    loop {
        // After the first piece every piece begins on a block.
        let room = CHUNK_BYTES - at % block;
        let filled = fill(input, &mut buffer[..in_memory(room)])
            .with_context(|| format!("cannot read the input after {} bytes", at - offset))?;
        if filled == 0 {
            return Ok(at - offset);
        }
        let length = filled as u64;
        ensure!(
            length <= size - at,
            "the input does not fit: {} bytes were written, up to byte {at} of the namespace's \
             {size} bytes; write less, or at a smaller offset",
            at - offset
        );
        write_piece(namespace, at, &buffer[..filled])
            .with_context(|| format!("cannot write at byte {at}"))?;
        at += length;
        progress(length);
    }
}

/// Writes `data` at byte `at`; keeps the rest of partly covered blocks.
fn write_piece(namespace: &Namespace, at: u64, data: &[u8]) -> Result<()> {
    let block = u64::from(namespace.block_bytes());
    let end = at + data.len() as u64;
    if at.is_multiple_of(block) && end.is_multiple_of(block) {
        return Ok(namespace.write(at, data)?);
    }
    let (first, last) = (at - at % block, end.next_multiple_of(block));
    let mut whole = vec![0; in_memory(last - first)];
    // Only the first and the last block can be partly covered.
    if !at.is_multiple_of(block) {
        namespace.read(first, &mut whole[..in_memory(block)])?;
    }
    if !end.is_multiple_of(block) {
        let tail = whole.len() - in_memory(block);
        namespace.read(last - block, &mut whole[tail..])?;
    }
    whole[in_memory(at - first)..in_memory(end - first)].copy_from_slice(data);
    Ok(namespace.write(first, &whole)?)
}

/// Reads until `buffer` is full or the input ends.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

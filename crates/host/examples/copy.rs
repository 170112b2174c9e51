//! Copies a namespace to a file, or a file to a namespace.
//!
//! `cargo run -p switchyard-host --example copy -- read 127.0.0.1:4420 NQN disk.img`
//! `cargo run -p switchyard-host --example copy -- write 127.0.0.1:4420 NQN disk.img`

use host::Host;
use std::fs::File;
use std::io::{Read, Write};

const CHUNK: usize = 4 * 1024 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [direction, address, subsystem, path] = arguments.as_slice() else {
        return Err("usage: copy read|write ADDRESS NQN FILE".into());
    };
    let host = Host::builder().build()?;
    let namespace = host.connect(address, subsystem)?.namespace(1)?;
    let mut chunk = vec![0; CHUNK];
    let mut offset = 0;
    if direction == "read" {
        let mut file = File::create(path)?;
        while offset < namespace.size() {
            let left = usize::try_from(namespace.size() - offset)?;
            let part = &mut chunk[..left.min(CHUNK)];
            namespace.read(offset, part)?;
            file.write_all(part)?;
            offset += part.len() as u64;
        }
    } else {
        let mut file = File::open(path)?;
        loop {
            let mut length = 0;
            while length < CHUNK {
                match file.read(&mut chunk[length..])? {
                    0 => break,
                    count => length += count,
                }
            }
            if length == 0 {
                break;
            }
            // Whole blocks; the last one is padded with zeroes.
            let whole = length.next_multiple_of(namespace.block_bytes() as usize);
            chunk[length..whole].fill(0);
            namespace.write(offset, &chunk[..whole])?;
            offset += whole as u64;
        }
        namespace.flush()?;
    }
    println!("{offset} bytes copied");
    Ok(())
}

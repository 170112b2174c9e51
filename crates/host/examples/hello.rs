//! Connects to a subsystem, writes a block, and reads it back.
//!
//! Start a target first (`switchyard serve`), then:
//! `cargo run -p switchyard-host --example hello -- 127.0.0.1:4420`

use host::Host;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:4420".into());
    let subsystem = arguments
        .next()
        .unwrap_or("nqn.2026-11.io.switchyard:default".into());

    let host = Host::builder().build()?;
    let subsystem = host.connect(&address, &subsystem)?;
    let controller = subsystem.controller()?;
    println!("{} {}", controller.model, controller.firmware);
    for info in subsystem.namespaces() {
        println!("namespace {}: {} bytes", info.nsid, info.geometry.bytes());
    }

    let namespace = subsystem.namespace(1)?;
    let mut block = vec![0; namespace.block_bytes() as usize];
    block[..5].copy_from_slice(b"hello");
    namespace.write(0, &block)?;
    namespace.flush()?;

    let mut back = vec![0; block.len()];
    namespace.read(0, &mut back)?;
    println!("read back: {}", String::from_utf8_lossy(&back[..5]));
    Ok(())
}

//! Many tasks of one tokio runtime on a remote namespace: each writes its own block and reads it
//! back, under a deadline.
//!
//! `cargo run -p switchyard-example-tokio -- 127.0.0.1:4420 [NQN]`

use host::{AsyncNamespace, Host};
use std::error::Error;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:4420".into());
    let subsystem = arguments
        .next()
        .unwrap_or("nqn.2026-11.io.switchyard:default".into());

    // Connecting waits, so it is no work for a thread of the runtime.
    let disk = spawn_blocking(move || {
        let host = Host::builder().build()?;
        host.connect(&address, &subsystem)?.namespace(1)
    })
    .await??
    .asynchronous();

    let mut tasks = JoinSet::new();
    for number in 0..100 {
        tasks.spawn(write_and_read(disk.clone(), number));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    println!("100 tasks found what they wrote");
    Ok(())
}

/// Fails after ten seconds. A request that was given up is still carried out: the host owns its
/// memory until then.
async fn write_and_read(disk: AsyncNamespace, number: u8) -> Result<(), Failure> {
    let offset = u64::from(number) * 4096;
    let limit = Duration::from_secs(10);
    timeout(limit, disk.write(offset, vec![number; 4096])).await??;
    timeout(limit, disk.flush()).await??;
    let data = timeout(limit, disk.read(offset, vec![0; 4096])).await??;
    if data != [number; 4096] {
        return Err("other data than was written".into());
    }
    Ok(())
}

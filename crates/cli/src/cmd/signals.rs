//! Ctrl-C during a measurement: the first ends it early with results, the second at once.

use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// A flag that SIGINT or SIGTERM sets.
///
/// # Errors
/// A thread or signal handler that cannot be created.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    on_signal(move || set.store(true, Ordering::Relaxed))?;
    Ok(flag)
}

/// Calls `act` at the first signal, and ends the process at the next.
fn on_signal(act: impl Fn() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot handle signals")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let watch = |kind| signal(kind).context("cannot handle signals");
        (
            watch(SignalKind::interrupt())?,
            watch(SignalKind::terminate())?,
        )
    };
    let wait = move || {
        runtime.block_on(async {
            for is_first in [true, false] {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if is_first {
                    act();
                }
            }
            std::process::exit(2);
        });
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}

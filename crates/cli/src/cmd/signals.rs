//! Ctrl-C while something is being measured: the first ends it early, the second at once.

use anyhow::{Context as _, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use tokio::signal::unix::{SignalKind, signal};

/// A flag that SIGINT or SIGTERM sets.
///
/// # Errors
/// When the machine refuses a thread, or handlers of signals.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    on_signals(1, move || set.store(true, Ordering::Relaxed))?;
    Ok(flag)
}

/// A receiver that hears of the first `count` signals SIGINT or SIGTERM; the next one ends the
/// process.
///
/// # Errors
/// As [`stop_flag`].
pub fn receiver(count: u32) -> Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::channel();
    // The receiver may be gone: the process ends then.
    on_signals(count, move || {
        let _ = sender.send(());
    })?;
    Ok(receiver)
}

/// Calls `act` at each of the first `count` signals, and ends the process at the next.
fn on_signals(count: u32, act: impl Fn() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot watch for signals")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let watch = |kind| signal(kind).context("cannot watch for signals");
        (
            watch(SignalKind::interrupt())?,
            watch(SignalKind::terminate())?,
        )
    };
    let wait = move || {
        runtime.block_on(async {
            for signal in 0..=count {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if signal < count {
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

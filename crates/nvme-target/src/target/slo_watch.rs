//! Checks promises to tenants now and then, on a thread that sleeps while no tenant has one.
//!
//! Started with a running target, ended with it. A namespace over a scheduled device is announced by
//! [`Wake::poke`].

use crate::limits::SLO_WINDOW;
use crate::target::Target;
use crate::target::wake::Wake;
use qos::limits::OVERRUN_WINDOW;
use std::sync::Arc;
use std::time::Instant;

/// Ends the thread by being dropped.
#[derive(Debug)]
pub(crate) struct Watch(Arc<Wake>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Looks at tenants now and then, until what is returned is dropped.
pub(crate) fn start(target: &Arc<Target>) -> Watch {
    let watch = Watch(Arc::clone(&target.tenant_wake));
    let target = Arc::clone(target);
    let look = move || {
        let mut window = Instant::now();
        let watched = || target.is_anything_scheduled();
        while target.tenant_wake.sleep(OVERRUN_WINDOW.into(), watched) {
            let window_ends = window.elapsed() >= SLO_WINDOW.into();
            if window_ends {
                window = Instant::now();
            }
            target.look_at_tenants(window_ends);
        }
    };
    let thread = std::thread::Builder::new().name("tenants".to_owned());
    if let Err(error) = thread.spawn(look) {
        tracing::error!(%error, "nobody looks whether promises to tenants are kept");
    }
    watch
}

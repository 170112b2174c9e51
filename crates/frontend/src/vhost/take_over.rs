//! Taking over a machine from another, ended process.

use super::inflight::Inflight;
use super::served_disk::ServedDisk;
use std::sync::Arc;
use vhost::vhost_user::{Error, Result};

/// Takes over the machine of this record. If another process stored controllers in it, writes are
/// held until these have ended.
pub(super) fn take_over(shared: &Arc<ServedDisk>, record: Inflight) -> Result<()> {
    if shared.succession.is_none() {
        return Ok(());
    }
    let own = &shared.writers;
    let Some((process, left)) = own.left_by_another(&record) else {
        own.keep_in(record);
        return Ok(());
    };
    if !own.begin_end(process, record)? {
        return Ok(());
    }
    shared.hold_writes(1);
    let disk = Arc::clone(shared);
    let end = move || {
        let succession = disk.succession.as_ref().expect("asked above");
        if succession.end(&left, &|| disk.end_by().is_some()) {
            disk.writers.have_ended();
            disk.write_is_over();
        }
    };
    let thread = std::thread::Builder::new().name("vhost/take-over".to_owned());
    if let Err(error) = thread.spawn(end) {
        own.give_up_end();
        shared.write_is_over();
        return Err(Error::ReqHandlerError(error));
    }
    Ok(())
}

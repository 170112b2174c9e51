//! Writes that no application waits for any more: they may be executed while a controller of their
//! host exists, but not later.

use super::super::volume::Volume;
use base::Nanos;
use target::Target;

/// Interval between checks of the controllers: a write executed after the last controller has ended
/// is detected if a newer write began one interval later and was acknowledged.
pub(super) const INTERVAL: Nanos = Nanos::from_millis(100);

/// Bytes of a HOSTID that identify the host.
const MARK_BYTES: usize = 8;

/// Writes the number of a host into its HOSTID.
pub(super) fn mark(id: &mut [u8; 16], host: u64) {
    id[..MARK_BYTES].copy_from_slice(&host.to_le_bytes());
}

/// Returns the host number from a HOSTID in hexadecimal digits.
fn host_of(id: &str) -> Option<u64> {
    let digits = id.get(..2 * MARK_BYTES)?;
    u64::from_str_radix(digits, 16).ok().map(u64::swap_bytes)
}

/// Ends the writes to these volumes that no controller of their target can have any more; `None`
/// for a target that does not run. Hosts reach the volumes through the subsystem `nqn`.
pub(super) fn end<'a>(
    volumes: impl Iterator<Item = &'a Volume>,
    target: Option<&Target>,
    nqn: &str,
) {
    let oracles = volumes.map(|volume| &volume.oracle);
    let mut oracles = oracles
        .filter(|oracle| oracle.borrow().has_orphans())
        .peekable();
    if oracles.peek().is_none() {
        return;
    }
    let controllers = target.map_or_else(Vec::new, |target| target.snapshot().controllers);
    let ours = controllers.iter().filter(|c| c.nqn == nqn);
    let ours = ours.filter_map(|c| Some((host_of(&c.host_id)?, c.id)));
    let ours: Vec<_> = ours.collect();
    let of_host = |host| {
        let theirs = ours.iter().filter(|&&(known, _)| known == host);
        theirs.map(|&(_, id)| id).collect()
    };
    oracles.for_each(|oracle| oracle.borrow_mut().end_orphans(of_host));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostid_says_which_host_it_is() {
        let mut id = [0xAB; 16];
        mark(&mut id, 0x1234);
        let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(host_of(&digits), Some(0x1234));
        assert_eq!(host_of("12"), None);
    }
}

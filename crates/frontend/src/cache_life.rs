//! The life of a device's caches that held a client's acknowledged writes. It is recorded so that
//! the next front end can detect a loss after taking the client over.

use crate::KnownLosses;
use block::{CacheLife, Device};

/// Mark left by a front end of an earlier version, which recorded none.
pub(crate) const ABSENT: u32 = 0;

/// Mark of a device that loses nothing until the machine goes down.
const MACHINE: u32 = 1;

/// Mark of a device that cannot identify its cache lives.
const UNKNOWN: u32 = 2;

/// Returns the mark of the device's current cache life, for the next front end.
pub(crate) fn mark(device: &dyn Device) -> u32 {
    match device.cache_life() {
        CacheLife::Machine => MACHINE,
        CacheLife::Unknown => UNKNOWN,
        CacheLife::Of(life) => {
            let folded = u32::try_from((life ^ life << u32::BITS) >> u32::BITS);
            folded.expect("32 bits").max(UNKNOWN + 1)
        }
    }
}

/// Takes a client over from an ended front end that left the mark `left`. The client's next Flush
/// fails if its unflushed writes may be lost.
pub(crate) fn take_over(device: &dyn Device, left: u32, client: &KnownLosses) {
    // First, so that the device counts a loss for any life that ends from here on.
    device.inherit_writes();
    let lives = match mark(device) {
        MACHINE => matches!(left, MACHINE | ABSENT),
        UNKNOWN => false,
        life => left == life,
    };
    if !lives {
        tracing::warn!(
            "writes of a previous front end may be lost, because the device's write cache was \
             reset; the next flush fails once"
        );
        client.lost_before();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Capabilities, Channel, DeviceError, Geometry};
    use reactor::Driver;

    #[derive(Debug)]
    struct Living(CacheLife);

    impl Device for Living {
        fn geometry(&self) -> Geometry {
            unreachable!("it is not asked for")
        }

        fn capabilities(&self) -> Capabilities {
            unreachable!("they are not asked for")
        }

        fn open(&self, _: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
            unreachable!("it is not opened")
        }

        fn cache_life(&self) -> CacheLife {
            self.0
        }
    }

    #[test]
    fn a_life_is_known_again_by_its_mark_and_no_other_one() {
        let all = [
            CacheLife::Machine,
            CacheLife::Of(0),
            CacheLife::Of(7),
            CacheLife::Of(7 << 32 | 1),
            CacheLife::Unknown,
        ];
        for before in all {
            for now in all {
                let left = mark(&Living(before));
                assert_ne!(left, ABSENT);
                let client = KnownLosses::of(&Living(now));
                take_over(&Living(now), left, &client);
                let is_same = before == now && now != CacheLife::Unknown;
                assert_eq!(client.count() > 0, is_same, "{before:?}, {now:?}");
            }
        }
    }

    #[test]
    fn without_a_mark_only_a_device_that_loses_nothing_is_safe() {
        for (now, is_safe) in [
            (CacheLife::Machine, true),
            (CacheLife::Of(7), false),
            (CacheLife::Unknown, false),
        ] {
            let client = KnownLosses::of(&Living(now));
            take_over(&Living(now), ABSENT, &client);
            assert_eq!(client.count() > 0, is_safe, "{now:?}");
        }
    }
}

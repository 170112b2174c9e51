//! The time after which a controller must have ended a lost association by itself.

use crate::limits::REPLAY_MARGIN;
use crate::options::{ConnectOptions, ReplayPolicy};
use base::Nanos;
use base::mutation::{self, Mutation};
use wire::nvme::IdentifyController;

/// Returns the time after the close of its connections in which a controller must have ended by
/// itself (docs/design/decisions/0004-replay.md): KATO, rounded up to the granularity of the controller's
/// timer (KAS); twice that if any traffic restarts the timer (TBKAS), because the controller then
/// checks once in each period whether there was some; and a margin. `[NVMe Base 2.0 §3.9]`
pub(super) fn quiet_time(options: &ConnectOptions, identify: &IdentifyController) -> Nanos {
    if options.replay == ReplayPolicy::Immediate || mutation::active(Mutation::FenceNotTimed) {
        return Nanos::ZERO;
    }
    if options.keep_alive == Nanos::ZERO {
        // It notices the loss by the connection alone: be as patient as with a command.
        return options.command_timeout + REPLAY_MARGIN;
    }
    let step = Nanos::from_millis(100 * u64::from(identify.kas.max(1)));
    let kato = Nanos::from_millis(options.kato_ms().into());
    let kato = kato.0.div_ceil(step.0) * step.0;
    let traffic_based = identify.ctratt & IdentifyController::CTRATT_TRAFFIC_BASED_KEEP_ALIVE != 0;
    let periods = if traffic_based { 2 } else { 1 };
    Nanos(periods * kato) + REPLAY_MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{HostIdentity, parse_nqn};

    #[test]
    fn lost_writes_wait_until_the_slowest_timer_of_the_controller_has_expired() {
        let nqn = parse_nqn("nqn.2026-11.io.switchyard:default").unwrap();
        let host = HostIdentity::generate();
        let mut options = ConnectOptions::new(([127, 0, 0, 1], 4420).into(), nqn, host);
        let traffic = IdentifyController::CTRATT_TRAFFIC_BASED_KEEP_ALIVE;
        for (keep_alive_ms, kas, ctratt, expected_ms) in [
            (15_000, 0, 0, 15_000),
            (15_000, 1, 0, 15_000),
            (15_050, 1, 0, 15_100),
            (15_000, 100, 0, 20_000),
            (15_000, 1, traffic, 30_000),
            (15_000, 100, traffic, 40_000),
            (u64::from(u32::MAX), u16::MAX, traffic, 8_598_192_000),
            (0, 100, traffic, 30_000),
        ] {
            options.keep_alive = Nanos::from_millis(keep_alive_ms);
            let identify = IdentifyController {
                kas,
                ctratt,
                ..IdentifyController::default()
            };
            let expected = Nanos::from_millis(expected_ms) + REPLAY_MARGIN;
            let quiet = quiet_time(&options, &identify);
            assert_eq!(
                quiet, expected,
                "{keep_alive_ms} ms, KAS {kas}, {ctratt:#x}"
            );
        }
        options.replay = ReplayPolicy::Immediate;
        let quiet = quiet_time(&options, &IdentifyController::default());
        assert_eq!(quiet, Nanos::ZERO);
    }
}

//! Rounds of a thread during a round of another thread.

use super::*;

/// A share distributed during a thread's round, before the thread could claim it, must not go to
/// other tenants.
#[test]
fn a_share_does_not_depend_on_the_length_of_rounds() {
    for often in 1..=4 {
        let mut world = World::new(2, &[best_effort(100), best_effort(100)]);
        for _ in 0..20_000 {
            for tenant in 0..2 {
                world.fill(tenant, tenant, PricedOperation::Read, 64);
            }
            world.pass(ROUND);
            let (begin, mut now) = (world.now, world.now);
            let [long, short] = world.threads.as_mut_slice() else {
                unreachable!("two threads")
            };
            let mut rounds = 0;
            long.round(begin, &mut |tenant, cost| {
                world.spent[tenant][0] += cost;
                while rounds < often {
                    rounds += 1;
                    now = now + Nanos(ROUND.0 / 2);
                    short.round(now, &mut |tenant, cost| world.spent[tenant][1] += cost);
                }
            });
            world.now = now;
            if rounds == 0 {
                world.round(1);
            }
        }
        let shares = [0, 1].map(|tenant| world.spent_by(tenant).0 as f64);
        let quotient = shares[0] / shares[1];
        assert!((0.95..1.05).contains(&quotient), "{often}: {quotient}");
        let all = RATE.over(Nanos(world.now.0 - 1)).0 as f64;
        assert!(
            shares.iter().sum::<f64>() > 0.97 * all,
            "{often}: {shares:?} of {all}"
        );
    }
}

//! Requests allocate nothing: all memory is allocated when a tenant's connection is attached.

#[cfg(test)]
mod tests {
    use base::{Nanos, Prng, Time};
    use qos::cost::Price;
    use qos::curve::Point;
    use qos::{
        CostModel, Curve, Declaration, Percentile, PricedOperation, Slo, TenantId, TenantKey,
        Tenants, TokenPoolRules, TokenRate, TokenScheduler, Tokens, Weight,
    };

    fn tenants() -> Tenants {
        let price = |milli| Price::milli(milli).expect("within the limits");
        let latency = [Nanos::from_micros(400); Percentile::COUNT];
        let point = Point {
            rate: TokenRate(420_000),
            latency,
        };
        let curve = Curve::new(vec![point]).expect("a curve of one point");
        let model = CostModel::new(price(10_000), price(500));
        let mut tenants = Tenants::new(TokenPoolRules::default(), model, curve);
        for id in 0..64 {
            let slo = Slo {
                percentile: Percentile::P95,
                latency: Nanos::from_micros(500),
                iops: 2_000,
                read_permille: 900,
                request_bytes: 4096,
            };
            let declaration = if id % 2 == 0 {
                Declaration::LatencyCritical(slo)
            } else {
                Declaration::BestEffort(Weight::default())
            };
            tenants
                .set(TenantId(id), declaration)
                .expect("there is room");
        }
        tenants
    }

    fn turn(
        scheduler: &mut TokenScheduler<u64>,
        keys: &[TenantKey],
        prng: &mut Prng,
        now: &mut Time,
    ) -> Tokens {
        let mut spent = Tokens::ZERO;
        *now = *now + Nanos(prng.below(30_000));
        for &key in keys {
            if prng.chance(1, 4) {
                let operation = PricedOperation::ALL[usize::from(prng.chance(1, 2))];
                let _ = scheduler.enqueue(key, operation, 1, 1);
            }
        }
        scheduler.round(*now, &mut |_, cost| spent += cost);
        spent
    }

    #[test]
    fn requests_allocate_nothing() {
        let tenants = tenants();
        let mut scheduler = TokenScheduler::new(tenants.pool().clone(), 512).expect("one thread");
        let keys: Vec<_> = (0..64)
            .map(|id| scheduler.attach(tenants.account(TenantId(id)).expect("registered")))
            .collect();
        let mut prng = Prng::from_seed(1);
        let mut now = Time(1);
        let mut spent = Tokens::ZERO;
        let allocated = allocation_counter::measure(|| {
            for _ in 0..10_000 {
                spent += turn(&mut scheduler, &keys, &mut prng, &mut now);
            }
        });
        assert!(spent > Tokens::whole(1_000), "it was at work: {spent}");
        assert_eq!(allocated.count_total, 0, "{allocated:?}");
    }
}

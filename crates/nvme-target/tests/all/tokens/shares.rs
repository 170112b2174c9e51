//! Tokens shared by tenants on one device, and the events and latencies reported about them.

use super::*;

/// Sends 1000 commands on `blocks` blocks that transfer no data.
fn flood(client: &mut Client, blocks: u32) {
    let mut bytes = Vec::new();
    for cid in 0..1000u16 {
        let mut verify = io(IoOpcode::VERIFY, 0, blocks);
        verify.set_cid(cid);
        bytes.extend(client.session.capsule(&verify, &[]));
    }
    client.send(&bytes);
}

/// Returns a device on which no command can be paid for, and almost no tokens are saved, however
/// long it takes until all commands wait.
fn shut() -> Arc<DeviceQos> {
    let device = device(DEAR);
    let (model, curve) = measured(DEAR, 1);
    device.recalibrate(model, curve);
    device
}

/// Returns the tokens that [`HOST`] and [`OTHER`] have spent, at the same time: the value of the
/// first did not change while the second was read.
fn spent(bed: &Bed) -> [u64; 2] {
    loop {
        let spent = |name| tenant_of(bed, name).stats.spent_milli / 1000;
        let [one, other, again] = [HOST, OTHER, HOST].map(spent);
        if one == again {
            return [one, other];
        }
    }
}

/// Releases the waiting commands of [`HOST`] and [`OTHER`] on a [device](shut), each of 1 MiB and
/// now one token, so slowly that this thread may be late by seconds before either has none left.
/// Polls until the tokens spent are `fair`, while fewer than `commands` of each are done: a core
/// may be late in claiming or publishing tokens.
fn share(bed: &Bed, device: &DeviceQos, commands: [u64; 2], fair: impl Fn([u64; 2]) -> bool) {
    let (model, curve) = measured(4, RATE / 4);
    device.recalibrate(model, curve);
    let mut last = [0; 2];
    eventually("both are served", || {
        let seen = spent(bed);
        let both_wait = seen[0] < commands[0] && seen[1] < commands[1];
        assert!(both_wait, "while both waited, they had {last:?}");
        last = seen;
        seen.iter().sum::<u64>() > 600 && fair(seen)
    });
}

#[test]
fn best_effort_tenants_share_by_weight_and_tokens_are_conserved() {
    let weight = |weight| Declaration::BestEffort(Weight::new(weight).expect("a weight"));
    let device = shut();
    let bed = bed(&device);
    let tenants = vec![tenant(HOST, weight(100)), tenant(OTHER, weight(200))];
    set(bed.handle(), tenants).expect("admitted");
    let (mut admin, mut one) = host(&bed, HOST);
    let (_admin, mut other) = host(&bed, OTHER);
    flood(&mut one, 256);
    flood(&mut other, 256);
    taken(&bed, &mut admin, 2000);
    share(&bed, &device, [1000, 1000], |[light, heavy]| {
        (light * 2).abs_diff(heavy) * 10 <= heavy
    });
    // The remaining commands run at the same price, and faster.
    let (model, curve) = measured(4, 10 * RATE);
    device.recalibrate(model, curve);
    for client in [&mut one, &mut other] {
        let mut answered: Vec<u16> = (0..1000).map(|_| client.completion().cid).collect();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(0..1000));
    }
    for name in [HOST, OTHER] {
        eventually("what was not needed is given back", || {
            let TenantStats {
                earned_milli,
                given_milli,
                spent_milli,
                waiting,
                others,
                ..
            } = tenant_of(&bed, name).stats;
            let kept = earned_milli.saturating_sub(given_milli);
            waiting == 0
                && others == 1000
                && spent_milli >= 1000 * 1000
                && kept.abs_diff(spent_milli) <= 1
        });
    }
}

/// In the paper, each tenant runs on one thread; here it may use two cores.
#[test]
fn a_tenant_on_two_cores_has_one_share() {
    let device = shut();
    let bed = Bed::scheduled(Limits::default(), 2, Some(Arc::clone(&device)));
    let tenants = [HOST, OTHER].map(|name| tenant(name, Declaration::default()));
    set(bed.handle(), tenants.to_vec()).expect("admitted");
    let (mut admin, mut queues) = bed.host_named(HOST, 2);
    let (_admin, other) = host(&bed, OTHER);
    queues.push(other);
    for client in &mut queues {
        flood(client, 256);
    }
    taken(&bed, &mut admin, 3000);
    let served: Vec<_> = bed.handle().snapshot().cores;
    assert!(served.iter().all(|core| core.io_commands >= 1000));
    share(&bed, &device, [2000, 1000], |[two, one]| {
        two.abs_diff(one) * 5 <= one
    });
    open(&device);
    for client in &mut queues {
        let mut answered: Vec<u16> = (0..1000).map(|_| client.completion().cid).collect();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(0..1000));
    }
}

#[test]
fn a_promise_is_kept_beside_best_effort() {
    // Half of the device, in commands of one token each.
    let half = promised(500);
    let device = device(1000);
    let bed = bed(&device);
    let tenants = vec![tenant(HOST, half), tenant(OTHER, Declaration::default())];
    set(bed.handle(), tenants).expect("admitted");
    assert_eq!(device.plan().reserved, TokenRate(RATE / 2));
    let (mut admin, mut critical) = host(&bed, HOST);
    let (_admin, mut other) = host(&bed, OTHER);
    flood(&mut other, 1);
    taken(&bed, &mut admin, 1000);
    flood(&mut critical, 1);
    let before = tenant_of(&bed, OTHER).stats.others;
    let mut seen = None;
    eventually("both were served", || {
        let both = [HOST, OTHER].map(|name| tenant_of(&bed, name).stats.others);
        seen = Some(both).filter(|[one, _]| *one > 400);
        seen.is_some()
    });
    let [promised, rest] = seen.expect("they were");
    let rest = rest - before;
    // Half is reserved, so the other tenant cannot have more. It has less if a core's round was so
    // late that spare tokens had expired.
    assert!(
        promised * 110 / 100 + 60 >= rest && rest > 0,
        "{promised} and {rest}"
    );
    eventually("its operator is told", || tenant_of(&bed, HOST).overruns);
    for client in [&mut critical, &mut other] {
        for _ in 0..1000 {
            assert!(client.completion().status.is_success());
        }
    }
}

#[test]
fn the_operator_is_told_when_a_tenant_asks_for_too_much() {
    let device = device(1000);
    let bed = bed(&device);
    let tenants = vec![tenant(HOST, promised(500)), tenant(OTHER, promised(10))];
    set(bed.handle(), tenants).expect("admitted");
    let (_admin, mut critical) = bed.host_named(HOST, 3);
    assert!(bed.handle().events(0).is_empty());
    // All at once: in a gap between them the device would be idle, and the overrun might end.
    for queue in &mut critical {
        flood(queue, 1);
    }
    eventually("it began", || !bed.handle().events(0).is_empty());
    let event = bed.handle().events(0).remove(0);
    let EventKind::OverrunBegan(overrun) = event.kind else {
        panic!("{event:?}")
    };
    assert_eq!(
        (event.number, &*overrun.tenant, &*overrun.device),
        (1, HOST, "flash")
    );
    assert_eq!(overrun.demand.reserved_milli, 500_000);
    assert!(overrun.demand.asked_milli > 0 && overrun.demand.window_ms > 0);
    for queue in &mut critical {
        for _ in 0..1000 {
            assert!(queue.completion().status.is_success());
        }
    }
    eventually("it ended", || !bed.handle().events(1).is_empty());
    let ended = bed.handle().events(1);
    assert_eq!(ended.len(), 1);
    assert!(matches!(ended[0].kind, EventKind::OverrunEnded(_)));
}

#[test]
fn late_reads_are_counted_and_nothing_is_forgotten_with_a_connection() {
    let device = device(DEAR);
    let bed = bed(&device);
    set(bed.handle(), vec![tenant(HOST, critical())]).expect("admitted");
    for turn in 1..=3u64 {
        let (mut admin, mut client) = host(&bed, HOST);
        let first = ask_for_much(&mut client);
        let late = ask_for_much(&mut client);
        taken(&bed, &mut admin, 2 * turn);
        std::thread::sleep(std::time::Duration::from_millis(5));
        open(&device);
        for cid in [first, late] {
            assert_eq!(client.fetched(cid).1.len(), MIB);
        }
        let (model, curve) = measured(DEAR, RATE);
        device.recalibrate(model, curve);
        drop((admin, client));
        eventually("all is counted", || {
            let tenant = tenant_of(&bed, HOST);
            tenant.stats.reads == 2 * turn && tenant.stats.seats == 0
        });
    }
    let TenantSnapshot { stats, latency, .. } = tenant_of(&bed, HOST);
    assert_eq!((stats.read_bytes, stats.slo_reads), (6 << 20, 6));
    assert!((1..=6).contains(&stats.late_reads), "{stats:?}");
    assert_eq!(latency.reads.commands(), 6);
    assert_eq!(latency.device_reads.commands(), 6);
    assert!(latency.reads.sum_ns > latency.device_reads.sum_ns + 5_000_000);
    eventually("the promise is judged", || {
        tenant_of(&bed, HOST).windows.missed > 0
    });
}

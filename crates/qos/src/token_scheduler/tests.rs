//! The scheduler against the oracle, and invariants for any number of threads.

mod at_once;
mod device_rate;
mod meanwhile;
mod places;
mod reflex_paper;
mod silence;

use super::oracle::Oracle;
use super::*;
use crate::cost::{CostModel, Price};
use crate::limits::{NEG_LIMIT_TOKENS, SPAN_ROUNDS};
use crate::slo::Weight;
use crate::token_pool::TokenPoolRules;
use crate::tokens::TokenRate;
use base::{Nanos, Prng};
use proptest::prelude::*;

const RATE: TokenRate = TokenRate(420_000);
const ROUND: Nanos = Nanos::from_micros(25);
const WRITE: Tokens = Tokens::whole(10);

/// The scheduler without advances, so that a tenant gets its earnings or loans only.
fn no_advance() -> TokenPoolRules {
    TokenPoolRules {
        advance: Nanos::ZERO,
        ..TokenPoolRules::default()
    }
}

fn pool() -> Arc<TokenPool> {
    pool_under(no_advance())
}

fn pool_under(rules: TokenPoolRules) -> Arc<TokenPool> {
    // Reads cost one token under any load, so that requests count tokens.
    let model = CostModel::new(Price::milli(10_000).unwrap(), Price::READ);
    Arc::new(TokenPool::new(rules, RATE, ROUND, &model))
}

fn critical(rate: u64) -> Contract {
    Contract::LatencyCritical(TokenRate(rate))
}

fn best_effort(weight: u32) -> Contract {
    Contract::BestEffort(Weight::new(weight).unwrap())
}

fn account(id: u32, contract: Contract) -> Arc<Account> {
    Arc::new(Account::new(TenantId(id), contract))
}

fn scheduler<T>(pool: &Arc<TokenPool>) -> TokenScheduler<T> {
    TokenScheduler::new(pool.clone(), 4096).unwrap()
}

/// Changes a tenant like the registry.
fn set(pool: &TokenPool, account: &Account, contract: Contract) {
    account.set(contract);
    if !matches!(contract, Contract::LatencyCritical(_)) {
        pool.give(account.empty());
    }
}

/// Several threads with tenants and requests, driven step by step.
struct World {
    pool: Arc<TokenPool>,
    accounts: Vec<Arc<Account>>,
    threads: Vec<TokenScheduler<usize>>,
    keys: Vec<Vec<TenantKey>>,
    now: Time,
    /// Tokens spent, by tenant and thread.
    spent: Vec<Vec<Tokens>>,
    /// Totals of dropped schedulers.
    past: Totals,
}

impl World {
    fn new(threads: usize, contracts: &[Contract]) -> Self {
        Self::under(no_advance(), threads, contracts)
    }

    fn under(rules: TokenPoolRules, threads: usize, contracts: &[Contract]) -> Self {
        let pool = pool_under(rules);
        let accounts: Vec<_> = (0..)
            .zip(contracts)
            .map(|(id, &c)| account(id, c))
            .collect();
        let mut schedulers: Vec<_> = (0..threads).map(|_| scheduler(&pool)).collect();
        let keys = schedulers
            .iter_mut()
            .map(|thread| {
                accounts
                    .iter()
                    .map(|account| thread.attach(account))
                    .collect()
            })
            .collect();
        Self {
            spent: vec![vec![Tokens::ZERO; threads]; accounts.len()],
            threads: schedulers,
            pool,
            accounts,
            keys,
            now: Time(1),
            past: Totals::default(),
        }
    }

    fn enqueue(&mut self, thread: usize, tenant: usize, operation: PricedOperation, units: u32) {
        let key = self.keys[thread][tenant];
        let _ = self.threads[thread].enqueue(key, operation, units, tenant);
    }

    /// Tries to pay for a request at once; returns whether it did.
    fn pay_at_once(
        &mut self,
        thread: usize,
        tenant: usize,
        operation: PricedOperation,
        units: u32,
    ) -> bool {
        let key = self.keys[thread][tenant];
        let paid = self.threads[thread].pay_at_once(key, operation, units);
        self.spent[tenant][thread] += paid.unwrap_or(Tokens::ZERO);
        paid.is_some()
    }

    /// Keeps `depth` requests queued.
    fn fill(&mut self, thread: usize, tenant: usize, operation: PricedOperation, depth: u32) {
        let key = self.keys[thread][tenant];
        while self.threads[thread].tally(key).unwrap().waiting < depth {
            self.enqueue(thread, tenant, operation, 1);
        }
    }

    fn round(&mut self, thread: usize) {
        let spent = &mut self.spent;
        self.threads[thread].round(self.now, &mut |tenant, cost| spent[tenant][thread] += cost);
    }

    fn pass(&mut self, span: Nanos) {
        self.now = self.now + span;
    }

    fn set(&mut self, tenant: usize, contract: Contract) {
        set(&self.pool, &self.accounts[tenant], contract);
    }

    fn spent_by(&self, tenant: usize) -> Tokens {
        self.spent[tenant].iter().copied().sum()
    }

    /// Every generated token is in one place, or was spent.
    fn assert_conserved(&self) {
        let of = |get: fn(&Totals) -> Tokens| {
            self.threads
                .iter()
                .map(|thread| get(thread.totals()))
                .sum::<Tokens>()
                + get(&self.past)
        };
        let claimed = self.threads.iter().flat_map(|thread| &thread.entries);
        let claimed: Tokens = claimed.map(|entry| entry.claimed).sum();
        let balances: Tokens = self.accounts.iter().map(|account| account.balance()).sum();
        let there = claimed + balances + self.pool.unclaimed();
        let unreported: Tokens = self.threads.iter().map(|thread| thread.unreported).sum();
        let gone = of(|totals| totals.spent) + unreported + of(|totals| totals.expired);
        let made = of(|totals| totals.generated) + of(|totals| totals.forgiven);
        assert_eq!(made, there + gone, "at {:?}", self.now);
        assert_eq!(
            self.pool.spent_since(&mut 0),
            of(|totals| totals.spent),
            "the load of the device"
        );
    }
}

#[derive(Clone, Debug)]
enum Event {
    Enqueue(usize, usize, PricedOperation, u32),
    PayAtOnce(usize, usize, PricedOperation, u32),
    Pass(u64),
    Round(usize),
    Set(usize, Contract),
    Rate(u64),
    Replace(usize),
}

fn contract() -> impl Strategy<Value = Contract> {
    prop_oneof![
        4 => (1u64..300_000).prop_map(critical),
        4 => (1u32..1_000).prop_map(best_effort),
        1 => Just(Contract::Closed),
    ]
}

fn operation() -> impl Strategy<Value = PricedOperation> {
    prop::sample::select(PricedOperation::ALL.to_vec())
}

fn event(threads: usize, tenants: usize) -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..threads, 0..tenants, operation(), 1u32..40)
            .prop_map(|(thread, tenant, op, units)| Event::Enqueue(thread, tenant, op, units)),
        8 => (0..threads, 0..tenants, operation(), 1u32..40)
            .prop_map(|(thread, tenant, op, units)| Event::PayAtOnce(thread, tenant, op, units)),
        4 => (0u64..60_000).prop_map(Event::Pass),
        1 => (0u64..50_000_000).prop_map(Event::Pass),
        8 => (0..threads).prop_map(Event::Round),
        1 => (0..tenants, contract()).prop_map(|(tenant, to)| Event::Set(tenant, to)),
        1 => (0u64..2_000_000).prop_map(Event::Rate),
        1 => (0..threads).prop_map(Event::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// With one thread, the scheduler matches the oracle in every request and fraction.
    #[test]
    fn one_thread_is_the_oracle(
        contracts in prop::collection::vec(contract(), 1..6),
        events in prop::collection::vec(event(1, 6), 1..300),
        is_backlogged in any::<bool>(),
        advance in prop_oneof![Just(Nanos::ZERO), Just(Nanos::from_millis(1))],
    ) {
        let mut all = vec![best_effort(100)];
        all.extend(contracts);
        let pool = pool_under(TokenPoolRules { advance, ..no_advance() });
        let mut oracle = Oracle::new(RATE.0, ROUND.0, pool.model().mixed, &all);
        oracle.advance = advance.0.into();
        let mut thread = scheduler::<u32>(&pool);
        let accounts: Vec<_> = (0..).zip(&all).map(|(id, &c)| account(id, c)).collect();
        let keys: Vec<_> = accounts.iter().map(|account| thread.attach(account)).collect();
        let mut now = Time(1);
        let mut next = 1;
        if is_backlogged {
            // Unlimited demand, so that tokens are advanced only, and not lent.
            oracle.enqueue(0, PricedOperation::Write, u32::MAX, 0);
            thread.enqueue(keys[0], PricedOperation::Write, u32::MAX, 0).unwrap();
        }
        thread.round(now, &mut |_, _| {});
        oracle.round(now.0, &[]);
        for event in events {
            match event {
                Event::Enqueue(_, tenant, operation, units) => {
                    let tenant = 1 + tenant % (all.len() - 1);
                    if thread.enqueue(keys[tenant], operation, units, next).is_ok() {
                        oracle.enqueue(tenant, operation, units, next);
                        next += 1;
                    }
                }
                // The oracle has rounds only.
                Event::PayAtOnce(..) => {}
                Event::Pass(nanos) => now = now + Nanos(nanos),
                Event::Set(tenant, contract) => {
                    let tenant = 1 + tenant % (all.len() - 1);
                    if oracle.tenants[tenant].contract == Contract::Closed {
                        // A removal is permanent.
                        continue;
                    }
                    set(&pool, &accounts[tenant], contract);
                    oracle.set(tenant, contract);
                }
                Event::Rate(rate) => {
                    pool.set_rate(TokenRate(rate), ROUND);
                    oracle.rate = rate.into();
                }
                Event::Round(_) | Event::Replace(_) => {
                    let mut released = Vec::new();
                    // The scheduler chooses the tenant that receives a loan.
                    let mut lent_to: Vec<_> =
                        thread.latency_critical.iter().map(|&index| index as usize).collect();
                    let first = (thread.turn + 1).checked_rem(lent_to.len()).unwrap_or(0);
                    lent_to.rotate_left(first);
                    thread.round(now, &mut |item, _| released.push(item));
                    let mut expected = oracle.round(now.0, &lent_to);
                    released.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(released, expected);
                    for (tenant, account) in oracle.tenants.iter().zip(&accounts) {
                        prop_assert_eq!(tenant.balance, i128::from(account.balance().0));
                        prop_assert_eq!(tenant.advanced, i128::from(account.advanced().0));
                    }
                    prop_assert_eq!(oracle.bucket, i128::from(pool.unclaimed().0));
                }
            }
        }
    }

    /// For any number of threads and any events, including threads that are added and removed.
    #[test]
    fn tokens_are_conserved_to_the_last_fraction(
        contracts in prop::collection::vec(contract(), 5),
        events in prop::collection::vec(event(3, 5), 1..400),
        rules in prop::sample::select(vec![
            TokenPoolRules::default(), no_advance(), TokenPoolRules::reflex_paper(),
        ]),
    ) {
        let mut world = World::under(rules, 3, &contracts);
        for event in events {
            match event {
                Event::Enqueue(thread, tenant, operation, units) => {
                    world.enqueue(thread, tenant, operation, units);
                }
                Event::PayAtOnce(thread, tenant, operation, units) => {
                    world.pay_at_once(thread, tenant, operation, units);
                }
                Event::Pass(nanos) => world.pass(Nanos(nanos)),
                Event::Round(thread) => world.round(thread),
                Event::Set(tenant, contract) => world.set(tenant, contract),
                Event::Rate(rate) => world.pool.set_rate(TokenRate(rate), ROUND),
                Event::Replace(thread) => {
                    let totals = *world.threads[thread].totals();
                    world.past.generated += totals.generated;
                    world.past.spent += totals.spent + world.threads[thread].unreported;
                    world.past.expired += totals.expired;
                    world.past.forgiven += totals.forgiven;
                    let mut fresh = scheduler(&world.pool);
                    let keys = world.accounts.iter().map(|a| fresh.attach(a)).collect();
                    world.keys[thread] = keys;
                    world.threads[thread] = fresh;
                }
            }
            world.assert_conserved();
        }
        drop(std::mem::take(&mut world.threads));
        for account in &world.accounts {
            prop_assert_eq!(account.threads(), 1, "nobody is there (and one is the least)");
        }
        prop_assert_eq!(world.pool.enter_backlog(0), world.pool.enter_backlog(0));
        prop_assert_eq!(world.pool.borrow(Tokens::ZERO), Tokens::ZERO);
    }

    /// With any arrivals, a latency-critical tenant never continues at or below NEG_LIMIT, so it
    /// owes at most that and one request; and it never exceeds its rate.
    #[test]
    fn the_debt_limit_is_honoured(
        rate in 1_000u64..300_000,
        steps in prop::collection::vec((0usize..3, 0u32..20, 0u64..100_000, any::<bool>()), 1..300),
    ) {
        let mut world = World::new(3, &[critical(rate), best_effort(1)]);
        // A backlogged tenant, so that nothing is lent.
        world.enqueue(0, 1, PricedOperation::Write, u32::MAX);
        world.round(0);
        let start = world.now;
        for (thread, requests, nanos, write) in steps {
            let operation = if write { PricedOperation::Write } else { PricedOperation::Read };
            for _ in 0..requests {
                world.enqueue(thread, 0, operation, 1);
            }
            world.pass(Nanos(nanos));
            world.round(thread);
            let balance = world.accounts[0].balance();
            prop_assert!(balance > Tokens::whole(-NEG_LIMIT_TOKENS) - WRITE, "{}", balance);
        }
        let most = TokenRate(rate).over(world.now.since(start));
        let most = most + Tokens::whole(NEG_LIMIT_TOKENS) + WRITE;
        prop_assert!(world.spent_by(0) <= most);
    }

    /// Tenants with unlimited demand share the capacity by weight, on any threads and with any
    /// round intervals; and nearly all capacity is used.
    #[test]
    fn shares_converge_to_the_weights(
        weights in prop::collection::vec(1u32..500, 2..6),
        places in prop::collection::vec(1u8..8, 6),
        pace in prop::collection::vec(1u64..40, 3),
        seed in any::<u64>(),
    ) {
        let contracts: Vec<_> = weights.iter().map(|&weight| best_effort(weight)).collect();
        let mut world = World::new(3, &contracts);
        let mut prng = Prng::from_seed(seed);
        let is_on = |tenant: usize, thread: usize| places[tenant] & 1 << thread != 0;
        let start = world.now;
        let mut base = Vec::new();
        for turn in 0..60_000 {
            world.pass(Nanos(prng.below(4_000)));
            for (thread, &pace) in pace.iter().enumerate() {
                if prng.chance(1, pace) {
                    for tenant in 0..weights.len() {
                        if is_on(tenant, thread) {
                            let write = tenant % 2 == 0;
                            let op = if write { PricedOperation::Write } else { PricedOperation::Read };
                            world.fill(thread, tenant, op, 400);
                        }
                    }
                    world.round(thread);
                }
            }
            if turn == 5_000 {
                base = (0..weights.len()).map(|tenant| world.spent_by(tenant)).collect();
            }
        }
        world.assert_conserved();
        let spent: Vec<_> = (0..weights.len()).map(|t| world.spent_by(t) - base[t]).collect();
        let all: Tokens = spent.iter().copied().sum();
        let sum: u32 = weights.iter().sum();
        for (tenant, &spent) in spent.iter().enumerate() {
            let fair = all.0 / i64::from(sum) * i64::from(weights[tenant]);
            // On each thread, tokens for up to one write are not spent yet.
            let slack = fair / 20 + 3 * WRITE.0;
            prop_assert!((spent.0 - fair).abs() <= slack, "{} {} {}", tenant, spent, fair);
        }
        let used = all + base.iter().copied().sum();
        let made = RATE.over(world.now.since(start));
        // Rounds that come much too late cannot catch up.
        let late = pace.iter().any(|&pace| pace > 5);
        prop_assert!(late || used.0 >= made.0 / 100 * 97, "{} of {}", used, made);
        prop_assert!(used <= made);
    }

    /// A tenant with a rate gets it, on one thread or several, with any round intervals, against a
    /// best-effort tenant with unlimited demand.
    #[test]
    fn no_tenant_with_a_rate_starves(
        rates in prop::collection::vec(1_000u64..80_000, 1..4),
        places in prop::collection::vec(1u8..8, 3),
        pace in prop::collection::vec(1u64..6, 3),
        seed in any::<u64>(),
    ) {
        let mut contracts: Vec<_> = rates.iter().map(|&rate| critical(rate)).collect();
        contracts.push(best_effort(100));
        let greedy = rates.len();
        let mut world = World::new(3, &contracts);
        let mut prng = Prng::from_seed(seed);
        // From the start, a tenant wants all tokens that could be lent.
        world.fill(0, greedy, PricedOperation::Write, 100);
        world.round(0);
        let start = world.now;
        for _ in 0..50_000 {
            world.pass(Nanos(prng.below(4_000)));
            for (thread, &pace) in pace.iter().enumerate() {
                if prng.chance(1, pace) {
                    world.fill(thread, greedy, PricedOperation::Write, 100);
                    for (tenant, places) in places.iter().take(greedy).enumerate() {
                        if places & 1 << thread != 0 {
                            world.fill(thread, tenant, PricedOperation::Write, 100);
                        }
                    }
                    world.round(thread);
                }
            }
        }
        let span = world.now.since(start);
        for (tenant, &rate) in rates.iter().enumerate() {
            let mine = TokenRate(rate).over(span);
            let spent = world.spent_by(tenant);
            prop_assert!(spent >= mine - WRITE, "{} got {} of {}", tenant, spent, mine);
            let most = mine + Tokens::whole(NEG_LIMIT_TOKENS) + WRITE;
            prop_assert!(spent <= most, "{} got {} of {}", tenant, spent, mine);
            let threads = places[tenant].count_ones();
            for thread in (0..3).filter(|thread| places[tenant] & 1 << thread != 0) {
                // An equal part, except for debts between threads at the start and end.
                let part = mine.0 / i64::from(threads);
                let spent = world.spent[tenant][thread];
                let slack = part / 10 + 2 * Tokens::whole(NEG_LIMIT_TOKENS).0;
                prop_assert!(spent.0 >= part - slack, "{} on {}: {}", tenant, thread, spent);
            }
        }
        let reserved = TokenRate(rates.iter().sum());
        let left = (RATE - reserved).over(span);
        prop_assert!(world.spent_by(greedy).0 >= left.0 / 100 * 96, "best effort");
    }
}

/// The paper's scenario 2: tokens that a latency-critical tenant leaves go to best-effort tenants
/// in equal parts.
#[test]
fn what_is_not_used_is_given_away() {
    let contracts = [
        critical(120_000),
        critical(196_000),
        best_effort(100),
        best_effort(100),
    ];
    let mut world = World::new(1, &contracts);
    // A uses its whole SLO rate, B 45 K requests a second instead of 70 K.
    let (a, b) = (
        Nanos(1_000_000_000 / 118_000),
        Nanos(1_000_000_000 / 45_000),
    );
    let (mut next_a, mut next_b, mut count) = (world.now, world.now, 0);
    let start = world.now;
    for _ in 0..500_000 {
        world.pass(Nanos(2_000));
        while next_a <= world.now {
            next_a = next_a + a;
            world.enqueue(0, 0, PricedOperation::Read, 1);
        }
        while next_b <= world.now {
            next_b = next_b + b;
            count += 1;
            let write = count % 5 == 0;
            let operation = if write {
                PricedOperation::Write
            } else {
                PricedOperation::Read
            };
            world.enqueue(0, 1, operation, 1);
        }
        world.fill(0, 2, PricedOperation::Read, 64);
        world.fill(0, 3, PricedOperation::Write, 64);
        world.round(0);
    }
    let span = world.now.since(start);
    let near = |spent: Tokens, rate: u64| {
        let expected = TokenRate(rate).over(span);
        assert!(
            (spent - expected).0.abs() <= expected.0 / 50,
            "{spent} is not {expected}"
        );
    };
    near(world.spent_by(0), 118_000);
    near(world.spent_by(1), 126_000);
    near(world.spent_by(2), (420_000 - 118_000 - 126_000) / 2);
    near(world.spent_by(3), (420_000 - 118_000 - 126_000) / 2);
    assert_eq!(
        world.threads[0].waiting() - 128,
        0,
        "nobody with a promise waits"
    );
    world.assert_conserved();
}

/// An idle latency-critical tenant costs best effort nothing; when it resumes, it has not earned
/// for its idle time.
#[test]
fn silence_is_neither_charged_nor_paid() {
    let mut world = World::new(1, &[critical(400_000), best_effort(100)]);
    world.enqueue(0, 0, PricedOperation::Read, 1);
    for _ in 0..100_000 {
        world.pass(Nanos(10_000));
        world.fill(0, 1, PricedOperation::Read, 64);
        world.round(0);
    }
    assert!(
        world.spent_by(1) >= Tokens::whole(418_000),
        "{}",
        world.spent_by(1)
    );
    let before = world.spent_by(0);
    for _ in 0..4_000 {
        world.enqueue(0, 0, PricedOperation::Read, 1);
    }
    world.round(0);
    let burst = world.spent_by(0) - before;
    let saved = TokenRate(400_000).over(Nanos(ROUND.0 * 3));
    assert!(
        burst <= saved + Tokens::whole(NEG_LIMIT_TOKENS + 1),
        "{burst}"
    );
    assert!(burst >= Tokens::whole(NEG_LIMIT_TOKENS));
}

#[test]
fn best_effort_does_not_burst_after_a_lull() {
    let mut world = World::new(1, &[best_effort(100)]);
    world.enqueue(0, 0, PricedOperation::Read, 1);
    world.round(0);
    for lull in [Nanos::from_millis(1), Nanos::from_secs(3_600)] {
        world.pass(lull);
        let before = world.spent_by(0);
        for _ in 0..4_000 {
            world.enqueue(0, 0, PricedOperation::Read, 1);
        }
        world.round(0);
        let most = RATE.over(Nanos(ROUND.0 * (SPAN_ROUNDS + 1)));
        assert!(world.spent_by(0) - before <= most, "after {lull}");
        for _ in 0..100_000 {
            world.pass(Nanos(1_000));
            world.round(0);
        }
        assert_eq!(world.threads[0].waiting(), 0);
    }
}

/// If no other tenant wants tokens, a latency-critical tenant may exceed its rate, and it is still
/// reported that its SLO is too small.
#[test]
fn what_nobody_wants_is_lent() {
    let mut world = World::new(1, &[critical(10_000), best_effort(100)]);
    let pace = |world: &mut World| {
        let before = world.spent_by(0);
        for _ in 0..50_000 {
            world.pass(Nanos(20_000));
            world.fill(0, 0, PricedOperation::Read, 64);
            world.round(0);
        }
        world.spent_by(0) - before
    };
    let alone = pace(&mut world);
    assert!(alone >= Tokens::whole(410_000), "{alone}");
    assert!(world.accounts[0].limited_rounds() > 1_000);
    world.enqueue(0, 1, PricedOperation::Write, u32::MAX);
    let beside = pace(&mut world);
    assert!(
        beside <= Tokens::whole(10_000 + NEG_LIMIT_TOKENS),
        "{beside}"
    );
    world.assert_conserved();
}

/// Random reads and writes sometimes exceed an SLO that they meet on average. Best effort then
/// waits, and gets the tokens back later.
#[test]
fn a_load_at_its_promise_is_not_stopped_beside_best_effort() {
    for threads in [1, 2] {
        let waits = |rules| {
            let mut world = World::under(rules, threads, &[critical(196_000), best_effort(100)]);
            let mut prng = Prng::from_seed(5);
            let mut most = 0;
            for request in 0..140_000 {
                let thread = request % threads;
                let write = prng.chance(1, 5);
                let operation = if write {
                    PricedOperation::Write
                } else {
                    PricedOperation::Read
                };
                world.fill(0, 1, PricedOperation::Read, 100);
                world.pass(Nanos(1_000_000_000 / 70_000));
                world.enqueue(thread, 0, operation, 1);
                (0..threads).for_each(|thread| world.round(thread));
                let all = (0..threads).map(|thread| {
                    let key = world.keys[thread][0];
                    world.threads[thread].tally(key).unwrap().waiting
                });
                most = most.max(all.sum::<u32>());
            }
            let limited = world.accounts[0].limited_rounds();
            world.assert_conserved();
            (most, limited)
        };
        let (most, limited) = waits(TokenPoolRules::default());
        assert!(most <= 16, "{most} requests waited on {threads} threads");
        assert_eq!(limited, 0, "its promise is not too small");
        let (most, limited) = waits(no_advance());
        assert!(most > 100, "without an advance, {most} waited");
        assert!(limited > 0);
    }
}

/// The advance of best effort is limited, and only tokens left to best effort restore it.
#[test]
fn who_always_asks_for_more_has_an_advance_once() {
    let rules = TokenPoolRules::default();
    let mut world = World::under(rules, 1, &[critical(100_000), best_effort(100)]);
    let spent = |world: &mut World, asks: bool| {
        let before = world.spent_by(0);
        for _ in 0..50_000 {
            world.pass(Nanos(20_000));
            world.fill(0, 1, PricedOperation::Read, 100);
            if asks {
                world.fill(0, 0, PricedOperation::Read, 64);
            }
            world.round(0);
        }
        (world.spent_by(0) - before).floor()
    };
    let advance = TokenRate(100_000).over(rules.advance).floor();
    let near = |is: i64, expected: i64| is.abs_diff(expected) <= 100;
    let first = spent(&mut world, true);
    assert!(near(first, 100_000 + advance), "{first}");
    assert!(world.accounts[0].limited_rounds() > 1_000, "it is reported");
    let second = spent(&mut world, true);
    assert!(near(second, 100_000), "{second}");
    // After a second without requests, it has an advance again.
    spent(&mut world, false);
    let again = spent(&mut world, true);
    assert!(near(again, 100_000 + advance), "{again}");
    world.assert_conserved();
}

/// A thread may sleep until the deadline without losing tokens.
#[test]
fn a_sleeper_wakes_for_what_waits() {
    let mut world = World::new(1, &[best_effort(1), critical(100_000)]);
    assert_eq!(world.threads[0].deadline(), Time::NEVER);
    for tenant in [0, 1] {
        world.enqueue(0, tenant, PricedOperation::Write, 20);
        world.enqueue(0, tenant, PricedOperation::Write, 1);
        let mut rounds = 0;
        while world.threads[0].waiting() > 0 {
            let deadline = world.threads[0].deadline();
            assert!(deadline <= world.now + ROUND);
            world.now = deadline.max(world.now);
            world.round(0);
            rounds += 1;
            assert!(rounds < 200, "it sleeps for ever");
        }
        // Until it is out of debt, a tenant is visited at times.
        assert!(world.idle(Nanos::from_secs(1)) <= 2);
        assert_eq!(world.threads[0].deadline(), Time::NEVER);
    }
}

/// Real threads: tokens are conserved over all of them.
#[test]
fn threads_at_once_conserve_tokens() {
    let mut world = World::new(4, &[critical(100_000), best_effort(10), best_effort(30)]);
    let keys = world.keys.clone();
    let mut spent = vec![vec![Tokens::ZERO; 3]; 4];
    std::thread::scope(|scope| {
        for ((thread, keys), spent) in world.threads.iter_mut().zip(&keys).zip(&mut spent) {
            scope.spawn(move || {
                let mut now = Time(1);
                for turn in 0..20_000u32 {
                    now = now + Nanos(500);
                    let tenant = turn as usize % 3;
                    let _ =
                        thread.enqueue(keys[tenant], PricedOperation::Write, 1 + turn % 3, tenant);
                    thread.round(now, &mut |tenant, cost| spent[tenant] += cost);
                }
            });
        }
    });
    world.now = Time(1 + 20_000 * 500);
    world.assert_conserved();
    let all: Tokens = spent.iter().flatten().copied().sum();
    let made: Tokens = world
        .threads
        .iter()
        .map(|thread| thread.totals().generated)
        .sum();
    assert!(made <= RATE.over(Nanos(world.now.0)));
    assert!(all > Tokens::ZERO && all <= made + Tokens::whole(NEG_LIMIT_TOKENS) + WRITE);
}

//! Tests of shares: the part that each party leaves for other parties.

use super::*;
use reactor::{Buffer, BufferClass};

fn fill(holding: &mut Holding, pool: &BufferPool, limits: &Limits) -> Vec<Buffer> {
    let mut taken = Vec::new();
    while holding.may_take(4096, pool, limits).is_ok()
        && let Some(buffer) = pool.take(4096)
    {
        holding.take(4096);
        taken.push(buffer);
    }
    taken
}

fn pool(count: usize) -> BufferPool {
    let class = BufferClass { bytes: 4096, count };
    BufferPool::new(&[class]).expect("some MiB")
}

/// Returns a distinct address for each short name.
fn address(host: &str) -> IpAddr {
    let bits = host
        .bytes()
        .fold(0, |bits, byte| bits << 8 | u32::from(byte));
    std::net::Ipv4Addr::from_bits(bits).into()
}

/// Returns the first queue of a host, which may have a tenant.
fn queue(accounts: &mut Accounts, host: &str, tenant: Option<&str>, class: Class) -> Holding {
    let tenant = tenant.map(Arc::from);
    let who = (host, address(host));
    let parties = accounts.parties(Purpose::Data, who, tenant.as_ref(), Some(class));
    let mut holding = Holding::new(accounts.fresh());
    holding.belongs_to(parties);
    holding
}

/// Returns a connection to discovery from the address of a host.
fn discovery(accounts: &mut Accounts, host: &str) -> Holding {
    let mut holding = Holding::new(accounts.fresh());
    holding.belongs_to(accounts.discovery(address(host)));
    holding
}

/// Regression: one connection took all resources of discovery, including those that Connect needed.
#[test]
fn a_connection_to_discovery_leaves_something_for_others() {
    let (pool, limits) = (pool(800), Limits::default());
    let mut accounts = Accounts::default();
    let mut lists = 800;
    let mut held = Vec::new();
    let mut take_all = |mut connection: Holding| {
        let before = lists;
        while connection.parties.may_take_list(lists, 800, &limits) {
            connection.parties.take_lists(1);
            lists -= 1;
        }
        let buffers = fill(&mut connection, &pool, &limits);
        let taken = (buffers.len(), before - lists);
        held.push((connection, buffers));
        taken
    };
    // Two thirds of 1/8 of the buffers, and of half of the lists.
    let (buffers, of_lists) = take_all(discovery(&mut accounts, "a"));
    assert!((60..=70).contains(&buffers), "{buffers}");
    assert_eq!(of_lists, 266);
    // Further connections from its address use the rest of their network's share; another network
    // still gets some.
    for _ in 0..200 {
        take_all(discovery(&mut accounts, "a"));
    }
    let (buffers, of_lists) = take_all(discovery(&mut accounts, "b"));
    assert!(buffers > 0 && of_lists > 0, "{buffers} {of_lists}");
    for network in 0..200 {
        take_all(discovery(&mut accounts, &network.to_string()));
    }
    // Together, they keep out neither a network without holdings nor hosts.
    let late = discovery(&mut accounts, "late");
    assert_eq!(late.may_take(4096, &pool, &limits), Ok(()));
    assert!(late.parties.may_take_list(lists, 800, &limits));
    let neighbour = queue(&mut accounts, "n", None, Class::Latency);
    assert!(neighbour.parties.may_take_list(lists, 800, &limits));
    assert!(lists > 800 / RESERVE_PART && pool.free(0) > 800 / 2);
}

/// Regression: a Read Extents was judged by the bytes that it reads, but took a buffer for each of
/// its extents.
#[test]
fn many_small_buffers_are_judged_by_the_bytes_that_they_are() {
    let (pool, limits) = (pool(80), Limits::default());
    let mut accounts = Accounts::default();
    let mut queue = queue(&mut accounts, "a", None, Class::Latency);
    let _one = pool.take(4096).expect("a buffer");
    queue.take(4096);
    let of = |count| std::iter::repeat_n(512, count);
    // 65 buffers are more than twice the 15 that would be left.
    let judged = queue.may_take_all(of(64), &pool, &limits);
    assert_eq!(judged, Err(Share::Connection));
    assert_eq!(queue.may_take_all(of(40), &pool, &limits), Ok(()));
}

#[test]
fn who_takes_all_it_can_leaves_something_and_an_end_gives_everything_back() {
    let pool = pool(800);
    let limits = Limits {
        connection_buffer_share: 1,
        host_buffer_share: 3,
        ..Limits::default()
    };
    let mut accounts = Accounts::default();
    let greedy = |accounts: &mut Accounts, name| queue(accounts, name, None, Class::Latency);
    let mut first = greedy(&mut accounts, "a");
    let mut second = greedy(&mut accounts, "a");
    let held = [
        fill(&mut first, &pool, &limits),
        fill(&mut second, &pool, &limits),
    ];
    // One connection has half, and its host at most three quarters.
    assert_eq!(held.each_ref().map(Vec::len), [400, 200]);
    assert_eq!(first.may_take(4096, &pool, &limits), Err(Share::Connection));
    let third = greedy(&mut accounts, "a");
    assert_eq!(third.may_take(4096, &pool, &limits), Err(Share::Host));
    let mut other = greedy(&mut accounts, "b");
    assert_eq!(fill(&mut other, &pool, &limits).len(), 100);
    // Its buffers are free again: of 200 free buffers, all of discovery gets 1/8.
    let mut anyones: Vec<_> = (0..9).map(|_| discovery(&mut accounts, "n")).collect();
    let few: Vec<_> = anyones
        .iter_mut()
        .map(|anyone| fill(anyone, &pool, &limits))
        .collect();
    assert_eq!(few.iter().map(Vec::len).sum::<usize>(), 23);
    drop((held, few, first, second, anyones));
    // Two hosts, the network of each, and one network of discovery.
    assert_eq!(
        (accounts.discovery.bytes.get(), accounts.known.len()),
        (0, 5)
    );
    let mut another = discovery(&mut accounts, "n");
    let again = greedy(&mut accounts, "a");
    assert_eq!(again.parties.host.bytes.get(), 0);
    another.take(4096);
    assert_eq!(accounts.discovery.bytes.get(), 4096);
}

/// When hosts hold nearly all buffers, a first connection to discovery gets one buffer, and further
/// connections get none.
#[test]
fn discovery_has_one_buffer_where_hosts_leave_few() {
    let (pool, limits) = (pool(800), Limits::default());
    let mut accounts = Accounts::default();
    let _hosts: Vec<_> = (0..795).map(|_| pool.take(4096)).collect();
    let mut first = discovery(&mut accounts, "a");
    assert_eq!(first.may_take(4096, &pool, &limits), Ok(()));
    first.take(4096);
    let second = discovery(&mut accounts, "b");
    assert_eq!(second.may_take(4096, &pool, &limits), Err(Share::Discovery));
}

#[test]
fn what_a_connection_holds_goes_with_it_and_ends_with_it() {
    let mut accounts = Accounts::default();
    let mut holding = queue(&mut accounts, "a", None, Class::Latency);
    holding.take(4096);
    holding.begin_work(512);
    holding.take_table();
    let who = ("b", address("b"));
    let parties = accounts.parties(Purpose::Data, who, None, Some(Class::Latency));
    holding.belongs_to(Rc::clone(&parties));
    let held = |account: &Account| {
        (
            account.bytes.get(),
            account.work.get(),
            account.tables.get(),
        )
    };
    assert_eq!(held(&accounts.all), (4096, 512, 1));
    assert_eq!(held(&parties.host), (4096, 512, 1));
    drop(holding);
    assert_eq!(held(&accounts.all), (0, 0, 0));
    assert_eq!(held(&parties.host), (0, 0, 0));
}

/// A host without holdings gets one, including tables and work, while 1/16 remains of the resource
/// that its tenant has taken; the remainder is for other tenants.
#[test]
fn hosts_of_a_tenant_have_one_each_until_a_sixteenth_is_left() {
    let pool = pool(64);
    let limits = Limits {
        extent_tables: 64,
        ..Limits::default()
    };
    let mut accounts = Accounts::default();
    let mut hosts: Vec<_> = (0..80)
        .map(|n| queue(&mut accounts, &n.to_string(), Some("many"), Class::Latency))
        .collect();
    let (mut tables, mut works) = (0, 0);
    for host in &mut hosts {
        if host.may_take_table(&limits) {
            host.take_table();
            tables += 1;
        }
        if host.may_work(4096, &pool, &limits).is_ok() {
            host.begin_work(4096);
            works += 1;
        }
    }
    assert_eq!((tables, works), (60, 60));
    let refused = hosts[79].may_work(4096, &pool, &limits);
    assert_eq!(refused, Err(Share::Tenant));
    let other = queue(&mut accounts, "other", Some("few"), Class::Latency);
    assert!(other.may_take_table(&limits) && other.may_work(4096, &pool, &limits).is_ok());
}

/// Regression: a tenant of many hosts, each within its share, held everything.
#[test]
fn a_tenant_of_many_hosts_leaves_buffers_for_another_tenant() {
    let (pool, limits) = (pool(700), Limits::default());
    let mut accounts = Accounts::default();
    let mut taken = Vec::new();
    for host in 0..30 {
        let name = host.to_string();
        let mut queue = queue(&mut accounts, &name, Some("hostile"), Class::Latency);
        taken.push((fill(&mut queue, &pool, &limits), queue));
    }
    let held: usize = taken.iter().map(|(buffers, _)| buffers.len()).sum();
    // Six sevenths; each of its hosts has at least one.
    assert!((600..=630).contains(&held), "{held}");
    let mut neighbour = queue(&mut accounts, "n", Some("quiet"), Class::Latency);
    assert!(fill(&mut neighbour, &pool, &limits).len() >= 40);
}

/// Regression: `Throughput` queues of many hosts, each within its share, held everything.
#[test]
fn throughput_queues_leave_buffers_and_lists_for_latency_queues() {
    let (pool, limits) = (pool(800), Limits::default());
    let mut accounts = Accounts::default();
    let mut taken = Vec::new();
    let mut lists = 800;
    for host in 0..40 {
        let name = host.to_string();
        let mut queue = queue(&mut accounts, &name, None, Class::Throughput);
        while queue.parties.may_take_list(lists, 800, &limits) {
            queue.parties.take_lists(1);
            lists -= 1;
        }
        taken.push((fill(&mut queue, &pool, &limits), queue));
    }
    let mut neighbour = queue(&mut accounts, "n", None, Class::Latency);
    assert!(neighbour.parties.may_take_list(lists, 800, &limits));
    assert!(fill(&mut neighbour, &pool, &limits).len() >= 40);
    // The reserve of admin queues is untouched, and 1/8 of the remainder is free.
    assert!(lists >= 100 + 700 / 8 - 40, "{lists}");
}

#[test]
fn a_host_leaves_send_lists_for_another_one() {
    let limits = Limits::default();
    let mut accounts = Accounts::default();
    let mut lists = 800;
    let mut take_all = |queue: &Holding| {
        let before = lists;
        while queue.parties.may_take_list(lists, 800, &limits) {
            queue.parties.take_lists(1);
            lists -= 1;
        }
        before - lists
    };
    let hostile = queue(&mut accounts, "h", None, Class::Latency);
    // Four fifths of the lists that admin queues leave.
    assert_eq!(take_all(&hostile), 560);
    let neighbour = queue(&mut accounts, "n", None, Class::Latency);
    assert_eq!(take_all(&neighbour), 112);
    // An admin queue gets some, too.
    let parties = accounts.parties(Purpose::Control, ("n", address("n")), None, None);
    assert!(parties.may_take_list(800 - 672, 800, &limits));
    hostile.parties.give_back_lists(560);
    assert_eq!(hostile.parties.host.lists.get(), 0);
}

/// Regression: one machine got a list, a buffer and some work under each name that it used, until
/// nothing was left; the same with HOSTIDs, which counted as names.
#[test]
fn who_has_many_names_leaves_something_for_another_host() {
    let limits = Limits::default();
    let large = BufferClass {
        bytes: 1 << 20,
        count: 16,
    };
    // Buffers of the requested size are few among all buffers.
    let small = BufferClass {
        bytes: 4096,
        count: 8192,
    };
    let pool = BufferPool::new(&[small, large]).expect("some MiB");
    for tenant in [None, Some("hostile")] {
        let mut accounts = Accounts::default();
        let (mut taken, mut lists) = (Vec::new(), 64);
        for name in 0..900 {
            let who = (&*format!("nqn.{name}"), address("h"));
            let tenant = tenant.map(Arc::from);
            let data = accounts.parties(Purpose::Data, who, tenant.as_ref(), None);
            let control = accounts.parties(Purpose::Control, who, tenant.as_ref(), None);
            for parties in [&data, &control] {
                if parties.may_take_list(lists, 64, &limits) {
                    parties.take_lists(1);
                    lists -= 1;
                }
            }
            let mut holding = Holding::new(accounts.fresh());
            holding.belongs_to(data);
            let buffer = holding.may_take(1 << 20, &pool, &limits).ok();
            let buffer = buffer.and_then(|()| pool.take(1 << 20));
            holding.take(buffer.as_ref().map_or(0, |_| 1 << 20));
            if holding.may_work(1 << 20, &pool, &limits).is_ok() {
                holding.begin_work(1 << 20);
            }
            taken.push((holding, buffer));
        }
        let mut neighbour = queue(&mut accounts, "n", Some("quiet"), Class::Latency);
        assert!(
            neighbour.parties.may_take_list(lists, 64, &limits),
            "{lists}"
        );
        assert_eq!(neighbour.may_take(1 << 20, &pool, &limits), Ok(()));
        assert!(pool.take(1 << 20).is_some());
        assert_eq!(neighbour.may_work(1 << 20, &pool, &limits), Ok(()));
        neighbour.begin_work(1 << 20);
        let (all, work) = (pool.bytes().0 as u64, accounts.all.work.get());
        assert!(work <= all, "{work} of {all}");
    }
}

#[test]
fn a_host_is_one_by_its_name() {
    let mut accounts = Accounts::default();
    let first = queue(&mut accounts, "a", None, Class::Latency);
    let who = ("a", address("elsewhere"));
    let second = accounts.parties(Purpose::Data, who, None, None);
    assert!(Rc::ptr_eq(&first.parties.host, &second.host));
    assert!(!Rc::ptr_eq(&first.parties.group, &second.group));
}

/// A host that takes as much as it can, and other hosts behind the same address translation.
#[test]
fn hosts_at_one_address_find_something_each() {
    let (pool, limits) = (pool(800), Limits::default());
    let mut accounts = Accounts::default();
    let mut held = Vec::new();
    for (name, expected) in [("a", 533), ("b", 152), ("c", 1), ("d", 1)] {
        let parties = accounts.parties(Purpose::Data, (name, address("nat")), None, None);
        let mut queue = Holding::new(accounts.fresh());
        queue.belongs_to(parties);
        let buffers = fill(&mut queue, &pool, &limits);
        assert_eq!(buffers.len(), expected, "{name}");
        held.push((queue, buffers));
    }
    let mut neighbour = queue(&mut accounts, "n", None, Class::Latency);
    assert!(fill(&mut neighbour, &pool, &limits).len() >= 40);
}

/// Regression: a host with thousands of queues had all extent tables.
#[test]
fn a_host_leaves_tables_of_extents_for_another_one() {
    let (limits, mut accounts) = (Limits::default(), Accounts::default());
    let mut greedy: Vec<_> = (0..200)
        .map(|_| queue(&mut accounts, "g", None, Class::Latency))
        .collect();
    for holding in &mut greedy {
        while holding.tables() < 64 && holding.may_take_table(&limits) {
            holding.take_table();
        }
    }
    let (taken, all) = (accounts.tables(), limits.extent_tables as u64);
    let share = all / 2..all * 5 / 6;
    assert!(greedy[0].tables == 64 && share.contains(&taken), "{taken}");
    let mut neighbour = queue(&mut accounts, "n", None, Class::Latency);
    assert!(neighbour.may_take_table(&limits));
    neighbour.take_table();
    // The queue is charged to a tenant.
    let tenant = Arc::from("quiet");
    let parties = accounts.parties(Purpose::Data, ("n", address("n")), Some(&tenant), None);
    neighbour.belongs_to(parties);
    neighbour.give_back_table();
    drop(greedy);
    assert_eq!(accounts.tables(), 0);
}

//! Unloaded latency of a stack, with one request at a time. `[ReFlex §5.2, Table 2]`
//!
//! The storage is a file in memory that all stacks can share, so the numbers show the stacks and
//! the loopback alone; the paper's flash would add 78 µs to a read and 11 µs to a write.

use crate::figure::plan::{Axis, Panel, Plan, claims};
use crate::figure::sample::{Metric, Statistic};
use crate::figure::scenario::{LOAD_CORE, Layout, Scenario, Stack, Storage, System, Workload};
use crate::figure::{Figure, Work};
use crate::plain::Wait;
use switch::Class;
use switch::knobs::Preset;

const AVERAGE: Metric = Metric::Latency(Class::Throughput, Statistic::Average);
const P95: Metric = Metric::Latency(Class::Throughput, Statistic::P95);

const READ: &str = "read";
const WRITE: &str = "write";

const LOCAL: System = other("local", Stack::Local);
const SWITCHYARD: System = System::OWN_LANES;
const SLEEPS: System = System {
    name: "switchyard, sleeps",
    turned: &["--poll", "never"],
    ..System::OWN_LANES
};
const PLAIN: System = other("plain", Stack::Plain(Wait::Sleeps));
const PLAIN_POLLS: System = other("plain, client polls", Stack::Plain(Wait::Polls));
const NBD: System = other("nbd", Stack::Nbd);
const ISCSI: System = other("iscsi", Stack::Iscsi);

/// Adjacent systems are compared.
const SYSTEMS: [System; 7] = [LOCAL, SWITCHYARD, PLAIN_POLLS, SLEEPS, PLAIN, NBD, ISCSI];

const fn other(name: &'static str, stack: Stack) -> System {
    System {
        stack,
        own_lanes: true,
        ..System::of(name, Preset::Switchyard)
    }
}

/// Table 2.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "reflex-table2",
    title: "Latency without load",
    paper: "ReFlex §5.2, Table 2",
    workload: "4 KiB at random, one request at a time, of a file in memory; server on core 0, client \
               on core 1: local, this stack, a plain server of epoll and pread, NBD (nbdkit and \
               fio) and iSCSI (tgt and iscsi-perf)",
    work: Work::Machine(|_| plan()),
};

fn plan() -> Plan {
    let mut plan = Plan::over(Axis::new("4 KiB at random", "", [READ, WRITE]));
    for (tick, read_percent) in [(READ, 100), (WRITE, 0)] {
        for system in SYSTEMS {
            // `iscsi-perf` only supports reads.
            if system.stack == Stack::Iscsi && tick == WRITE {
                continue;
            }
            plan.run(system.name, tick, scenario(system, read_percent));
        }
    }
    let mut plan = plan.showing([Panel::bars(AVERAGE), Panel::bars(P95)]);
    claims(&mut plan);
    plan
}

fn scenario(system: System, read_percent: u8) -> Scenario {
    let app = Workload {
        class: Class::Throughput,
        read_percent,
        ..Workload::latency(1).on(LOAD_CORE)
    };
    Scenario::on(system, Layout::Split, Storage::File, vec![app])
}

fn claims(plan: &mut Plan) {
    let both = [READ, WRITE];
    let own = SWITCHYARD.name;
    claims! { plan;
        "plain"
            "a plain server on Linux takes 1.6 times as long on average to read, 3 times \
             to write":
            AVERAGE, (PLAIN.name) / own >= 1.2, at both;
        "plain-p95" "and at p95 as well":
            P95, (PLAIN.name) / own >= 1.2, at both;
        "polls" "with a better client it still takes 1.2 times as long to read, 3.8 times to write":
            AVERAGE, (PLAIN_POLLS.name) / own >= 1.0, at both;
        "sleeps" "(ours) without polling, this stack adds about as much as the plain server":
            AVERAGE, (SLEEPS.name) / (PLAIN.name) <= 1.25, at both;
        "iscsi" "iSCSI takes 1.8 times as long on average to read":
            AVERAGE, (ISCSI.name) / own >= 1.5, at [READ];
        "nbd" "(ours) NBD takes longer as well":
            AVERAGE, (NBD.name) / own >= 1.2, at both;
    }
}

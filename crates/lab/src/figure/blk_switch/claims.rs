//! Claims of the paper on figures that are measured on two cores and simulated on six, with the
//! numbers of all figures.

use crate::figure::plan::{Plan, claims};
use crate::figure::sample::{Metric, Statistic};
use std::fmt::Display;
use switch::Class;

pub(in crate::figure) const AVERAGE: Metric = Metric::Latency(Class::Latency, Statistic::Average);
pub(in crate::figure) const P99: Metric = Metric::Latency(Class::Latency, Statistic::P99);
pub(in crate::figure) const P999: Metric = Metric::Latency(Class::Latency, Statistic::P999);
pub(in crate::figure) const THROUGHPUT: Metric = Metric::Throughput(Some(Class::Throughput));
pub(in crate::figure) const TOTAL: Metric = Metric::Throughput(None);

/// Figs. 7 and 9: any number of L-apps alongside T-apps.
pub(super) fn many(plan: &mut Plan, ticks: &[impl Display]) {
    claims! { plan;
        "average-linux" "28 to 110× lower average latency than Linux":
            AVERAGE, "linux" / "switchyard" >= 10.0, at ticks;
        "p99-linux" "10 to 25× lower p99 than Linux":
            P99, "linux" / "switchyard" >= 8.0, at ticks;
        "throughput-linux" "all that for 5 to 10 % of Linux' throughput":
            TOTAL, "switchyard" / "linux" >= 0.9, at ticks;
    }
}

/// Fig. 7, with pollers that share cores.
pub(super) fn many_poll_average(plan: &mut Plan, ticks: &[impl Display]) {
    claims! { plan;
        "average-poll" "2 to 12× lower average latency than polling":
            AVERAGE, "poll" / "switchyard" >= 2.0, at ticks;
    }
}

/// Fig. 10: sufficient load of T-apps.
pub(super) fn load(plan: &mut Plan, ticks: &[impl Display]) {
    claims! { plan;
        "average-linux" "5 to 33× lower average latency than Linux":
            AVERAGE, "linux" / "switchyard" >= 5.0, at ticks;
        "p99-linux" "2 to 8× lower p99 than Linux":
            P99, "linux" / "switchyard" >= 2.0, at ticks;
    }
}

//! Claims of the paper about figures that are measured on two cores and simulated on six.

use crate::figure::claim::Bound::AtLeast;
use crate::figure::plan::SeriesClaim;
use crate::figure::sample::{Metric, Statistic};
use switch::Class;

pub(in crate::figure) const AVERAGE: Metric = Metric::Latency(Class::Latency, Statistic::Average);
pub(in crate::figure) const P99: Metric = Metric::Latency(Class::Latency, Statistic::P99);
pub(in crate::figure) const TOTAL: Metric = Metric::Throughput(None);

/// Figs. 7 and 9: any number of L-apps beside T-apps.
pub(in crate::figure) const MANY: [SeriesClaim; 3] = [
    SeriesClaim {
        name: "average-linux",
        says: "28 to 110× lower average latency than Linux",
        metric: AVERAGE,
        of: "linux",
        to: "switchyard",
        bound: AtLeast(10.0),
    },
    SeriesClaim {
        name: "p99-linux",
        says: "10 to 25× lower p99 than Linux",
        metric: P99,
        of: "linux",
        to: "switchyard",
        bound: AtLeast(8.0),
    },
    SeriesClaim {
        name: "throughput-linux",
        says: "all that for 5 to 10 % of Linux' throughput",
        metric: TOTAL,
        of: "switchyard",
        to: "linux",
        bound: AtLeast(0.9),
    },
];

/// Fig. 7, where pollers share cores.
pub(in crate::figure) const MANY_POLL_AVERAGE: SeriesClaim = SeriesClaim {
    name: "average-poll",
    says: "2 to 12× lower average latency than polling",
    metric: AVERAGE,
    of: "poll",
    to: "switchyard",
    bound: AtLeast(2.0),
};

/// Fig. 10: enough load of T-apps.
pub(in crate::figure) const LOAD: [SeriesClaim; 2] = [
    SeriesClaim {
        name: "average-linux",
        says: "5 to 33× lower average latency than Linux",
        metric: AVERAGE,
        of: "linux",
        to: "switchyard",
        bound: AtLeast(5.0),
    },
    SeriesClaim {
        name: "p99-linux",
        says: "2 to 8× lower p99 than Linux",
        metric: P99,
        of: "linux",
        to: "switchyard",
        bound: AtLeast(2.0),
    },
];

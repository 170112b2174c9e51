//! Fig. 15: contribution of each mechanism.

use super::{AVERAGE, P99, THROUGHPUT};
use crate::figure::plan::{Axis, Extent, Panel, Plan, cell, claims};
use crate::figure::scenario::{Layout, Scenario, Storage, System, TARGET_CORE, Workload};
use crate::figure::{Figure, Work};
use switch::knobs::{Ablation, Preset};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-15",
    title: "What prioritisation, request steering and application steering add",
    paper: "blk-switch §5.4, Fig. 15",
    workload: "1 L-app (4 KiB, depth 1) and 1 T-app (64 KiB × 32), both pinned to core 0 until the \
               last step may move them; the target on both cores",
    work: Work::Machine(plan),
};

const SERIES: &str = "steps of the switch";

/// Each step adds one mechanism to the previous steps; the names are those of the paper's axis.
const STEPS: [(&str, Ablation); 4] = [
    ("-P -RS -AS", Ablation::Nothing),
    ("-RS -AS", Ablation::Prioritisation),
    ("-AS", Ablation::RequestSteering),
    ("all", Ablation::ApplicationSteering),
];

fn plan(_: Extent) -> Plan {
    let mut plan = Plan::over(Axis::new("blk-switch", "", STEPS.map(|(name, _)| name)));
    for (name, step) in STEPS {
        let system = System {
            t_depth: 32,
            ..System::of(name, Preset::Ablation(step))
        };
        let apps = [Workload::latency(1), Workload::throughput(1, &system)];
        let apps = apps.map(|app| {
            // Pinned applications are never moved.
            if system.places_applications() {
                app
            } else {
                app.on(TARGET_CORE)
            }
        });
        let scenario = Scenario::on(system, Layout::Shared, Storage::Memory, apps.to_vec());
        plan.run(SERIES, name, scenario);
    }
    let [nothing, priority, steered, all] = STEPS.map(|(name, _)| cell(SERIES, name));
    claims! { plan;
        "prioritisation" "prioritisation alone reduces the tail by an order of magnitude":
            P99, nothing / (priority.clone()) >= 5.0;
        "request-steering"
            "request steering gives the T-app the throughput back that prioritisation cost":
            THROUGHPUT, (steered.clone()) / priority >= 1.0;
        "application-steering-tail"
            "application steering takes the tail back that request steering cost":
            P99, (all.clone()) / (steered.clone()) <= 1.0;
        "application-steering-throughput" "and keeps the throughput":
            THROUGHPUT, all / steered >= 0.95;
    }
    plan.showing([AVERAGE, P99, THROUGHPUT].map(Panel::bars))
}

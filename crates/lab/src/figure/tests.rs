//! Definitions, claims, reports and pictures, with a runner that invents its numbers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use super::measure::{Effort, Runner, measure};
use super::plan::{Plan, cell, claims};
use super::*;
use anyhow::Result;
use load::RunSummary;
use load::SwitchReport;
use load::{
    App, AppReport, ClassSwitchReport, CoreSwitchReport, CpuShares, Latency, PathReport,
    SoftwareTime,
};
use sim::model::Costs;
use sim::model::figures::Series;
use std::collections::BTreeSet;
use std::time::Duration;
use switch::Class;

/// Returns numbers that grow from run to run.
#[derive(Debug, Default)]
struct Invented {
    runs: Vec<(&'static str, u64)>,
}

impl Runner for Invented {
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample> {
        self.runs.push((scenario.system.name, effort.seed));
        let number = self.runs.len() as f64;
        let app = |app: &Workload| AppSample {
            class: app.class,
            iops: 1000.0 * number,
            bytes_per_second: 1e9,
            latency: Latency {
                avg: 10.0 * number,
                p50: 10.0 * number,
                p95: 10.0 * number,
                p99: 20.0 * number,
                p999: 30.0 * number,
                max: 40.0 * number,
            },
            software: Some(SoftwareTime { avg: 2.0, p50: 1.0 }),
        };
        let slice = Duration::from_millis(3);
        let sends = Sends {
            sends: 10,
            single: 1,
            bytes: 7200,
        };
        Ok(Sample {
            apps: scenario.apps().map(app).collect(),
            host_cores: 0.5,
            target_cores: 0.75,
            disturbance: Disturbance::default(),
            slices: Some(Slices {
                run: slice,
                wait: slice,
            }),
            host_sends: sends,
            target_sends: sends,
            path: Some(PathReport {
                path: "stm".to_owned(),
                commands: 4,
                merged_mean: 2.0,
                merged: vec![(1, 3), (5, 1)],
                elections_won: 1,
                elections_lost: 7,
                taken_over: 0,
                cpu: CpuShares {
                    user: 40.0,
                    system: 10.0,
                    wait: 20.0,
                    idle: 30.0,
                },
            }),
        })
    }
}

const EFFORT: Effort = Effort {
    runs: 3,
    measured: Duration::from_secs(2),
    warmup: Duration::ZERO,
    seed: 7,
};

/// The figures with a plan, which the machine or the model of I/O paths runs.
fn planned(extent: Extent) -> impl Iterator<Item = (&'static Figure, Plan)> {
    FIGURES.iter().filter_map(move |figure| match figure.work {
        Work::Machine(plan) | Work::Paths(plan, _) => Some((figure, plan(extent))),
        Work::Simulated(_) => None,
    })
}

fn plan_of(name: &str, extent: Extent) -> Plan {
    let mut figures = planned(extent);
    figures.find(|(figure, _)| figure.name == name).unwrap().1
}

fn report(figure: &Figure, extent: Extent) -> FigureReport {
    let plan = plan_of(figure.name, extent);
    let measured = measure(&plan, &EFFORT, &mut Invented::default(), &mut |_| {}).unwrap();
    let numbers = |cell: &_, metric| measured.numbers(&plan, cell, metric);
    FigureReport::of(figure, &plan, &plan.cells(), extent, &EFFORT, numbers).unwrap()
}

fn check_plan(name: &str, plan: &Plan) {
    let unique = |words: Vec<String>| {
        let count = words.len();
        assert_eq!(
            words.into_iter().collect::<BTreeSet<_>>().len(),
            count,
            "{name}"
        );
    };
    unique(plan.x.ticks.clone());
    unique(
        plan.claims
            .iter()
            .map(|claim| claim.name.to_owned())
            .collect(),
    );
    unique(
        plan.points
            .iter()
            .map(|point| point.cell.to_string())
            .collect(),
    );
    assert!(!plan.claims.is_empty(), "{name} claims nothing");
    for point in &plan.points {
        assert!(
            plan.x.ticks.contains(&point.cell.tick),
            "{name}: {}",
            point.cell
        );
        assert!(point.scenario.apps().count() > 0, "{name}: {}", point.cell);
        for app in point.scenario.apps() {
            assert!(app.text("L0").parse::<App>().is_ok(), "{name}: {app:?}");
        }
    }
    for claim in &plan.claims {
        assert!(!claim.comparisons.is_empty(), "{name}: {}", claim.name);
        for Comparison { of, to } in &claim.comparisons {
            assert!(plan.position(of).is_some(), "{name}: {of}");
            if let Divisor::Cell(to) = to {
                assert!(plan.position(to).is_some(), "{name}: {to}");
            }
        }
    }
}

#[test]
fn every_definition_is_consistent_in_both_extents() {
    let names: BTreeSet<_> = FIGURES.iter().map(|figure| figure.name).collect();
    assert_eq!(names.len(), FIGURES.len());
    for extent in [Extent::Full, Extent::Quick] {
        for (figure, plan) in planned(extent) {
            check_plan(figure.name, &plan);
            let report = report(figure, extent);
            for panel in &plan.panels {
                let shown = |tick: &String| {
                    let mut series = plan.series.iter();
                    series.any(|series| report.at(series, tick, panel.metric).is_some())
                };
                let metric = panel.metric.key();
                assert!(plan.x.ticks.iter().any(shown), "{}: {metric}", figure.name);
            }
            assert_eq!(report.claims.len(), plan.claims.len());
        }
    }
}

/// A path with ten times the thesis' value is not the thesis' path either.
#[test]
fn claims_of_the_thesis_have_two_bounds() {
    for figure in FIGURES.iter().filter(|f| f.name.contains("thesis")) {
        let mut plan = Plan::over(Axis::new("", "", [""]));
        match figure.work {
            Work::Machine(of) | Work::Paths(of, _) => plan = of(Extent::Full),
            Work::Simulated(simulation) => (simulation.claims)(&mut plan),
        }
        for claim in plan.claims {
            let order = |bound: f64| (0.95..=1.05).contains(&bound);
            let fits = match claim.bound {
                Bound::Between(least, most) => {
                    least < most && (most <= 4.0 * least || order(least) || order(most))
                }
                // A goal of this project: exceeding it is no failure.
                Bound::AtLeast(_) | Bound::AtMost(_) => claim.says.starts_with("(ours)"),
            };
            assert!(fits, "{}: {}", figure.name, claim.name);
        }
    }
}

#[test]
fn the_page_has_every_figure() {
    let page = include_str!("../../../../docs/results/figures.md");
    // A row's first cell has one name or several: `a`, `b`.
    let cell = |line: &'static str| Some(line.strip_prefix("| `")?.split_once("` |")?.0);
    let rows = page.lines().filter_map(cell);
    let documented: Vec<_> = rows.flat_map(|cell| cell.split("`, `")).collect();
    let names: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
    assert_eq!(documented, names, "in the order of the list");
}

#[test]
fn every_goal_can_be_run_and_judged() {
    let goals = goals::all();
    let plan = goals::plan(&goals);
    check_plan("goals", &plan);
    let measured = measure(&plan, &EFFORT, &mut Invented::default(), &mut |_| {}).unwrap();
    let mut depths = Vec::new();
    let mut cost = |depth| {
        depths.push(depth);
        Ok(100.0 * f64::from(depth))
    };
    let judged = goals::judge(&goals, &plan, &measured, &EFFORT, &mut cost).unwrap();
    assert_eq!(judged.len(), goals.len());
    assert_eq!(depths, [1, 1, 1, 16, 16, 16]);
    for (goal, judged) in goals.iter().zip(&judged) {
        match judged {
            goals::Judged::Quotient(quotient) => assert_eq!(quotient.verdict.name, goal.name),
            goals::Judged::Number(verdict) => {
                assert_eq!(verdict.name, goal.name);
                let depth = verdict.number.median / 100.0;
                assert_eq!(verdict.holds, depth <= 3.0, "{verdict:?}");
            }
        }
    }
    // Equal names must mean equal scenarios, or the comparison would be wrong.
    for goal in &goals {
        let alone = goals::plan(std::slice::from_ref(goal));
        for point in alone.points {
            let there = plan.position(&point.cell).unwrap();
            assert_eq!(plan.points[there], point, "{}", goal.name);
        }
    }
}

#[test]
fn what_the_machine_does_not_allow_is_missed_and_out_of_reach() {
    let judged = |quotient: [f64; 2], limit: Option<f64>| {
        let verdict = judge(Bound::AtLeast(10.0));
        let [of, to] = quotient;
        let quotient = RunSummary::of(&[of / to]).unwrap();
        let verdict = Verdict {
            holds: verdict.bound.holds(quotient.median),
            quotient,
            ..verdict
        };
        let limit = limit.map(|limit| RunSummary::of(&[limit]).unwrap());
        goals::QuotientVerdict { verdict, limit }
    };
    assert!(judged([9.0, 1.0], Some(9.5)).is_out_of_reach());
    assert!(!judged([9.0, 1.0], Some(10.5)).is_out_of_reach());
    assert!(!judged([9.0, 1.0], None).is_out_of_reach());
    // Kept nevertheless: the quieter run was this stack's.
    assert!(!judged([11.0, 1.0], Some(9.5)).is_out_of_reach());
    let limited = goals::all();
    let plan = goals::plan(&limited);
    let measured = measure(&plan, &EFFORT, &mut Invented::default(), &mut |_| {}).unwrap();
    let judged = goals::judge(&limited, &plan, &measured, &EFFORT, &mut |_| Ok(1.0)).unwrap();
    let limits = judged.iter().filter_map(|judged| match judged {
        goals::Judged::Quotient(quotient) => quotient.limit.map(|_| quotient.verdict.name),
        goals::Judged::Number(_) => None,
    });
    assert_eq!(
        limits.collect::<Vec<_>>(),
        [
            "split-linux-p99",
            "split-nvme-tcp-p99",
            "many-l-p99",
            "poll-open-p99",
            "poll-closed-p999"
        ]
    );
}

#[test]
fn names_mean_a_figure_or_its_parts_or_all() {
    let names = |name| -> Vec<_> { named(name).iter().map(|figure| figure.name).collect() };
    assert_eq!(names("blk-switch-7"), ["blk-switch-7"]);
    assert_eq!(names("blk-switch-3").len(), 4);
    assert_eq!(names("blk-switch-3c"), ["blk-switch-3c"]);
    assert_eq!(names("all").len(), FIGURES.len());
    for nothing in ["", "blk-switch", "blk-switch-1", "fig7"] {
        assert!(names(nothing).is_empty(), "{nothing}");
    }
}

/// A plan of two systems at two ticks, and the samples of two runs of each: system "a" takes `a` µs
/// at each tick, system "b" takes `b`.
fn two(a: [[f64; 2]; 2], b: [[f64; 2]; 2]) -> (Plan, Vec<Vec<Sample>>) {
    let mut plan = Plan::over(Axis::new("Apps", "", [1, 2]));
    let mut samples = Vec::new();
    for (series, numbers) in [("a", a), ("b", b)] {
        for (tick, runs) in [1, 2].into_iter().zip(numbers) {
            let scenario = Scenario::mix(System::LINUX, Layout::Split, 1, 0);
            plan.run(series, tick, scenario);
            samples.push(runs.map(latency_of).to_vec());
        }
    }
    (plan, samples)
}

fn latency_of(avg: f64) -> Sample {
    let latency = Latency {
        avg,
        ..Latency::default()
    };
    let app = AppSample {
        class: Class::Latency,
        iops: 1.0,
        bytes_per_second: 1.0,
        latency,
        software: None,
    };
    Sample {
        apps: vec![app],
        ..Sample::default()
    }
}

fn judge(bound: Bound) -> Verdict {
    let (plan, samples) = two([[10.0, 30.0], [10.0, 10.0]], [[5.0, 10.0], [10.0, 10.0]]);
    let claim = Claim {
        name: "faster",
        says: "b is faster than a",
        metric: Metric::Latency(Class::Latency, Statistic::Average),
        comparisons: [1, 2]
            .map(|tick| Comparison {
                of: cell("a", tick),
                to: cell("b", tick).into(),
            })
            .to_vec(),
        bound,
    };
    let measured = Measured { samples };
    let numbers = |cell: &_, metric| measured.numbers(&plan, cell, metric);
    claim.judge(numbers).unwrap()
}

#[test]
fn the_worst_comparison_decides_whether_all_hold() {
    let verdict = judge(Bound::AtLeast(2.0));
    assert!(!verdict.holds);
    assert_eq!(verdict.compared, "a at 2 / b at 2");
    assert_eq!(verdict.quotient.median, 1.0);
    assert!(judge(Bound::AtLeast(1.0)).holds);
    let verdict = judge(Bound::AtMost(2.0));
    assert!(!verdict.holds);
    assert_eq!(verdict.compared, "a at 1 / b at 1");
    // Divided per repetition: 10 by 5 and 30 by 10.
    assert_eq!(verdict.quotient.median, 2.5);
    assert_eq!((verdict.quotient.min, verdict.quotient.max), (2.0, 3.0));
}

#[test]
fn what_was_not_measured_is_no_verdict() {
    let (plan, mut samples) = two([[1.0; 2]; 2], [[1.0; 2]; 2]);
    samples[0] = vec![Sample::default(); 2];
    let claim = |of| Claim {
        name: "c",
        says: "",
        metric: Metric::Latency(Class::Latency, Statistic::Average),
        comparisons: vec![Comparison {
            of,
            to: cell("b", 1).into(),
        }],
        bound: Bound::AtLeast(1.0),
    };
    let measured = Measured { samples };
    let numbers = |cell: &_, metric| measured.numbers(&plan, cell, metric);
    let error = |of| claim(of).judge(numbers).unwrap_err().to_string();
    assert_eq!(error(cell("a", 1)), "c: no l_avg_us of a at 1 was measured");
    assert_eq!(error(cell("z", 1)), "c: no l_avg_us of z at 1 was measured");
    let numbers = |cell: &Cell, _| Some(vec![if cell.series == "a" { 1.0 } else { 0.0 }]);
    let error = claim(cell("a", 1)).judge(numbers).unwrap_err().to_string();
    assert!(error.contains("l_avg_us of b at 1 was 0"), "{error}");
}

#[test]
fn repetitions_run_everything_in_turns() {
    let plan = plan_of("blk-switch-7", Extent::Quick);
    let mut runner = Invented::default();
    let mut seen = Vec::new();
    measure(&plan, &EFFORT, &mut runner, &mut |progress| {
        seen.push((progress.done, progress.total));
    })
    .unwrap();
    let points = plan.points.len();
    assert_eq!(seen.first(), Some(&(0, 3 * points)));
    assert_eq!(seen.last(), Some(&(3 * points - 1, 3 * points)));
    let of_run = |seed| {
        let runs = runner.runs.iter().filter(|(_, of)| *of == seed);
        runs.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    let (first, second) = (of_run(7), of_run(8));
    assert_eq!(first.len(), points);
    assert_eq!(second[..points - 1], first[1..], "another begins");
}

#[test]
fn applications_of_a_class_count_by_their_requests() {
    let mut sample = latency_of(10.0);
    sample.apps.push(AppSample {
        iops: 3.0,
        ..latency_of(50.0).apps[0]
    });
    let average = Metric::Latency(Class::Latency, Statistic::Average);
    assert_eq!(average.of(&sample), Some(40.0));
    assert_eq!(
        Metric::Throughput(Some(Class::Throughput)).of(&sample),
        None
    );
    assert_eq!(Metric::Throughput(None).of(&sample), Some(2.0 * 8.0 / 1e9));
    // A starving application has throughput, which is 0, and no latency.
    let mut starved = latency_of(10.0);
    starved.apps[0].iops = 0.0;
    starved.apps[0].bytes_per_second = 0.0;
    assert_eq!(average.of(&starved), None);
    assert_eq!(Metric::Throughput(None).of(&starved), Some(0.0));
    // No processor was used, so there is no quotient.
    assert_eq!(Metric::ThroughputPerCore.of(&sample), None);
}

#[test]
fn sends_are_those_of_all_cores_and_classes_since_a_moment() {
    let class = |sizes: &[u64], sent_bytes| ClassSwitchReport {
        sizes: sizes.to_vec(),
        sent_bytes,
        ..ClassSwitchReport::default()
    };
    let classes = [
        ("latency".to_owned(), class(&[3], 216)),
        ("throughput".to_owned(), class(&[1, 0, 2], 720)),
    ];
    let core = CoreSwitchReport {
        classes: classes.into(),
        ..CoreSwitchReport::default()
    };
    let board = SwitchReport {
        cores: vec![core.clone(), core],
        ..SwitchReport::default()
    };
    let before = Sends::of_host(&[]);
    assert_eq!(Metric::SendBytes(End::Host).of(&Sample::default()), None);
    let one = Sends::of_host(std::slice::from_ref(&board)).since(before);
    let both = Sends::of_host(&[board.clone(), board]).since(one);
    assert_eq!(both, one);
    let sample = Sample {
        host_sends: both,
        ..Sample::default()
    };
    let of = |metric: Metric| metric.of(&sample).unwrap();
    assert_eq!(of(Metric::SendBytes(End::Host)), 156.0);
    assert_eq!(of(Metric::SingleSends(End::Host)).round(), 67.0);
    assert_eq!(Metric::SendBytes(End::Target).of(&sample), None);
}

#[test]
fn reports_of_failed_requests_are_refused() {
    let scenario = Scenario::mix(System::LINUX, Layout::Split, 1, 0);
    let reported = AppReport {
        name: "L0".to_owned(),
        iops: 1.0,
        bytes_per_second: 4096.0,
        ..AppReport::default()
    };
    let of = |reports: &[AppReport]| Sample::of_reports(&scenario, reports);
    assert_eq!(of(std::slice::from_ref(&reported)).unwrap().apps.len(), 1);
    assert!(of(&[]).unwrap_err().to_string().contains("0 applications"));
    let failed = AppReport {
        errors: 2,
        first_error: Some("no path".to_owned()),
        ..reported.clone()
    };
    assert!(of(&[failed]).unwrap_err().to_string().contains("no path"));
    let idle = AppReport {
        iops: 0.0,
        ..reported
    };
    assert!(of(&[idle]).unwrap_err().to_string().contains("for longer"));
}

#[test]
fn json_and_csv_hold_every_number() {
    let report = report(named("blk-switch-2")[0], Extent::Full);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["figure"], "blk-switch-2");
    assert_eq!(json["runs"], 3);
    assert_eq!(json["x"]["ticks"][0], "L alone");
    let points = json["points"].as_array().unwrap();
    assert_eq!(points.len(), 15);
    let first = &points[0]["values"][0];
    assert_eq!(first["metric"], "l_avg_us");
    assert_eq!(first["unit"], "µs");
    assert_eq!(first["runs"].as_array().unwrap().len(), 3);
    for key in ["median", "min", "max"] {
        assert!(first[key].as_f64().unwrap() > 0.0, "{key}");
    }
    let claim = &json["claims"][0];
    assert!(claim["holds"].is_boolean() && claim["quotient"]["median"].is_f64());
    assert_eq!(claim["bound"], "≥ 3");
    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);

    let csv = report.csv();
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines[0], "figure,series,x,metric,unit,median,min,max,runs");
    let values: usize = report.points.iter().map(|point| point.values.len()).sum();
    assert_eq!(lines.len(), 1 + values);
    for line in &lines {
        assert_eq!(line.matches(',').count(), 8, "{line}");
    }
    assert!(lines[1].starts_with("blk-switch-2,linux,L alone,l_avg_us,µs,"));
}

#[test]
fn tables_say_what_holds() {
    let mut report = report(named("blk-switch-7")[0], Extent::Quick);
    for (claim, holds) in report.claims.iter_mut().zip([true, false]) {
        claim.holds = holds;
    }
    let text = report.to_string();
    assert!(
        text.contains("holds   average-linux: l_avg_us linux at"),
        "{text}"
    );
    assert!(text.contains("FAILS   p99-linux"), "{text}");
    assert!(text.contains("total_gbit_per_s"), "{text}");
    assert!(!report.holds());
}

#[test]
fn pictures_name_their_axes_units_and_series() {
    for (figure, _) in planned(Extent::Full) {
        let report = report(figure, Extent::Full);
        let svg = plot::svg(&report).unwrap();
        // Escapes text as the drawing backend does.
        let escaped = |text: &str| text.replace('\'', "&apos;");
        let mut words = vec![report.x.label.to_owned(), figure.title.to_owned()];
        words.extend(report.series.iter().map(|&name| name.to_owned()));
        words.extend(report.x.ticks.iter().cloned());
        for panel in &report.panels {
            words.push(format!(
                "{} ({})",
                panel.metric.label(),
                panel.metric.unit()
            ));
        }
        for word in words {
            assert!(svg.contains(&escaped(&word)), "{}: {word}", figure.name);
        }
        assert!(svg.starts_with("<svg") && svg.contains("whiskers"));
    }
}

/// Regression: ten names below one panel overlapped.
#[test]
fn many_names_have_a_wide_panel() {
    let width = |name: &str| {
        let svg = plot::svg(&report(named(name)[0], Extent::Full)).unwrap();
        svg.split('"').nth(1).unwrap().to_owned()
    };
    assert_eq!(width("sim-thesis-17"), "1040");
    assert_eq!(width("sim-thesis-12"), "520");
}

/// Regression: long titles were cut off in a picture with one panel.
#[test]
fn a_long_title_ends_within_its_picture() {
    let report = report(named("sim-thesis-18")[0], Extent::Full);
    let svg = plot::svg(&report).unwrap();
    // The first text in the picture.
    let size = svg.split("font-size=\"").nth(1).unwrap();
    let size: f64 = size.split_once('"').unwrap().0.parse().unwrap();
    // A character's width is about half its height.
    let width = size / 2.0 * (report.paper.len() + report.title.len()) as f64;
    assert!(width < 520.0, "{width}");
}

#[test]
fn a_picture_can_be_a_png() {
    let report = report(named("i10-6")[0], Extent::Full);
    let path = block::temporary("figure.png");
    plot::png(&report, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[1..4], *b"PNG");
    // Width and height, big-endian in the header.
    assert_eq!(bytes[16..24], [0, 0, 4, 16, 0, 0, 2, 246]);
}

#[test]
fn nothing_is_measured_in_no_time() {
    let plan = plan_of(FIGURES[0].name, Extent::Quick);
    for effort in [
        Effort { runs: 0, ..EFFORT },
        Effort {
            runs: RUNS_MAX + 1,
            ..EFFORT
        },
        Effort {
            measured: Duration::ZERO,
            ..EFFORT
        },
    ] {
        let nothing = measure(&plan, &effort, &mut Invented::default(), &mut |_| {});
        assert!(nothing.unwrap_err().to_string().contains("choose"));
    }
}

/// Results of a simulation without simulating: numbers that grow with the seed.
fn invented(_: bool, seed: u64, _: &Costs) -> Vec<Series> {
    let line = |panel, system, factor: f64| Series {
        panel,
        x: sim::model::figures::Axis {
            name: "cores",
            unit: "",
        },
        y: sim::model::figures::Axis {
            name: panel,
            unit: "µs",
        },
        system,
        points: [1.0, 16.0]
            .map(|x| sim::model::figures::Point {
                x,
                y: x * factor * seed as f64,
            })
            .to_vec(),
    };
    vec![
        line("p99 latency of L", "linux", 10.0),
        line("p99 latency of L", "switchyard", 1.0),
        line("something else", "linux", 1.0),
    ]
}

#[test]
fn simulated_numbers_become_a_report() {
    let simulation = Simulation {
        simulate: invented,
        only: "",
        panels: &[],
        names: &[],
        claims: |plan| {
            let p99 = Metric::Latency(Class::Latency, Statistic::P99);
            let ticks = plan.x.ticks.clone();
            claims! { plan;
                "lower" "": p99, "linux" / "switchyard" >= 10.0, at ticks;
            }
        },
    };
    let figure = Figure {
        work: Work::Simulated(simulation),
        ..FIGURES[0]
    };
    let mut runs = Vec::new();
    let report = simulate(
        &figure,
        Extent::Full,
        &EFFORT,
        &Costs::shipped(),
        &mut |run| {
            runs.push(run);
        },
    );
    let report = report.unwrap();
    assert_eq!(runs, [0, 1, 2]);
    assert!(report.simulated && report.holds());
    assert_eq!(report.x.ticks, ["1", "16"]);
    let p99 = Metric::Latency(Class::Latency, Statistic::P99);
    let spread = report.at("linux", "16", p99).unwrap();
    // Seeds 7, 8 and 9.
    assert_eq!(
        (spread.min, spread.median, spread.max),
        (1120.0, 1280.0, 1440.0)
    );
    assert!(report.to_string().contains("simulated"));
    let only = Simulation {
        only: "something else",
        ..simulation
    };
    let figure = Figure {
        work: Work::Simulated(only),
        ..figure
    };
    let error = simulate(
        &figure,
        Extent::Full,
        &EFFORT,
        &Costs::shipped(),
        &mut |_| {},
    );
    assert!(error.unwrap_err().to_string().contains("no l_p99_us"));
}

#[test]
fn every_simulated_figure_can_be_judged() {
    let effort = Effort { runs: 1, ..EFFORT };
    let costs = Costs::shipped();
    // Figures whose quick simulation is small; all of them take minutes without optimisation.
    for (name, series) in [
        ("sim-blk-switch-12", "switchyard"),
        ("sim-i10-9", "switchyard"),
        ("sim-reflex-1", "100 %"),
        ("sim-reflex-3a", "90 %"),
        ("sim-reflex-3b", "90 %"),
        ("sim-reflex-3c", "90 %"),
        ("sim-thesis-table6a", "paths"),
        ("sim-thesis-table6b", "paths"),
        ("sim-thesis-table7a", "2q"),
        ("sim-thesis-table7b", "stm"),
        ("sim-thesis-1", "interrupt"),
        ("sim-thesis-4", "sync"),
        ("sim-thesis-6", "sync"),
        ("sim-thesis-9", "stm"),
        ("sim-thesis-11", "atm"),
        ("sim-thesis-12", "htm"),
        ("sim-thesis-14", "vfs_htm"),
        ("sim-thesis-15", "2q"),
        ("sim-thesis-17", "2q"),
        ("sim-thesis-18", "2q"),
        ("sim-thesis-21a", "stm"),
        ("sim-thesis-21b", "stm"),
        ("sim-thesis-22a", "stm"),
        ("sim-thesis-22b", "stm"),
        ("sim-thesis-23a", "atm"),
        ("sim-thesis-23b", "atm"),
    ] {
        let report = simulate(named(name)[0], Extent::Quick, &effort, &costs, &mut |_| {});
        let report = report.unwrap();
        assert!(
            !report.claims.is_empty() && report.points.len() >= 3,
            "{name}"
        );
        for panel in &report.panels {
            let shown = |tick: &String| report.at(series, tick, panel.metric).is_some();
            assert!(
                report.x.ticks.iter().all(shown),
                "{name}: {}",
                panel.metric.key()
            );
        }
        assert!(plot::svg(&report).unwrap().contains("simulated"));
    }
}

#[test]
fn threads_and_connections_are_simulated() {
    let effort = Effort { runs: 1, ..EFFORT };
    let costs = Costs::shipped();
    for name in ["sim-reflex-6a", "sim-reflex-6c"] {
        let report = simulate(named(name)[0], Extent::Quick, &effort, &costs, &mut |_| {});
        let report = report.unwrap();
        // Virtual time is the same on every machine, so a claim that holds once always holds.
        assert!(report.holds(), "{report}");
        assert!(plot::svg(&report).unwrap().contains("simulated"));
    }
}

//! Traced commands in words.

use super::Columns;
use base::{Latencies, Nanos, printable};
use serde::{Serialize, Serializer};
use std::fmt;
use target::trace::{Stage, TraceRecord};

/// The titles of the columns of [`Traced`]. Times are in microseconds.
pub const TRACE_TITLE: &str = "TIME (UTC)       TENANT        COMMAND            NSID          \
    SLBA   SIZE  TOTAL_US     CORE TRANSFER   BUFFER    PAUSE   TOKENS   DEVICE     SEND  \
    LONGEST   THREAD  HOST";

/// A command, as one line.
#[derive(Debug)]
pub struct Traced<'a>(pub &'a TraceRecord);

impl fmt::Display for Traced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.0;
        let tenant = printable(record.tenant.as_deref().unwrap_or("-"));
        let nsid = match record.nsid {
            u32::MAX => "all".to_owned(),
            nsid => nsid.to_string(),
        };
        let slba = record.slba.map_or("-".to_owned(), |slba| slba.to_string());
        write!(
            f,
            "{}  {tenant:<12}  {:<17}  {nsid:>4}  {slba:>12}  {:>5}  {:>8.1}",
            time_of_day(record.unix_ns),
            record.command,
            size(record.bytes),
            us(record.total_ns),
        )?;
        for stage in Stage::ALL {
            write!(f, " {:>8.1}", us(time_in(record, stage)))?;
        }
        let longest = Stage::ALL
            .into_iter()
            .max_by_key(|&stage| time_in(record, stage));
        let longest = longest.map_or("-", Stage::name);
        let host = printable(&record.host);
        write!(f, "  {longest:<8}  {:>6}  {host}", record.thread)?;
        match &record.error {
            Some(error) => write!(f, "  {}", printable(error)),
            None => Ok(()),
        }
    }
}

/// Time of a command in a stage, in nanoseconds.
fn time_in(record: &TraceRecord, stage: Stage) -> u64 {
    let stages = record.stages.iter().filter(|it| it.stage == stage);
    stages.map(|it| it.ns).sum()
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Returns the time of day in UTC.
fn time_of_day(unix_ns: u64) -> String {
    let us = unix_ns / 1_000;
    let seconds = us / 1_000_000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:06}",
        seconds % 60,
        us % 1_000_000
    )
}

/// Returns a size as fio writes block sizes: 4k, 1m.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    let unit = units
        .into_iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    unit.map_or(bytes.to_string(), |(unit, name)| {
        format!("{}{name}", bytes / unit)
    })
}

/// Shares of the stages in the time of all traced commands.
#[derive(Debug, Default)]
pub struct TraceSummary {
    /// Commands whose records were lost.
    pub lost: u64,
    total: Times,
    stages: [Times; Stage::COUNT],
}

#[derive(Debug, Default)]
struct Times {
    sum_ns: u128,
    each: Latencies,
}

impl Times {
    fn add(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        self.each.record(Nanos(ns));
    }

    /// Returns the part of `all`, in percent.
    fn percent_of(&self, all: &Self) -> f64 {
        if all.sum_ns == 0 {
            return 0.0;
        }
        self.sum_ns as f64 * 100.0 / all.sum_ns as f64
    }
}

impl TraceSummary {
    /// Adds a command.
    pub fn add(&mut self, record: &TraceRecord) {
        self.total.add(record.total_ns);
        for (stage, times) in Stage::ALL.into_iter().zip(&mut self.stages) {
            times.add(time_in(record, stage));
        }
    }

    /// Returns the number of commands.
    pub fn commands(&self) -> u64 {
        self.total.each.count()
    }

    /// Returns each stage, and the total, with its share in percent.
    fn rows(&self) -> impl Iterator<Item = SummaryRow> {
        let stages = Stage::ALL.into_iter().map(Stage::name).zip(&self.stages);
        let rows = stages.chain([("total", &self.total)]);
        rows.map(|(stage, times)| SummaryRow {
            stage,
            share_percent: times.percent_of(&self.total),
            p50_us: times.each.quantile_us(0.5),
            p99_us: times.each.quantile_us(0.99),
        })
    }
}

#[derive(Debug, Serialize)]
struct SummaryRow {
    stage: &'static str,
    share_percent: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Serialize for TraceSummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form {
            commands: u64,
            lost: u64,
            stages: Vec<SummaryRow>,
        }
        let form = Form {
            commands: self.commands(),
            lost: self.lost,
            stages: self.rows().collect(),
        };
        form.serialize(serializer)
    }
}

impl fmt::Display for TraceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows().map(|row| {
            vec![
                row.stage.to_owned(),
                format!("{:>5.1}%", row.share_percent),
                format!("{:>9.1}", row.p50_us),
                format!("{:>9.1}", row.p99_us),
            ]
        });
        let titles = ["STAGE", " SHARE", "   P50_US", "   P99_US"];
        writeln!(f, "{}", Columns::new(&titles, rows.collect()))?;
        write!(
            f,
            "{} commands, {} records lost",
            self.commands(),
            self.lost
        )
    }
}

//! `switchyard trace`: slow I/O commands of a running target, by stage.

use super::signals;
use crate::args::TraceArgs;
use crate::exit::Outcome;
use crate::otlp::Exporter;
use crate::output::{Output, print};
use crate::tables::{TRACE_TITLE, TraceSummary, Traced};
use anyhow::{Context as _, Result};
use base::printable_json;
use control::api::TraceLine;
use control::client::{Lines, escaped};
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use target::trace::TraceRecord;

/// Longest time until a signal is handled, and until due spans are exported.
const TICK: Duration = Duration::from_millis(100);

/// Carries it out.
///
/// # Errors
/// A target that cannot be reached, refuses or ends; a collector that did not accept everything.
pub fn run(args: &TraceArgs, output: Output) -> Result<Outcome> {
    let stop = signals::stop_flag()?;
    let lines = Lines::open(&args.api.interface(), &path(args))?;
    let mut run = Run::new(args, output);
    let ended = loop {
        if stop.load(Ordering::Relaxed) || run.is_over() {
            break Ok(());
        }
        match lines.next(TICK) {
            Ok(line) => run.take(line.as_deref())?,
            Err(error) => break Err(error),
        }
    };
    if run.until.is_none() {
        // The target has not begun the trace.
        ended?;
        return Ok(Outcome::Negative);
    }
    let outcome = run.finish()?;
    ended.map(|()| outcome)
}

/// Returns the path of the request.
fn path(args: &TraceArgs) -> String {
    let mut path = format!("/v1/trace?slower_than_ns={}", args.slower_than.0);
    let nsid = args.nsid.map(|nsid| nsid.to_string());
    let sample = args.sample.map(|every| every.to_string());
    for (key, value) in [
        ("tenant", &args.tenant),
        ("host", &args.host),
        ("nqn", &args.nqn),
        ("nsid", &nsid),
        ("opcode", &args.opcode),
        ("sample", &sample),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", escaped(value)));
        }
    }
    path
}

/// A trace in progress.
struct Run<'a> {
    args: &'a TraceArgs,
    output: Output,
    summary: TraceSummary,
    exporter: Option<Exporter>,
    /// End of the trace; `None` until the target has begun it.
    until: Option<Option<Instant>>,
}

impl<'a> Run<'a> {
    fn new(args: &'a TraceArgs, output: Output) -> Self {
        let exporter = args.otlp.clone().map(|mut collector| {
            collector.authority.clone_from(&args.otlp_ca);
            Exporter::new(collector)
        });
        Self {
            args,
            output,
            summary: TraceSummary::default(),
            exporter,
            until: None,
        }
    }

    fn is_over(&self) -> bool {
        let enough = self
            .args
            .count
            .is_some_and(|count| self.summary.commands() >= count);
        let until = self.until.flatten();
        enough || until.is_some_and(|until| Instant::now() >= until)
    }

    /// Handles a line of the target, or none.
    fn take(&mut self, line: Option<&str>) -> Result<()> {
        if let Some(line) = line {
            let line = serde_json::from_str(line).context("cannot parse the target's response")?;
            if self.until.is_none() {
                self.until = Some(self.args.seconds.map(|time| Instant::now() + time));
                if !self.output.json {
                    print(format_args!("{TRACE_TITLE}\n"))?;
                }
            }
            match line {
                TraceLine::Record(record) => self.record(record)?,
                TraceLine::Lost { lost } => self.summary.lost = lost,
            }
        }
        if let Some(exporter) = &mut self.exporter {
            exporter.run(self.output);
        }
        Ok(())
    }

    fn record(&mut self, record: TraceRecord) -> Result<()> {
        if self.output.json {
            print_json(&record)?;
        } else {
            print(format_args!("{}\n", Traced(&record)))?;
        }
        self.summary.add(&record);
        if let Some(exporter) = &mut self.exporter {
            exporter.add(record);
        }
        Ok(())
    }

    fn finish(self) -> Result<Outcome> {
        #[derive(Serialize)]
        struct Last<'a> {
            summary: &'a TraceSummary,
        }
        let summary = &self.summary;
        if self.output.json {
            print_json(&Last { summary })?;
        } else {
            print(format_args!("\n{summary}\n"))?;
        }
        if let Some(exporter) = self.exporter {
            exporter.finish(self.output)?;
        }
        Ok(Outcome::of(self.summary.commands() > 0))
    }
}

/// Prints a value as one line.
fn print_json(value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string(value).context("cannot make JSON")?;
    print(format_args!("{}\n", printable_json(&json)))
}

//! Traced commands as OpenTelemetry spans, for a collector. `[OTLP 1.5, JSON Protobuf encoding]`

use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use base::printable;
use config::with_causes;
use control::client::Collector;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use target::trace::TraceRecord;

/// Commands of one request: far below the 4 MiB that collectors accept.
const BATCH: usize = 512;

/// Longest time that a command waits for a batch.
const PERIOD: Duration = Duration::from_secs(1);

/// Commands that wait for a collector that does not accept them; the oldest ones are dropped.
const WAITING_MAX: usize = 16 * BATCH;

/// SPAN_KIND_INTERNAL.
const INTERNAL: u8 = 1;
/// SPAN_KIND_SERVER.
const SERVER: u8 = 2;
/// STATUS_CODE_ERROR.
const ERROR: u8 = 2;

/// Sends commands to a collector, in batches.
#[derive(Debug)]
pub struct Exporter {
    collector: Collector,
    waiting: VecDeque<TraceRecord>,
    dropped: u64,
    /// Time of the last attempt.
    last: Instant,
    /// The last attempt failed.
    is_failing: bool,
}

impl Exporter {
    pub fn new(collector: Collector) -> Self {
        Self {
            collector,
            waiting: VecDeque::new(),
            dropped: 0,
            last: Instant::now(),
            is_failing: false,
        }
    }

    /// Adds a command.
    pub fn add(&mut self, record: TraceRecord) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(record);
    }

    /// Sends what is due. What a collector does not accept is sent again later.
    pub fn run(&mut self, output: Output) {
        let is_full = self.waiting.len() >= BATCH && !self.is_failing;
        let is_late = !self.waiting.is_empty() && self.last.elapsed() >= PERIOD;
        if !(is_full || is_late) {
            return;
        }
        let sent = self.send(output);
        self.last = Instant::now();
        let was_failing = std::mem::replace(&mut self.is_failing, sent.is_err());
        if let Some(error) = sent.err().filter(|_| !was_failing) {
            output.note(format_args!("{}; trying again", with_causes(&error)));
        }
    }

    /// Sends the rest.
    ///
    /// # Errors
    /// The number of commands that the collector did not accept, and why.
    pub fn finish(mut self, output: Output) -> Result<()> {
        while !self.waiting.is_empty() {
            let left = self.dropped + self.waiting.len() as u64;
            let sent = self.send(output);
            sent.with_context(|| format!("{left} commands were not exported"))?;
        }
        let dropped = self.dropped;
        ensure!(
            dropped == 0,
            "{dropped} commands were not exported: the collector was too slow"
        );
        Ok(())
    }

    /// Sends one batch.
    fn send(&mut self, output: Output) -> Result<()> {
        let count = self.waiting.len().min(BATCH);
        let answer = self
            .collector
            .export_traces(&request(self.waiting.range(..count))?)?;
        self.waiting.drain(..count);
        let partial = &answer["partialSuccess"];
        // Some collectors write 64-bit numbers as numbers.
        let rejected = &partial["rejectedSpans"];
        let rejected = rejected
            .as_str()
            .and_then(|text| text.parse().ok())
            .or(rejected.as_u64());
        if let Some(rejected) = rejected.filter(|&rejected| rejected > 0) {
            let reason = printable(partial["errorMessage"].as_str().unwrap_or_default());
            output.note(format_args!(
                "the collector rejected {rejected} spans: {reason}"
            ));
        }
        Ok(())
    }
}

/// Returns an ExportTraceServiceRequest.
fn request<'a>(records: impl Iterator<Item = &'a TraceRecord>) -> Result<Value> {
    let mut spans = Vec::new();
    for record in records {
        add_spans(record, &mut spans)?;
    }
    Ok(json!({ "resourceSpans": [{
        "resource": { "attributes": [attribute("service.name", json!("switchyard"))] },
        "scopeSpans": [{
            "scope": { "name": "switchyard trace", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans,
        }],
    }] }))
}

/// Adds the span of a command, and one for each of its stages. A stage that the command entered several
/// times is one span, of its whole time.
fn add_spans(record: &TraceRecord, spans: &mut Vec<Value>) -> Result<()> {
    let (trace_id, parent_id) = (id::<16>()?, id::<8>()?);
    let ids = (&*trace_id, &*parent_id);
    let mut parent = span(
        ids,
        &record.command,
        SERVER,
        record.unix_ns,
        record.total_ns,
    );
    parent["attributes"] = json!(attributes(record));
    if let Some(error) = &record.error {
        parent["status"] = json!({ "code": ERROR, "message": error });
    }
    spans.push(parent);
    for stage in &record.stages {
        let start = record.unix_ns.saturating_add(stage.after_ns);
        let ids = (&*trace_id, &*id::<8>()?);
        let mut child = span(ids, stage.stage.name(), INTERNAL, start, stage.ns);
        child["parentSpanId"] = json!(parent_id);
        spans.push(child);
    }
    Ok(())
}

/// Returns a span with these identifiers of its trace and itself.
fn span((trace, own): (&str, &str), name: &str, kind: u8, start: u64, ns: u64) -> Value {
    // A 64-bit number is a string in the JSON of protocol buffers.
    json!({
        "traceId": trace,
        "spanId": own,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": start.saturating_add(ns).to_string(),
    })
}

/// Returns a random identifier, as hexadecimal digits.
fn id<const BYTES: usize>() -> Result<String> {
    let mut bytes = [0; BYTES];
    // Up to 256 bytes are never interrupted.
    getrandom(&mut bytes, GetRandomFlags::empty()).context("no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn attributes(record: &TraceRecord) -> Vec<Value> {
    let number = |key, value: u64| attribute(key, json!(value));
    let mut all = vec![
        attribute("nvme.hostnqn", json!(record.host)),
        attribute("nvme.subnqn", json!(record.nqn)),
        number("nvme.cntlid", record.cntlid.into()),
        number("nvme.qid", record.qid.into()),
        number("nvme.cid", record.cid.into()),
        number("nvme.nsid", record.nsid.into()),
        number("switchyard.bytes", record.bytes),
        number("switchyard.thread", record.thread as u64),
    ];
    all.extend(record.slba.map(|slba| number("nvme.slba", slba)));
    let tenant = record.tenant.as_ref();
    all.extend(tenant.map(|name| attribute("switchyard.tenant", json!(name))));
    all
}

/// Returns a KeyValue.
fn attribute(key: &str, value: Value) -> Value {
    let value = match value {
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        text => json!({ "stringValue": text }),
    };
    json!({ "key": key, "value": value })
}

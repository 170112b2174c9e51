//! A profile of a running target: processor time of each thread and statistics each second, and a
//! sample of its functions by `perf`.

use super::bundle::Bundle;
use super::command::output_of;
use crate::output::new_private_file;
use anyhow::Result;
use config::with_causes;
use control::client::{Interface, Method, ask};
use std::fs;
use std::thread;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

/// Most bytes of the report of `perf`.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// Time of `perf` in addition to its sample.
const PERF_TIMEOUT: Duration = Duration::from_secs(60);

/// Adds the profile of process `pid`.
pub fn add(
    bundle: &mut Bundle,
    pid: u32,
    api: Option<&Interface>,
    duration: Duration,
) -> Result<()> {
    let perf = thread::spawn(move || perf(pid, duration));
    let mut threads = "second thread name user_ticks system_ticks processor\n".to_owned();
    let samples = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    for sample in 0..=samples {
        if sample > 0 {
            thread::sleep(INTERVAL.min(duration));
        }
        threads += &times(sample, pid);
        match api.map(|api| ask(api, Method::GET, "/v1/stats", None)) {
            Some(Ok(stats)) => bundle.add_json(&format!("profile/stats-{sample}.json"), stats)?,
            Some(Err(error)) => bundle.missing("profile/stats", with_causes(&error)),
            None => {}
        }
    }
    bundle.add("profile/threads.txt", &threads)?;
    match perf.join() {
        Ok(Ok(report)) => bundle.add("profile/perf.txt", &report)?,
        Ok(Err(error)) => bundle.missing("profile/perf.txt", with_causes(&error)),
        Err(_) => bundle.missing("profile/perf.txt", "the thread panicked"),
    }
    Ok(())
}

/// Returns a line for each thread of a process; none if it has ended.
fn times(sample: u64, pid: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lines = threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name may contain blanks and parentheses.
        let (head, fields) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.replace(' ', "_");
        let mut fields = fields.split_whitespace();
        let (user, system) = (fields.nth(11)?, fields.next()?);
        let processor = fields.nth(23)?;
        let id = thread.file_name();
        let id = id.to_string_lossy();
        Some(format!(
            "{sample} {id} {name} {user} {system} {processor}\n"
        ))
    });
    lines.collect()
}

/// Returns the functions in which the process spends its time.
fn perf(pid: u32, duration: Duration) -> Result<String> {
    let data = std::env::temp_dir().join(format!("switchyard-perf-{}", std::process::id()));
    // Created here, so that no link of another user is followed.
    drop(new_private_file(&data)?);
    let path = data.to_string_lossy();
    let (pid, seconds) = (pid.to_string(), duration.as_secs_f64().to_string());
    let record = [
        "record", "-q", "-F", "199", "-p", &pid, "-o", &path, "--", "sleep", &seconds,
    ];
    let report = [
        "report",
        "--stdio",
        "--sort",
        "comm,dso,symbol",
        "-i",
        &path,
    ];
    let report = output_of("perf", &record, REPORT_BYTES_MAX, duration + PERF_TIMEOUT)
        .and_then(|_| output_of("perf", &report, REPORT_BYTES_MAX, PERF_TIMEOUT));
    // At worst a temporary file stays.
    let _ = fs::remove_file(&data);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_line() {
        let lines = times(3, std::process::id());
        let words: Vec<_> = lines.lines().next().expect("a thread").split(' ').collect();
        assert_eq!((words.len(), words[0]), (6, "3"), "{lines}");
        assert!(
            words[3..].iter().all(|word| word.parse::<u64>().is_ok()),
            "{lines}"
        );
    }
}

//! A stop of half a minute, longer than every keep-alive timer: of the target under a load that
//! verifies its reads, and of the load itself.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};
use switchyard_e2e::limits::{COMMAND_DEADLINE, POLL_INTERVAL, READY_DEADLINE};
use switchyard_e2e::process::{Digests, Process, Remote, Serve};

/// Duration of the stop.
const STOP: Duration = Duration::from_secs(30);

/// Run time before the stop, after the connection.
const BEFORE: Duration = Duration::from_secs(2);

const APPS: [&str; 2] = [
    "small:rw=randrw,bs=4k,depth=16,rate=2000",
    "large:rw=randrw,bs=128k,depth=4,rate=50",
];

/// A target with a load that lasts longer than the stop.
fn start() -> Result<(Serve, Process)> {
    let serve = Serve::start(&["--ram", "64M"])?;
    let remote = Remote {
        address: serve.address(),
        digests: Digests::Off,
    };
    // The load measures by the clock, so the stop counts as run time.
    let bench = remote.start_bench(&APPS, 36)?;
    let began = Instant::now();
    // The admin queue and at least one queue of each app.
    while serve.connections()? <= APPS.len() {
        ensure!(
            began.elapsed() < READY_DEADLINE,
            "no load: {}",
            bench.stderr()
        );
        sleep(POLL_INTERVAL);
    }
    sleep(BEFORE);
    Ok((serve, bench))
}

/// The load's report has no errors, and the target ends with exit code 0.
fn finish(serve: Serve, bench: Process) -> Result<String> {
    let report = bench.succeed(COMMAND_DEADLINE)?;
    ensure!(report.contains("\"apps\""), "no report: {report}");
    serve.stop()
}

#[test]
fn a_target_that_is_stopped_for_half_a_minute_loses_nothing() -> Result<()> {
    let (serve, bench) = start()?;
    serve.signal(Signal::STOP)?;
    sleep(STOP);
    serve.signal(Signal::CONT)?;
    finish(serve, bench)?;
    Ok(())
}

#[test]
fn a_host_that_is_stopped_for_half_a_minute_connects_again() -> Result<()> {
    let (serve, bench) = start()?;
    bench.signal(Signal::STOP)?;
    sleep(STOP);
    bench.signal(Signal::CONT)?;
    let log = finish(serve, bench)?;
    ensure!(log.contains("the keep-alive timer expired"), "{log}");
    Ok(())
}

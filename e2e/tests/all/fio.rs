//! fio with our engine, built against the headers of the installed fio.

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use switchyard_e2e::library::Library;
use switchyard_e2e::limits::COMMAND_DEADLINE;
use switchyard_e2e::process::{Process, Serve};
use switchyard_e2e::{Readiness, require_programs, skip};

/// Builds the engine; `None` if that is impossible here.
fn engine() -> Result<Option<PathBuf>> {
    if require_programs(&["cc", "fio", "apt-get", "dpkg-query"])? == Readiness::Skip {
        return Ok(None);
    }
    match Library::build()?.fio_engine() {
        Ok(engine) => Ok(Some(engine)),
        Err(error) => {
            skip(&format!("{error:#}"))?;
            Ok(None)
        }
    }
}

/// Runs a job, and returns fio's output.
fn fio(engine: &Path, target: SocketAddr, arguments: &str) -> Result<String> {
    start(engine, target, arguments)?.succeed(COMMAND_DEADLINE)
}

fn start(engine: &Path, target: SocketAddr, arguments: &str) -> Result<Process> {
    let mut fio = Command::new("fio");
    fio.arg(format!("--ioengine=external:{}", engine.display()));
    fio.arg(format!("--sw_target={target}"));
    fio.args(arguments.split_whitespace());
    Process::start(&mut fio)
}

#[test]
fn fio_verifies_what_it_wrote_through_the_engine() -> Result<()> {
    let Some(engine) = engine()? else {
        return Ok(());
    };
    let target = Serve::start(&["--ram", "64M"])?;
    let fio = |arguments: &str| fio(&engine, target.address(), arguments);
    let verify = "--verify=crc32c --verify_fatal=1 --verify_state_save=0 --bs=4k --size=16M";
    for mode in [
        "--rw=randwrite --iodepth=32",
        "--rw=randwrite --iodepth=64 --iodepth_batch_submit=16 --thread --sw_class=latency",
        "--rw=write --iodepth=4 --fsync=8 --numjobs=2 --offset_increment=16M",
        "--rw=randwrite --bs=128k --iodepth=8",
        // More than the target's maximum transfer.
        "--rw=randwrite --bs=4m --iodepth=3",
        "--rw=randwrite --bs=4m --iodepth=3 --thread --sw_switchboard=1",
        "--rw=randwrite --iodepth=32 --rate_iops=100k",
        "--rw=randwrite --iodepth=32 --sw_gather=0",
    ] {
        let text = fio(&format!("--name=verify {verify} {mode}"))?;
        ensure!(text.contains("err= 0"), "{mode}: {text}");
    }
    let text = fio("--name=trim --rw=randtrim --bs=64k --size=8M")?;
    ensure!(text.contains("err= 0"), "{text}");
    let switched = format!("--thread --sw_switchboard=1 {verify} --rw=randwrite");
    let both = format!(
        "{switched} --name=l --sw_class=latency --iodepth=1 --name=t --offset=16M --bs=128k \
         --iodepth=8 --numjobs=2 --offset_increment=16M {verify} --rw=randwrite --bs=128k"
    );
    let text = fio(&both)?;
    ensure!(text.matches("err= 0").count() == 3, "{text}");
    let linux = "--sw_preset=linux --sw_knobs=doorbell=immediate,caravan=off";
    let text = fio(&format!("{switched} {linux} --name=a --iodepth=8"))?;
    ensure!(text.contains("err= 0"), "{text}");
    for (jobs, remedy) in [
        ("--sw_switchboard=1", "thread=1"),
        ("--thread --sw_cores=0", "sw_switchboard=1"),
        (
            "--thread --sw_switchboard=1 --sw_cores=0;1",
            "a list of processors",
        ),
        ("--thread --sw_switchboard=1 --sw_cores=1023", "1023"),
        ("--thread --sw_knobs=doorbell=fixed", "sw_switchboard=1"),
        (
            "--thread --sw_switchboard=1 --sw_preset=windows",
            "use one of switchyard, linux",
        ),
        (
            "--thread --sw_switchboard=1 --sw_knobs=doorbell=loud",
            "immediate or fixed",
        ),
    ] {
        let refused = fio(&format!("--name=a --rw=read --size=4k {jobs}"));
        let refused = format!("{:#}", refused.err().context("it is refused")?);
        ensure!(refused.contains(remedy), "{jobs}: {refused}");
    }
    let refused = fio("--name=a --rw=read --size=4k --sw_nsid=9");
    let refused = format!("{:#}", refused.err().context("there is no namespace 9")?);
    ensure!(refused.contains("it has 1"), "{refused}");
    target.stop()?;
    Ok(())
}

/// Write commands sent to a target: all, and those with FUA.
#[derive(Debug, Default)]
struct Writes {
    all: AtomicU32,
    durable: AtomicU32,
}

/// PDU-Type of a command capsule; the command follows the common header. `[NVMe-TCP 1.0 §3.6.1]`
const COMMAND: u8 = 4;
const COMMAND_AT: usize = 8;
const WRITE: u8 = 1;

/// Relays connections to a target, and counts their writes. Returns the relay's address.
fn count(target: SocketAddr, writes: &Arc<Writes>) -> Result<SocketAddr> {
    let writes = Arc::clone(writes);
    relay(target, move |pdu| {
        // FUA is bit 30 of dword 12.
        if pdu[0] == COMMAND && pdu[COMMAND_AT] == WRITE {
            writes.all.fetch_add(1, Ordering::Relaxed);
            let durable = pdu[COMMAND_AT + 4 * 12 + 3] >> 6 & 1;
            writes.durable.fetch_add(durable.into(), Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Relays connections to a target until a second host connects, whose connections are all ended.
/// Returns the relay's address.
fn pass_first(target: SocketAddr) -> Result<SocketAddr> {
    const FABRICS: u8 = 0x7f;
    const CONNECT: u8 = 1;
    let hosts = AtomicU32::new(0);
    relay(target, move |pdu| {
        if pdu[0] == COMMAND && pdu[COMMAND_AT] == FABRICS && pdu[COMMAND_AT + 4] == CONNECT {
            // A host first connects its admin queue. `[NVMe-oF 1.1 §3.3]`
            let queue = [pdu[COMMAND_AT + 42], pdu[COMMAND_AT + 43]];
            let hosts = hosts.fetch_add((queue == [0, 0]).into(), Ordering::Relaxed);
            ensure!(queue != [0, 0] || hosts == 0, "another host");
        }
        Ok(())
    })
}

/// Relays connections to a target, and calls `look` for each PDU of a host; an error ends the
/// connection. Returns the relay's address.
fn relay(
    target: SocketAddr,
    look: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static,
) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let look = Arc::new(look);
    std::thread::spawn(move || -> Result<()> {
        loop {
            let (host, _) = listener.accept()?;
            let target = TcpStream::connect(target)?;
            let (mut answers, mut back) = (target.try_clone()?, host.try_clone()?);
            std::thread::spawn(move || {
                let copied = std::io::copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Both);
                copied
            });
            let look = Arc::clone(&look);
            std::thread::spawn(move || {
                // The end of the stream is no error.
                let _ = pass_on(host, &target, &*look);
                target.shutdown(Shutdown::Both)
            });
        }
    });
    Ok(address)
}

/// Relays the PDUs of a host. `[NVMe-TCP 1.0 §3.6.1]`
fn pass_on(
    mut host: TcpStream,
    mut target: &TcpStream,
    look: &dyn Fn(&[u8]) -> Result<()>,
) -> Result<()> {
    loop {
        let mut pdu = vec![0; 8];
        host.read_exact(&mut pdu)?;
        let length = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]);
        pdu.resize(length as usize, 0);
        host.read_exact(&mut pdu[8..])?;
        look(&pdu)?;
        target.write_all(&pdu)?;
    }
}

#[test]
fn each_write_of_a_job_with_sync_is_durable() -> Result<()> {
    let Some(engine) = engine()? else {
        return Ok(());
    };
    let target = Serve::start(&["--ram", "16M"])?;
    for (sync, expected) in [("none", 0), ("sync", 16), ("dsync", 16), ("1", 16)] {
        let writes = Arc::default();
        let address = count(target.address(), &writes)?;
        let job = format!("--name=a --rw=write --bs=4k --size=64k --iodepth=4 --sync={sync}");
        let text = fio(&engine, address, &job)?;
        ensure!(text.contains("err= 0"), "{sync}: {text}");
        let counts = [&writes.all, &writes.durable].map(|count| count.load(Ordering::Relaxed));
        ensure!(counts == [16, expected], "{sync}: {counts:?}");
    }
    target.stop()?;
    Ok(())
}

/// A job that fails to connect must free its switchboard with its threads; otherwise later jobs
/// must use the same processors.
#[test]
fn a_job_that_does_not_connect_leaves_no_switchboard() -> Result<()> {
    let Some(engine) = engine()? else {
        return Ok(());
    };
    let target = Serve::start(&["--ram", "16M"])?;
    // The query of the size is the first host, and the job itself the second.
    let first = pass_first(target.address())?;
    let core = rustix::thread::sched_getcpu();
    let jobs = format!(
        "--thread --rw=read --bs=4k --size=64k --sw_switchboard=1 --name=a --sw_target={first} \
         --name=b --stonewall --sw_cores={core}"
    );
    let failed = fio(&engine, target.address(), &jobs);
    let text = format!("{:#}", failed.err().context("one does not connect")?);
    ensure!(text.contains(&format!("switchyard: {first}: ")), "{text}");
    ensure!(text.matches("err= 0").count() == 1, "{text}");
    target.stop()?;
    Ok(())
}

/// A job must end at its time limit, or on request, without waiting for answers of a target that
/// has disappeared.
#[test]
fn a_job_ends_without_its_target() -> Result<()> {
    let Some(engine) = engine()? else {
        return Ok(());
    };
    let target = Serve::start(&["--ram", "16M"])?;
    for (seconds, is_interrupted) in [(3600, true), (1, false)] {
        let (sender, is_written) = mpsc::channel();
        // From the first write on, the relay forwards nothing.
        let address = relay(target.address(), move |pdu| {
            if pdu[0] == COMMAND && pdu[COMMAND_AT] == WRITE {
                sender.send(())?;
                loop {
                    std::thread::park();
                }
            }
            Ok(())
        })?;
        let job =
            format!("--name=a --rw=randwrite --bs=4k --iodepth=4 --time_based --runtime={seconds}");
        let mut fio = start(&engine, address, &job)?;
        is_written.recv_timeout(COMMAND_DEADLINE)?;
        if is_interrupted {
            fio.signal(Signal::INT)?;
        }
        fio.wait(COMMAND_DEADLINE)?;
        let text = fio.stdout();
        ensure!(text.contains("Operation canceled"), "{text}");
    }
    target.stop()?;
    Ok(())
}

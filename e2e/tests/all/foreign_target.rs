//! Our host against the Linux kernel's own target, in a guest: with and without digests, data
//! prepared by the kernel, data of ours, a load that verifies its reads, also while its connections
//! are cut, and the device suite.

use anyhow::{Context as _, Result, ensure};
use host::{Host, RemoteNamespace};
use reactor::BufferClass;
use reactor::uring::{Options, UringDriver};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;
use switchyard_e2e::cache_directory;
use switchyard_e2e::guest::{
    Data, FINISHED, FINISHED_AT, programs, run_foreign_target, unused_port,
};
use switchyard_e2e::process::{DEFAULT_NQN, Digests, Remote};
use switchyard_e2e::vm::past_emulation_faults;
use testing::device::conformance::{Suite, run};

/// Small blocks at depth, large ones that the target requests by R2T, and a mix.
const APPS: [&str; 2] = [
    "small:rw=randrw,bs=4k,depth=16,count=1",
    "large:rw=write,bs=512k,depth=4,count=1",
];

/// Number of cuts of a load's connections, and the time between.
const CUTS: u32 = 5;
const UNCUT: Duration = Duration::from_secs(1);

/// Maximum duration of a load that repeatedly loses all its connections: this target does not
/// support End Controller, so before each write the host waits for the keep-alive timer to end a
/// lost controller.
const LOAD_DEADLINE: Duration = Duration::from_secs(300);

/// Relays connections to a target, until they are cut.
struct Cutter {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cutter {
    fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let cutter = Self {
            address: listener.local_addr()?,
            streams: Arc::default(),
        };
        let streams = Arc::clone(&cutter.streams);
        // Ends with the process of the test.
        spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(target) else {
                    continue;
                };
                // Each stream is used for reading, for writing, and for the cut.
                let clones = [&near, &far].map(|stream| (stream.try_clone(), stream.try_clone()));
                let [(Ok(a), Ok(b)), (Ok(c), Ok(d))] = clones else {
                    continue;
                };
                for (mut from, mut to) in [(a, d), (c, b)] {
                    spawn(move || {
                        // A cut of either end ends both.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                        let _ = from.shutdown(Shutdown::Both);
                    });
                }
                let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
                streams.extend([near, far]);
            }
        });
        Ok(cutter)
    }

    /// Cuts every connection, and returns the number of streams.
    fn cut(&self) -> usize {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = std::mem::take(&mut *streams);
        for stream in &streams {
            // A stream that has ended by itself needs no cut.
            let _ = stream.shutdown(Shutdown::Both);
        }
        streams.len()
    }
}

/// A load verifies its reads while its connections are cut repeatedly.
fn reconnect(target: SocketAddr) -> Result<()> {
    let cutter = Cutter::start(target)?;
    let remote = Remote {
        address: cutter.address,
        digests: Digests::On,
    };
    let apps = ["cut:rw=randrw,bs=16k,depth=8,count=1"];
    let mut load = remote.start_bench(&apps, CUTS + 3)?;
    let mut cut = 0;
    while cut < CUTS && load.has_ended()?.is_none() {
        sleep(UNCUT);
        cut += u32::from(cutter.cut() > 0);
    }
    load.succeed(LOAD_DEADLINE)?;
    ensure!(cut == CUTS, "the load ended after {cut} cuts");
    Ok(())
}

/// The device suite, of which the kernel's target supports all but Compare and Verify.
fn conforms(target: SocketAddr, digests: bool) -> Result<()> {
    let driver = || {
        let class = |bytes, count| BufferClass { bytes, count };
        let options = Options {
            buffers: vec![class(4096, 2048), class(128 << 10, 256), class(1 << 20, 32)],
            sockets: 64,
            file_operations: 64,
        };
        UringDriver::new(&options).expect("a ring")
    };
    let builder = Host::builder().digests(digests, digests).queues(2, 64);
    let subsystem = builder.build()?.connect(&target.to_string(), DEFAULT_NQN)?;
    let remote = RemoteNamespace::new(subsystem.association(), 1).context("namespace 1")?;
    let suite = Suite {
        fresh: false,
        compares: false,
        ..Suite::default()
    };
    run(driver, &remote, suite);
    Ok(())
}

#[test]
fn our_host_uses_the_kernel_target() -> Result<()> {
    past_emulation_faults(&programs(), our_host_uses_the_kernel_target_once)
}

fn our_host_uses_the_kernel_target_once() -> Result<()> {
    let folder = cache_directory("foreign")?;
    let (data, port) = (Data::from_seed(23), unused_port()?);
    let scratch = folder.join("extent");
    let use_it = || -> Result<()> {
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        for digests in [Digests::Off, Digests::On] {
            let target = Remote { address, digests };
            // The load writes anywhere, so each round prepares the data that it compares.
            target.bench(&APPS, 1)?;
            for extent in data.before() {
                std::fs::write(&scratch, &extent.content)?;
                target.write(extent.offset_bytes, &scratch)?;
                target.read(extent.offset_bytes, extent.content.len() as u64, &scratch)?;
                ensure!(std::fs::read(&scratch)? == extent.content, "{digests:?}");
            }
        }
        reconnect(address)?;
        conforms(address, false)?;
        conforms(address, true)?;
        let mut word = FINISHED.as_bytes().to_vec();
        word.resize(4096, b'\n');
        std::fs::write(&scratch, word)?;
        // The suite writes anywhere, so the final text is written last.
        let target = Remote {
            address,
            digests: Digests::Off,
        };
        target.write(FINISHED_AT, &scratch)
    };
    let report = run_foreign_target(&data, port, &mut |step| match step {
        "kernel-target" => use_it(),
        _ => Ok(()),
    })?;
    report.check(&["kernel-target", "finished"].map(str::to_owned))?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

//! The hostile loads.

use super::handshake::{psk, shake};
use crate::peer::Peer;
use anyhow::{Result, ensure};
use base::units::CoreId;
use reactor::{placement, priority};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use testing::{Client, Dialect, Session, dial};
use wire::limits::NSID_BROADCAST;
use wire::nvme::identify::Cns;
use wire::nvme::log_page::LogPageId;
use wire::nvme::{
    Abort, AdminCommand, Command, DISCOVERY_NQN, GetLogPage, Identify, IoOpcode, SglDescriptor,
};

/// Longest set-up time of a load.
const SETUP: Duration = Duration::from_secs(120);

/// Pause of a load that has nothing to do.
const PAUSE: Duration = Duration::from_millis(10);

/// I/O queues of a host that connects many: one less than the default maximum of a target.
const QUEUES: u16 = 127;

/// TLS handshakes per second.
const HANDSHAKES: usize = 1000;

/// Entries of an admin queue.
const ADMIN_ENTRIES: u16 = 32;

/// Entries of an I/O queue that receives more commands than it has entries.
const SMALL_QUEUE: u16 = 32;

/// Entries of the remaining I/O queues.
const LARGE_QUEUE: u16 = 128;

/// Largest read response, requested by hosts that never read it.
const READ_BYTES: u32 = 128 << 10;

/// Entries of the largest admin queue.
const ADMIN_ENTRIES_MAX: u16 = 1024;

/// Parts of the discovery log page, in bytes, requested by hosts that never read them.
const PAGE_BYTES: [u32; 2] = [1 << 20, 128 << 10];

base::named! {
    /// A hostile load.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Load {
        /// 1,000 connections that send half an ICReq.
        HalfOpen = "half_open",
        /// 10,000 connected queues that do nothing.
        Idle = "idle",
        /// 50 hosts that connect 127 I/O queues each, again and again.
        ConnectStorm = "connect_storm",
        /// A host with 16 I/O queues, and 208 discovery controllers, that send commands and never
        /// read responses. Eight of the controllers have the largest queue and request the most
        /// data that a target can send.
        Deaf = "deaf",
        /// 100 connections that send one byte per second.
        Slow = "slow",
        /// A host that keeps four queues of 128 entries full of small reads.
        Flood = "flood",
        /// Hosts that send more commands than their queues have entries.
        Overrun = "overrun",
        /// 16 admin queues full of Keep Alive commands.
        KeepAlives = "keep_alives",
        /// 16 admin queues full of Abort commands, in addition to reads to abort.
        Aborts = "aborts",
        /// 400 connections to a target with a lower limit on open files.
        NoFiles = "no_files",
        /// Hosts that never read, and 2,000 idle queues, on a target with little memory.
        LittleMemory = "little_memory",
        /// 1,000 TLS handshakes per second, each on a connection of its own.
        Handshakes = "handshakes",
    }
}

impl Load {
    /// Returns true if the load uses up resources that new hosts need; a few new hosts connect
    /// during the load.
    pub(super) const fn keeps_out(self) -> bool {
        matches!(
            self,
            Self::HalfOpen | Self::ConnectStorm | Self::Deaf | Self::LittleMemory
        )
    }

    /// The function of each of its threads.
    fn workers(self) -> Vec<fn(&Worker<'_>) -> Result<()>> {
        match self {
            Self::HalfOpen => vec![half_open],
            Self::Idle => vec![|worker| idle(worker, 10_000)],
            Self::ConnectStorm => vec![connect_storm; 4],
            Self::Deaf => vec![deaf],
            Self::Slow => vec![slow],
            Self::Flood => vec![flood; 2],
            Self::Overrun => vec![overrun; 2],
            Self::KeepAlives => vec![keep_alives; 2],
            Self::Aborts => vec![aborts; 2],
            Self::NoFiles => vec![no_files],
            Self::LittleMemory => vec![deaf, |worker| idle(worker, 2_000)],
            Self::Handshakes => vec![handshakes],
        }
    }
}

/// Size of loads, in hundredths of a full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub usize);

impl Size {
    fn of(self, count: usize) -> usize {
        (count * self.0 / 100).max(1)
    }
}

/// A thread of a load.
#[derive(Debug)]
struct Worker<'a> {
    peer: &'a Peer,
    number: usize,
    size: Size,
    stop: &'a AtomicBool,
    begun: &'a AtomicUsize,
    done: &'a AtomicU64,
}

impl Worker<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Marks this thread's part of the load as established.
    fn has_begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, count: usize) {
        self.done.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn wait(&self) {
        while self.goes_on() {
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the NQN of one of its hosts.
    fn host(&self, number: usize) -> String {
        format!("nqn.2026-11.io.switchyard:hostile-{}-{number}", self.number)
    }

    /// Connects an admin queue of one of its hosts; returns it with the controller's identifier.
    fn admin(&self, number: usize) -> Result<(Client, u16)> {
        Client::admin(self.peer.address, &self.peer.nqn, &self.host(number))
    }

    /// Connects an I/O queue of one of its hosts.
    fn queue(&self, number: usize, ids: (u16, u16), entries: u16) -> Result<Client> {
        self.peer.queue(&self.host(number), ids, entries)
    }
}

/// Encodes commands without data.
fn capsules(commands: impl Iterator<Item = Command>) -> Vec<u8> {
    let session = Session::new(Dialect::default());
    commands
        .flat_map(|command| session.capsule(&command, &[]))
        .collect()
}

/// Runs `measure` during a load. Returns its result, and the amount of work of the load:
/// connections made, commands sent, or bytes. Threads of the load run on `core`, if there is one,
/// at a lower priority than other threads there.
///
/// # Errors
/// A load that cannot be established.
pub(super) fn beside<T>(
    load: Load,
    peer: &Peer,
    size: Size,
    core: Option<CoreId>,
    measure: impl FnOnce() -> T,
) -> Result<(T, u64)> {
    let (stop, begun, done) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicU64::new(0),
    );
    let workers = load.workers();
    let count = workers.len();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, work) in workers.into_iter().enumerate() {
            let worker = Worker {
                peer,
                number,
                size,
                stop: &stop,
                begun: &begun,
                done: &done,
            };
            threads.push(scope.spawn(move || {
                if let Some(core) = core {
                    placement::pin_to(core)?;
                }
                // Without this priority the load takes more of the neighbour's own processor.
                let _ = priority::yield_to_all();
                work(&worker)
            }));
        }
        let start = Instant::now();
        while begun.load(Ordering::Relaxed) < count
            && start.elapsed() < SETUP
            && !threads.iter().any(|thread| thread.is_finished())
        {
            std::thread::sleep(PAUSE);
        }
        let ready = begun.load(Ordering::Relaxed) == count;
        let measured = ready.then(measure);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a load does not panic")?;
        }
        ensure!(ready, "the load was not established within {SETUP:?}");
        Ok((
            measured.expect("it was ready"),
            done.load(Ordering::Relaxed),
        ))
    })
}

fn handshakes(worker: &Worker<'_>) -> Result<()> {
    let psk = psk(&worker.host(0), &worker.peer.nqn)?;
    let every = Duration::from_secs(1) / u32::try_from(worker.size.of(HANDSHAKES))?;
    let mut next = Instant::now();
    let mut begun = false;
    while worker.goes_on() {
        let is_secured = shake(dial(worker.peer.address)?, &psk)?;
        worker.count(is_secured.into());
        if !std::mem::replace(&mut begun, true) {
            ensure!(is_secured, "the target refuses TLS");
            worker.has_begun();
        }
        next += every;
        match next.checked_duration_since(Instant::now()) {
            Some(early) => std::thread::sleep(early.min(PAUSE)),
            // It does not make up for what was too slow.
            None => next = Instant::now(),
        }
    }
    Ok(())
}

fn half_open(worker: &Worker<'_>) -> Result<()> {
    let half = &Dialect::default().ic_req()[..64];
    let mut open = VecDeque::new();
    let wanted = worker.size.of(1000);
    let mut begun = false;
    while worker.goes_on() {
        if open.len() == wanted {
            if !std::mem::replace(&mut begun, true) {
                worker.has_begun();
            }
            // New connections replace those that the target closes.
            open.pop_front();
            std::thread::sleep(PAUSE);
        }
        let mut stream = dial(worker.peer.address)?;
        stream.write_all(half)?;
        open.push_back(stream);
        worker.count(1);
    }
    Ok(())
}

fn idle(worker: &Worker<'_>, connections: usize) -> Result<()> {
    let wanted = worker.size.of(connections);
    let mut open = Vec::new();
    let mut host = 0;
    while open.len() < wanted && worker.goes_on() {
        let (admin, controller) = worker.admin(host)?;
        open.push(admin);
        for queue in 1..=QUEUES {
            if open.len() == wanted {
                break;
            }
            open.push(worker.queue(host, (controller, queue), SMALL_QUEUE)?);
        }
        host += 1;
    }
    worker.count(open.len());
    worker.has_begun();
    worker.wait();
    Ok(())
}

fn connect_storm(worker: &Worker<'_>) -> Result<()> {
    worker.has_begun();
    let hosts = worker.size.of(50);
    let mut open = VecDeque::new();
    for host in (0..hosts).cycle() {
        if !worker.goes_on() {
            break;
        }
        // A target may refuse for lack of resources.
        let Ok((admin, controller)) = worker.admin(host) else {
            continue;
        };
        let connect = |queue| {
            let queue = worker.queue(host, (controller, queue), SMALL_QUEUE);
            worker.count(1);
            queue
        };
        let queues = (1..=QUEUES).take_while(|_| worker.goes_on());
        let queues: Vec<_> = queues.filter_map(|queue| connect(queue).ok()).collect();
        open.push_back((admin, queues));
        if open.len() > hosts / 4 {
            open.pop_front();
        }
    }
    Ok(())
}

/// A connection that is written to for as long as the socket accepts bytes.
struct Deaf {
    client: Client,
    /// The encoded commands, sent repeatedly.
    commands: Vec<u8>,
    /// Offset of the next byte to write.
    at: usize,
}

impl Deaf {
    fn new(client: Client, commands: impl Iterator<Item = Command>) -> Result<Self> {
        client.stream.set_nonblocking(true)?;
        let socket = socket2::SockRef::from(&client.stream);
        socket.set_recv_buffer_size(4096)?;
        Ok(Self {
            client,
            commands: capsules(commands),
            at: 0,
        })
    }

    /// Writes as many bytes as the socket accepts. Returns their number.
    fn write(&mut self) -> usize {
        let before = self.at;
        while let Some(rest) = self.commands.get(self.at..).filter(|rest| !rest.is_empty()) {
            match self.client.stream.write(rest) {
                Ok(count) => self.at += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.at - before
    }
}

/// Returns a command that requests a part of the discovery log page.
fn page(bytes: u32) -> Command {
    let get = GetLogPage::new(LogPageId::DISCOVERY, NSID_BROADCAST, 0, bytes);
    let mut command = AdminCommand::GetLogPage(get).encode(0);
    command.set_sgl(SglDescriptor::transport(bytes));
    command
}

fn deaf(worker: &Worker<'_>) -> Result<()> {
    let peer = worker.peer;
    let blocks = READ_BYTES / peer.block_bytes;
    let identify = |cid| {
        let mut command = AdminCommand::Identify(Identify::new(Cns::CONTROLLER, 0)).encode(cid);
        command.set_sgl(SglDescriptor::transport(4096));
        command
    };
    let mut open = Vec::new();
    let (admin, controller) = worker.admin(0)?;
    for queue in 1..=16 {
        let client = worker.queue(0, (controller, queue), LARGE_QUEUE)?;
        let reads = (0..LARGE_QUEUE - 1).map(|cid| peer.read(cid, 0, blocks));
        open.push(Deaf::new(client, reads)?);
    }
    open.push(Deaf::new(admin, (0..ADMIN_ENTRIES - 1).map(identify))?);
    for host in 0..worker.size.of(200) {
        let (client, _) = Client::admin(peer.address, DISCOVERY_NQN, &worker.host(host))?;
        open.push(Deaf::new(client, (0..ADMIN_ENTRIES - 1).map(identify))?);
    }
    for host in 0..worker.size.of(8) {
        let client = Client::discovery(peer.address, &worker.host(host), ADMIN_ENTRIES_MAX)?;
        let pages = PAGE_BYTES
            .into_iter()
            .flat_map(|bytes| (0..32).map(move |_| page(bytes)));
        let all = pages.chain((0..).map(|_| identify(0)));
        let all = (0..ADMIN_ENTRIES_MAX - 1)
            .zip(all)
            .map(|(cid, mut command)| {
                command.set_cid(cid);
                command
            });
        open.push(Deaf::new(client, all)?);
    }
    let write = |open: &mut Vec<Deaf>| {
        let bytes = open.iter_mut().map(Deaf::write).sum();
        worker.count(bytes);
    };
    write(&mut open);
    worker.has_begun();
    while worker.goes_on() {
        write(&mut open);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn slow(worker: &Worker<'_>) -> Result<()> {
    let peer = worker.peer;
    let (_admin, controller) = worker.admin(0)?;
    let mut open: Vec<(TcpStream, Vec<u8>)> = Vec::new();
    let wanted = worker.size.of(50);
    for _ in 0..wanted {
        let ic_req = Dialect::default().ic_req().to_vec();
        open.push((dial(peer.address)?, ic_req));
    }
    let mut write = peer.command(IoOpcode::WRITE, 0, 1);
    write.set_sgl(SglDescriptor::in_capsule(0, peer.block_bytes));
    let session = Session::new(Dialect::default());
    let bytes = session.capsule(&write, &vec![0; peer.block_bytes as usize]);
    for queue in (1..=QUEUES).take(wanted) {
        let client = worker.queue(0, (controller, queue), SMALL_QUEUE)?;
        open.push((client.stream, bytes.clone()));
    }
    worker.has_begun();
    let mut next = Instant::now();
    let mut at = 0;
    while worker.goes_on() {
        if Instant::now() >= next {
            next += Duration::from_secs(1);
            for (stream, bytes) in &mut open {
                // The target may have closed the connection.
                let _ = stream.write(&bytes[at..=at]);
                worker.count(1);
            }
            at = (at + 1) % 64;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Sends commands until all entries of a queue are used, and receives all responses.
fn fill(client: &mut Client, commands: impl ExactSizeIterator<Item = Command>) -> Result<usize> {
    let count = commands.len();
    client.send(&capsules(commands))?;
    for _ in 0..count {
        client.answer()?;
    }
    Ok(count)
}

fn flood(worker: &Worker<'_>) -> Result<()> {
    let peer = worker.peer;
    let (_admin, controller) = worker.admin(0)?;
    let mut queues = Vec::new();
    for queue in 1..=2 {
        queues.push(worker.queue(0, (controller, queue), LARGE_QUEUE)?);
    }
    worker.has_begun();
    let bytes = capsules((0..LARGE_QUEUE - 1).map(|cid| peer.read(cid, cid.into(), 1)));
    // Both queues stay full: one is refilled while the other's responses arrive.
    queues[0].send(&bytes)?;
    while worker.goes_on() {
        for next in [1, 0] {
            queues[next].send(&bytes)?;
            for _ in 0..LARGE_QUEUE - 1 {
                queues[1 - next].answer()?;
            }
            worker.count((LARGE_QUEUE - 1).into());
        }
    }
    Ok(())
}

fn overrun(worker: &Worker<'_>) -> Result<()> {
    let peer = worker.peer;
    let (_admin, controller) = worker.admin(0)?;
    worker.has_begun();
    let reads = (0..8 * SMALL_QUEUE).map(|cid| peer.read(cid, 0, READ_BYTES / peer.block_bytes));
    let bytes = capsules(reads);
    while worker.goes_on() {
        // The previous queue may still be closing.
        let Ok(mut client) = worker.queue(0, (controller, 1), SMALL_QUEUE) else {
            continue;
        };
        let _ = client.send(&bytes);
        while worker.goes_on() && client.answer().is_ok() {}
        worker.count(1);
    }
    Ok(())
}

fn keep_alives(worker: &Worker<'_>) -> Result<()> {
    let mut admins = Vec::new();
    for host in 0..worker.size.of(8) {
        admins.push(worker.admin(host)?.0);
    }
    worker.has_begun();
    while worker.goes_on() {
        for admin in &mut admins {
            let commands = (0..ADMIN_ENTRIES - 1).map(|cid| AdminCommand::KeepAlive.encode(cid));
            worker.count(fill(admin, commands)?);
        }
    }
    Ok(())
}

fn aborts(worker: &Worker<'_>) -> Result<()> {
    let peer = worker.peer;
    let mut hosts = Vec::new();
    for host in 0..worker.size.of(8) {
        let (admin, controller) = worker.admin(host)?;
        hosts.push((admin, worker.queue(host, (controller, 1), LARGE_QUEUE)?));
    }
    worker.has_begun();
    let aborts = (0..ADMIN_ENTRIES - 1).map(|cid| Abort { sq_id: 1, cid }.encode(cid));
    let aborts = capsules(aborts);
    while worker.goes_on() {
        for (admin, queue) in &mut hosts {
            admin.send(&aborts)?;
            let reads = (0..ADMIN_ENTRIES - 1).map(|cid| peer.read(cid, 0, 1));
            worker.count(fill(queue, reads)?);
            for _ in 0..ADMIN_ENTRIES - 1 {
                admin.answer()?;
            }
            worker.count((ADMIN_ENTRIES - 1).into());
        }
    }
    Ok(())
}

fn no_files(worker: &Worker<'_>) -> Result<()> {
    let mut open = VecDeque::new();
    let mut begun = false;
    while worker.goes_on() {
        // The kernel accepts connections until the target's backlog is full.
        let address = worker.peer.address;
        if let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            open.push_back(stream);
            worker.count(1);
        }
        if open.len() >= 400 {
            if !std::mem::replace(&mut begun, true) {
                worker.has_begun();
            }
            open.pop_front();
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

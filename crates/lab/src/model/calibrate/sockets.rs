//! Costs of loopback sockets, per call and per byte, on either side.
//!
//! Two threads on two cores take turns: one sends while the other spins, then the other receives. A
//! send with `MSG_MORE` ends before the packet leaves, so the difference to one without is the
//! packet's path through the kernel; the sender's half of it also applies on a network. The cost of
//! bytes is measured in a stream of large sends, where the next send begins while earlier ones are
//! received; the overlap of both ends is measured with a message that is sent back and forth. If
//! both ends work on the same connection all the time, as with many requests in flight, a send
//! takes longer, because the kernel's locks and memory move between cores.

use super::bulk::Bulk;
use super::threads::{joined, on};
use super::typical::{median, nanos_since, typical_of_each};
use crate::limit::Region;
use anyhow::{Context as _, Result, ensure};
use base::units::CoreId;
use rustix::net::{SendFlags, send};
use sim::model::costs::SocketCosts;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Exchanges of each size.
const ROUNDS: usize = 800;
const PAGE_BYTES: usize = 4096;
/// Bytes of a command, of half a packet, and of eight responses of 64 KiB.
const SMALL: usize = 72;
const HALF: usize = 32 * 1024;
const LARGE: usize = 512 * 1024;
/// Most bytes of a loopback packet: 64 KiB with all headers.
const PACKET: usize = 65_483;
/// Memory from which sends take their bytes at random offsets: too large for caches and
/// prefetching, and in huge pages like a target's.
const SOURCE_BYTES: usize = 256 << 20;
/// Memory that is received into, piece after piece: that of 16 requests of 64 KiB.
const DESTINATION_BYTES: usize = 1 << 20;

/// Bytes of the response to a read of a page.
const ANSWER: usize = PAGE_BYTES + 48;
/// Requests in flight if both ends work all the time.
const UNDER_WAY: usize = 16;
/// Responses of each such exchange.
const ANSWERS: usize = 4_000;

/// Sends not yet received when the next one of a stream begins.
const AHEAD: usize = 1;

/// One kind of exchange.
#[derive(Clone, Copy)]
struct Exchange {
    bytes: usize,
    /// Number of earlier sends that may not have been received when a send begins.
    ahead: usize,
    /// The timed send keeps its packet (`MSG_MORE`), which an untimed one then sends.
    more: bool,
    /// Each end copies bulk data before its half.
    cold: bool,
}

/// Median nanoseconds of an exchange.
#[derive(Clone, Copy)]
struct Times {
    send: u64,
    receive: u64,
}

/// Numbers of one pass: sends and receives of a command; sends and receives in a stream of large
/// messages; sends of a command and of half a packet that do not leave; a round trip; sends of
/// responses to one request and to many; sends and receives of a command after bulk copying.
pub(super) type Sample = [u64; 11];

pub(super) fn measure(cores: [CoreId; 2]) -> Result<Sample> {
    let plain = Exchange {
        bytes: SMALL,
        ahead: 0,
        more: false,
        cold: false,
    };
    let kind = |bytes, more, ahead| {
        let kind = Exchange {
            bytes,
            ahead,
            more,
            ..plain
        };
        exchange(cores, kind)
    };
    let (small, large) = (kind(SMALL, false, 0)?, kind(LARGE, false, AHEAD)?);
    let (small_more, half_more) = (kind(SMALL, true, 0)?, kind(HALF, true, 0)?);
    let cold = Exchange {
        cold: true,
        ..plain
    };
    let cold = exchange(cores, cold)?;
    Ok([
        small.send,
        small.receive,
        large.send,
        large.receive,
        small_more.send,
        half_more.send,
        to_and_fro(cores)?,
        answers(cores, 1)?,
        answers(cores, UNDER_WAY)?,
        cold.send,
        cold.receive,
    ])
}

/// Returns the costs from all passes.
pub(super) fn costs(samples: &[Sample]) -> SocketCosts {
    let [
        send,
        receive,
        large_send,
        large_receive,
        send_more,
        half_more,
        to_and_fro,
        answer,
        contended_answer,
        cold_send,
        cold_receive,
    ] = typical_of_each(samples);
    let way = send.saturating_sub(send_more);
    let (send_call_ns, packet_ns) = (send_more + way / 2, way / 2);
    let per_byte_ps =
        |more: u64, less: u64, bytes: usize| more.saturating_sub(less) * 1_000 / bytes as u64;
    let packets = LARGE.div_ceil(PACKET) as u64;
    let all_byte_ps = per_byte_ps(large_send, send_call_ns + packets * packet_ns, LARGE);
    let send_byte_ps = per_byte_ps(half_more, send_more, HALF - SMALL).min(all_byte_ps);
    SocketCosts {
        send_call_ns: send_call_ns.max(1),
        // The cost of copying a header, and of two more segments.
        send_message_ns: 2 * SMALL as u64 * send_byte_ps / 1_000 + 20,
        send_byte_ps,
        packet_ns,
        packet_byte_ps: all_byte_ps - send_byte_ps,
        contended_ns: contended_answer.saturating_sub(answer),
        overlap_ns: (send + receive).saturating_sub(to_and_fro / 2).min(send),
        receive_call_ns: receive.max(1),
        receive_byte_ps: per_byte_ps(large_receive, receive, LARGE - SMALL),
        send_cold_ns: cold_send.saturating_sub(send),
        receive_cold_ns: cold_receive.saturating_sub(receive),
    }
}

/// Returns the median of each half of an exchange.
fn exchange([first, second]: [CoreId; 2], kind: Exchange) -> Result<Times> {
    // Number of rounds sent, and of rounds received.
    static SENT: AtomicUsize = AtomicUsize::new(0);
    static RECEIVED: AtomicUsize = AtomicUsize::new(0);
    SENT.store(0, Ordering::SeqCst);
    RECEIVED.store(0, Ordering::SeqCst);
    let (sender, receiver) = connected()?;
    let sends = on(first, move || send_rounds(&sender, kind, &SENT, &RECEIVED));
    let receives = on(second, move || {
        receive_rounds(receiver, kind, &SENT, &RECEIVED)
    });
    let receive = joined(receives)?;
    let send = joined(sends)?;
    Ok(Times { send, receive })
}

/// Returns the round-trip time of a small message between the cores; both ends spin.
fn to_and_fro([first, second]: [CoreId; 2]) -> Result<u64> {
    let (mut here, mut there) = connected()?;
    for end in [&here, &there] {
        end.set_nonblocking(true)?;
    }
    let echo = on(second, move || {
        while spin_for(&mut there)? {
            send(&there, &[0; SMALL], SendFlags::empty()).context("cannot send")?;
        }
        Ok(())
    });
    let times = joined(on(first, move || {
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            send(&here, &[0; SMALL], SendFlags::empty()).context("cannot send")?;
            ensure!(spin_for(&mut here)?, "the peer closed the connection");
            times.push(nanos_since(start));
        }
        Ok(median(&mut times))
    }));
    joined(echo).and(times)
}

/// Receives a small message by spinning; false if the connection has ended.
fn spin_for(socket: &mut TcpStream) -> Result<bool> {
    let (mut message, mut got) = ([0; SMALL], 0);
    while got < SMALL {
        match receive_some(socket, &mut message[got..])? {
            Some(0) => return Ok(false),
            Some(more) => got += more,
            None => std::hint::spin_loop(),
        }
    }
    Ok(true)
}

/// Returns the mean time of sending a response. Small requests get larger responses, each in a
/// separate send, with `under_way` requests in flight; no end sleeps.
fn answers([first, second]: [CoreId; 2], under_way: usize) -> Result<u64> {
    let (mut asks, mut answers) = connected()?;
    for end in [&asks, &answers] {
        end.set_nonblocking(true)?;
    }
    let answerer = on(first, move || {
        let (mut requests, mut waiting) = ([0; SMALL * UNDER_WAY], 0);
        let (mut sending, mut sent) = (Duration::ZERO, 0);
        loop {
            let got = receive_some(&mut answers, &mut requests)?;
            if got == Some(0) {
                let sends: u32 = sent;
                return Ok(u64::try_from((sending / sends.max(1)).as_nanos()).unwrap_or(u64::MAX));
            }
            waiting += got.unwrap_or(0);
            let start = Instant::now();
            while waiting >= SMALL {
                send_all(&answers, &[0; ANSWER])?;
                waiting -= SMALL;
                sent += 1;
            }
            sending += start.elapsed();
        }
    });
    let asked = joined(on(second, move || {
        let mut buffer = vec![0; ANSWER * UNDER_WAY];
        let (mut asked, mut got) = (0, 0);
        while got < ANSWERS * ANSWER {
            while asked < ANSWERS && asked < got / ANSWER + under_way {
                send_all(&asks, &[0; SMALL])?;
                asked += 1;
            }
            let more = receive_some(&mut asks, &mut buffer)?;
            ensure!(more != Some(0), "the peer closed the connection");
            got += more.unwrap_or(0);
        }
        Ok(())
    }));
    asked.and(joined(answerer))
}

/// Receives the available bytes, if any; zero bytes mean the end of the connection.
pub(super) fn receive_some(socket: &mut TcpStream, buffer: &mut [u8]) -> Result<Option<usize>> {
    match socket.read(buffer) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("cannot receive"),
    }
}

/// Sends everything, spinning while there is no room.
fn send_all(mut socket: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error).context("cannot send"),
        }
    }
    Ok(())
}

/// Both ends of a connection over the loopback.
pub(super) fn connected() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let sender = TcpStream::connect(listener.local_addr()?).context("cannot connect")?;
    let (receiver, _) = listener.accept().context("cannot accept")?;
    for end in [&sender, &receiver] {
        end.set_nodelay(true)?;
    }
    let sockets = [
        socket2::SockRef::from(&sender),
        socket2::SockRef::from(&receiver),
    ];
    for socket in sockets {
        // Whole packets fit from the first one on. A smaller buffer, if the kernel limits it, does
        // no harm.
        let _ = socket.set_send_buffer_size(8 << 20);
        let _ = socket.set_recv_buffer_size(8 << 20);
    }
    Ok((sender, receiver))
}

fn send_rounds(
    socket: &TcpStream,
    kind: Exchange,
    sent: &AtomicUsize,
    received: &AtomicUsize,
) -> Result<u64> {
    let mut prng = base::Prng::from_seed(5);
    let source = Region::new(SOURCE_BYTES);
    let source = source.bytes();
    let page = kind.bytes.next_multiple_of(PAGE_BYTES);
    let pages = u64::try_from((SOURCE_BYTES - page) / PAGE_BYTES).expect("some");
    let flags = if kind.more {
        SendFlags::MORE
    } else {
        SendFlags::empty()
    };
    let mut bulk = kind.cold.then(Bulk::new);
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        bulk.iter_mut().for_each(Bulk::moves);
        let at = usize::try_from(prng.below(pages)).expect("fewer than there are") * PAGE_BYTES;
        // A small message is a command, which has just been written and is in the cache.
        let at = if kind.bytes > SMALL { at } else { 0 };
        let piece = &source[at..at + kind.bytes];
        while received.load(Ordering::Acquire) + kind.ahead < round {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        let taken = send(socket, piece, flags).context("cannot send")?;
        times.push(nanos_since(start));
        let mut rest = &piece[taken..kind.bytes];
        while !rest.is_empty() {
            let taken = send(socket, rest, SendFlags::empty()).context("cannot send")?;
            rest = &rest[taken..];
        }
        if kind.more {
            send(socket, &[0], SendFlags::empty()).context("cannot send")?;
        }
        sent.store(round + 1, Ordering::Release);
    }
    Ok(median(&mut times))
}

fn receive_rounds(
    mut socket: TcpStream,
    kind: Exchange,
    sent: &AtomicUsize,
    received: &AtomicUsize,
) -> Result<u64> {
    let all = kind.bytes + usize::from(kind.more);
    let mut buffer = Region::new(DESTINATION_BYTES.max(all));
    let buffer = buffer.bytes_mut();
    let pieces = buffer.len() / all;
    let mut bulk = kind.cold.then(Bulk::new);
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        bulk.iter_mut().for_each(Bulk::moves);
        let into = &mut buffer[round % pieces * all..][..all];
        while sent.load(Ordering::Acquire) <= round {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        socket.read_exact(into).context("cannot receive")?;
        times.push(nanos_since(start));
        received.store(round + 1, Ordering::Release);
    }
    Ok(median(&mut times))
}

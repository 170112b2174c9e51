//! The interfaces for programs: vectored calls, a queue in the program's event loop, futures.

use crate::peer::{Behaviour, NQN, Peer};
use crate::setup::{block_on, connect, start};
use host::{Host, ReplayPolicy, RequestError, SubmitError};
use rustix::event::{PollFd, PollFlags, poll};
use std::future::Future;
use std::io::{IoSlice, IoSliceMut};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[test]
fn vectors_are_read_and_written_whatever_their_parts() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    // More than one request, in parts with arbitrary boundaries.
    let length = 3 << 20;
    let data: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
    let parts: Vec<_> = data.chunks(777_777).map(IoSlice::new).collect();
    disk.write_vectored(4096, &parts, true).unwrap();
    let mut back = vec![0; length];
    let mut parts: Vec<_> = back.chunks_mut(55_555).map(IoSliceMut::new).collect();
    disk.read_vectored(4096, &mut parts).unwrap();
    assert!(back == data);

    let odd = [IoSlice::new(&data[..4095])];
    let error = disk.write_vectored(0, &odd, false).unwrap_err();
    assert!(matches!(error, RequestError::Alignment { .. }), "{error}");
    disk.write_vectored(0, &[], false).unwrap();
}

#[test]
fn a_queue_refuses_ranges_that_cannot_be() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    let mut queue = disk.queue(4).unwrap();
    for (offset, length) in [(1, 4096), (0, 1), (16 << 20, 4096), (u64::MAX - 4095, 4096)] {
        let error = queue.read(1, offset, length).unwrap_err();
        assert!(matches!(error, SubmitError::Request(_)), "{error}");
    }
    let error = queue.read(1, 0, 2 << 20).unwrap_err();
    assert!(
        matches!(error, SubmitError::Request(RequestError::TooLong { .. })),
        "{error}"
    );
    assert_eq!(queue.outstanding(), 0);
}

/// Polls the descriptor of a queue until it is readable, or until `timeout`.
fn readable(queue: &mut host::Queue, timeout: Duration) -> bool {
    let timeout = timeout.try_into().unwrap();
    let fd = queue.readiness().unwrap();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

/// Longer than any successful wait.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_queue_serves_an_event_loop_through_its_descriptor() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    let mut queue = disk.queue(32).unwrap();
    queue.readiness().unwrap();
    let (mut sent, mut done) = (0_u64, 0);
    while done < 20_000 {
        while sent < done + 16 {
            let offset = sent % 1000 * 4096;
            match sent % 3 {
                0 => queue.write(sent, offset, &[7; 4096]).unwrap(),
                1 => queue.read(sent, offset, 4096).unwrap(),
                _ => queue.flush(sent).unwrap(),
            }
            sent += 1;
        }
        queue.kick();
        assert!(readable(&mut queue, PATIENCE), "{done} of {sent} done");
        for completion in queue.wait(0).unwrap() {
            completion.result.unwrap();
            done += 1;
        }
    }
}

#[test]
fn the_descriptor_tells_of_completions_that_were_left_and_is_silent_without_any() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let mut queue = subsystem.namespace(1).unwrap().queue(8).unwrap();
    queue.readiness().unwrap();
    for tag in 0..4 {
        queue.read(tag, 0, 4096).unwrap();
    }
    for _ in 0..4 {
        assert_eq!(queue.wait(1).unwrap().take(1).count(), 1);
        // A program's loop may not have taken the remaining completions.
        let left = queue.outstanding() > 0;
        assert!(!left || readable(&mut queue, PATIENCE));
    }
    // The remaining wake-ups may be spurious, but must end.
    while readable(&mut queue, Duration::ZERO) {
        assert_eq!(queue.wait(0).unwrap().count(), 0);
    }
}

#[test]
fn a_wait_ends_in_time() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = Host::builder().build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let mut queue = subsystem.namespace(1).unwrap().queue(4).unwrap();
    peer.change(|behaviour| behaviour.swallow = 1);
    queue.read(1, 0, 512).unwrap();
    let done = queue.wait_for(1, Duration::from_millis(20)).unwrap();
    assert_eq!(done.count(), 0);
    assert_eq!(queue.outstanding(), 1);
}

/// The queue reconnects by itself, if the program runs it at its deadlines.
#[test]
fn the_descriptor_brings_a_queue_through_a_lost_connection() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = Host::builder()
        .reconnect_delay(Duration::from_millis(1), Duration::from_millis(20))
        .replay(ReplayPolicy::Immediate)
        .build()
        .unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let mut queue = subsystem.namespace(1).unwrap().queue(4).unwrap();
    queue.readiness().unwrap();
    for tag in 0..8 {
        peer.cut_all();
        queue.write(tag, 0, &[9; 512]).unwrap();
        queue.kick();
        let mut done = 0;
        while done == 0 {
            assert!(readable(&mut queue, PATIENCE));
            for completion in queue.wait(0).unwrap() {
                completion.result.unwrap();
                done += 1;
            }
        }
    }
}

#[test]
fn futures_carry_requests_of_any_length() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap().asynchronous();
    block_on(async {
        for length in [4096, 64 << 10, 5 << 20] {
            let data: Vec<u8> = (0..length).map(|i| (i % 253) as u8).collect();
            let data = disk.write(8192, data).await.unwrap();
            assert_eq!(data.len(), length, "the memory comes back");
            disk.flush().await.unwrap();
            let back = disk.read(8192, vec![0; length]).await.unwrap();
            assert!(back == data);
        }
        disk.write_zeroes(8192, 8192).await.unwrap();
        disk.discard(16384, 4096).await.unwrap();
        let data = disk.read(8192, vec![1; 12288]).await.unwrap();
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(disk.read(0, Vec::new()).await.unwrap().len(), 0);
        disk.write_durable(0, vec![3; 4096]).await.unwrap();
        let error = disk.read(1, vec![0; 4096]).await.unwrap_err();
        assert!(matches!(error, RequestError::Alignment { .. }), "{error}");
    });
}

/// A service drops futures when its clients disconnect.
#[test]
fn a_dropped_future_leaves_its_memory_to_the_host_and_the_next_is_answered() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap().asynchronous();
    for _ in 0..100 {
        let mut read = pin!(disk.read(0, vec![0; 1 << 20]));
        let waker = Waker::noop();
        let _ = read.as_mut().poll(&mut Context::from_waker(waker));
    }
    block_on(async {
        disk.write(0, vec![5; 4096]).await.unwrap();
        assert_eq!(disk.read(0, vec![0; 4096]).await.unwrap(), [5; 4096]);
    });
}

#[test]
fn many_futures_at_once_are_all_answered() {
    let running = start(1);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap().asynchronous();
    let mut futures: Vec<_> = (0..3000_u64)
        .map(|i| Box::pin(disk.write(i % 4096 * 4096, vec![(i % 251) as u8; 4096])))
        .collect();
    block_on(std::future::poll_fn(|cx| {
        futures.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Ready(result) => {
                result.unwrap();
                false
            }
            Poll::Pending => true,
        });
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    for i in [0_u64, 100, 2999] {
        let data = block_on(disk.read(i * 4096, vec![0; 4096])).unwrap();
        assert_eq!(data, [(i % 251) as u8; 4096]);
    }
}

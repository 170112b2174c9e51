//! Operation namespaces change owners only when nothing of the former owner is left.

#[cfg(test)]
mod tests {
    use base::{Nanos, Time};
    use reactor::uring::{Options, UringDriver};
    use reactor::{
        Completion, Driver, FileId, Guard, IoSlice, Memory, Op, OpKey, OpNamespaceLease, Outcome,
        Region, SocketOptions, Wait, Wake,
    };
    use std::io::{PipeWriter, Write as _};
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, Weak};

    fn driver() -> UringDriver {
        UringDriver::new(&Options::default()).expect("a ring")
    }

    fn turn(driver: &mut UringDriver) -> Vec<Completion> {
        let mut completions = Vec::new();
        driver.reap(Wait::No, &mut completions).expect("ok");
        completions
    }

    /// Waits for a completion; keeps other completions in `kept`, because the far end of a
    /// connection is one.
    fn until(
        driver: &mut UringDriver,
        kept: &mut Vec<Completion>,
        is_it: impl Fn(&Outcome) -> bool,
    ) -> Completion {
        loop {
            let found = kept.iter().position(|c| is_it(&c.outcome));
            if let Some(found) = found {
                return kept.swap_remove(found);
            }
            driver
                .reap(Wait::Until(Time::NEVER), kept)
                .expect("the ring works");
        }
    }

    #[test]
    fn channels_come_and_go_for_ever() {
        let mut driver = driver();
        let own = driver.op_namespace();
        for _ in 0..100_000 {
            let lease = driver.lease_op_namespace();
            assert_ne!(lease.id(), own);
            drop(lease);
            turn(&mut driver);
        }
    }

    #[test]
    fn an_operation_in_flight_keeps_its_room_from_others() {
        let mut driver = driver();
        let options = SocketOptions::default();
        let local = "127.0.0.1:0".parse().expect("an address");
        let (listener, address) = driver.listen(local, &options).expect("a free port");
        let accepts = driver.lease_op_namespace();
        let connects = driver.lease_op_namespace();
        let receives = driver.lease_op_namespace();
        let op_namespaces = [accepts.id(), connects.id(), receives.id()];
        driver.submit(OpKey::single(op_namespaces[0], 0), Op::Accept { listener });
        let timeout = Nanos::from_secs(30);
        let connect = Op::Connect {
            address,
            options,
            timeout,
        };
        driver.submit(OpKey::single(op_namespaces[1], 0), connect);
        // A connect is in the ring: its namespace is taken although its lease was dropped.
        drop((accepts, connects));
        let before = driver.lease_op_namespace();
        assert!(!op_namespaces.contains(&before.id()));
        let mut kept = Vec::new();
        let connected = until(&mut driver, &mut kept, |o| {
            matches!(o, Outcome::Connected(_))
        });
        assert_eq!(connected.key.op_namespace, op_namespaces[1]);
        let Outcome::Connected(Ok(socket)) = connected.outcome else {
            panic!("not connected");
        };
        let receive = Op::Receive { socket, into: None };
        driver.submit(OpKey::single(op_namespaces[2], 0), receive);
        drop(receives);
        // A namespace without operations is reused; one with operations never is.
        let mut leases = Vec::new();
        for _ in 0..10 {
            kept.append(&mut turn(&mut driver));
            leases.push(driver.lease_op_namespace());
        }
        let reused = |op_namespace| {
            leases
                .iter()
                .filter(|lease| lease.id() == op_namespace)
                .count()
        };
        assert_eq!(op_namespaces.map(reused), [0, 1, 0]);
        // The end of the operations frees it.
        driver.close_listener(listener);
        driver.submit(OpKey::single(before.id(), 0), Op::Close { socket });
        until(&mut driver, &mut kept, |o| matches!(o, Outcome::Closed));
        turn(&mut driver);
        for _ in 0..10 {
            kept.append(&mut turn(&mut driver));
            leases.push(driver.lease_op_namespace());
        }
        let reused = |op_namespace| {
            leases
                .iter()
                .filter(|lease| lease.id() == op_namespace)
                .count()
        };
        assert_eq!(op_namespaces.map(reused), [1, 1, 1]);
    }

    /// A driver with at most one file operation in flight, and a pipe with two outstanding reads:
    /// the kernel does not have the second one yet. Both end with the writer.
    fn reading() -> (UringDriver, FileId, OpNamespaceLease, PipeWriter) {
        let options = Options {
            file_operations: 1,
            ..Options::default()
        };
        let mut driver = UringDriver::new(&options).expect("a ring");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let file = driver.open_file(Arc::new(OwnedFd::from(reader).into()));
        let file = file.expect("there is room");
        let lease = driver.lease_op_namespace();
        for kind in 0..2 {
            let buffer = driver.buffers().take(4096).expect("a free buffer");
            let slice = IoSlice::from_buffer(buffer, 4096);
            let offset = 0;
            let op = Op::Read {
                file,
                offset,
                slice,
            };
            driver.submit(OpKey::single(lease.id(), kind), op);
        }
        turn(&mut driver);
        (driver, file, lease, writer)
    }

    fn abandon(lease: OpNamespaceLease) -> Weak<dyn std::fmt::Debug + Send + Sync> {
        let guard: Guard = Arc::new(());
        lease.abandon(&guard);
        Arc::downgrade(&guard)
    }

    #[test]
    fn a_guard_is_kept_while_the_driver_has_a_file_operation_of_its_room() {
        let (mut driver, file, lease, writer) = reading();
        let other = abandon(driver.lease_op_namespace());
        let guard = abandon(lease);
        for _ in 0..3 {
            assert!(turn(&mut driver).is_empty());
            assert!(guard.upgrade().is_some(), "the kernel reads");
            assert!(other.upgrade().is_none(), "it has none");
        }
        drop(writer);
        for left in [1, 0] {
            let mut completions = Vec::new();
            while completions.is_empty() {
                let forever = Wait::Until(Time::NEVER);
                driver.reap(forever, &mut completions).expect("ok");
            }
            assert_eq!(completions.len(), 1, "one at a time");
            assert_eq!(guard.strong_count(), left);
        }
        driver.close_file(file);
    }

    #[test]
    fn a_driver_that_is_dropped_lets_guards_go_once_the_kernel_is_done() {
        let (mut driver, _, lease, writer) = reading();
        let late = driver.lease_op_namespace();
        let guard = abandon(lease);
        drop(writer);
        drop(driver);
        assert!(guard.upgrade().is_none());
        assert!(abandon(late).upgrade().is_none(), "it has waited");
    }

    /// The driver must not receive into memory that is in use again.
    #[test]
    fn nothing_is_received_into_memory_once_its_guard_is_let_go() {
        let mut driver = driver();
        let options = SocketOptions::default();
        let local = "127.0.0.1:0".parse().expect("an address");
        let (listener, address) = driver.listen(local, &options).expect("a free port");
        let own = driver.op_namespace();
        driver.submit(OpKey::single(own, 0), Op::Accept { listener });
        let mut peer = TcpStream::connect(address).expect("it listens");
        let mut kept = Vec::new();
        let accepted = until(&mut driver, &mut kept, |o| {
            matches!(o, Outcome::Accepted(Ok(_)))
        });
        let Outcome::Accepted(Ok((stream, _))) = accepted.outcome else {
            panic!("not accepted");
        };
        let socket = driver.adopt(stream);
        let region = Region::new(4096).expect("memory");
        let memory = Memory::Region(region.handle());
        let into = Some(IoSlice::new(memory, 0, 4096));
        let lease = driver.lease_op_namespace();
        let op_namespace = lease.id();
        driver.submit(OpKey::single(op_namespace, 0), Op::Receive { socket, into });
        let guard = abandon(lease);
        kept.append(&mut turn(&mut driver));
        assert!(guard.upgrade().is_none());
        // The connection may already be closed.
        let _ = peer.write_all(&[7; 4096]);
        until(&mut driver, &mut kept, |o| {
            matches!(o, Outcome::Closed | Outcome::Received(_))
        });
        let mut bytes = [1; 4096];
        region.handle().copy_out(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0), "it was received");
        driver.close_listener(listener);
    }

    /// Wakes a driver when dropped.
    #[derive(Debug)]
    struct Wakes(Arc<dyn Wake>);

    impl Drop for Wakes {
        fn drop(&mut self) {
            self.0.wake();
        }
    }

    #[test]
    fn a_guard_of_no_operation_is_let_go_before_a_sleep() {
        let mut driver = driver();
        let lease = driver.lease_op_namespace();
        lease.abandon(&(Arc::new(Wakes(driver.waker())) as Guard));
        drop(lease);
        let end = driver.now() + Nanos::from_secs(60);
        driver.reap(Wait::Until(end), &mut Vec::new()).expect("ok");
        assert!(driver.now() < end, "it slept first");
    }
}

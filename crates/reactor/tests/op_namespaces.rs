//! Rooms change hands only when nothing of their former owner is left.

#[cfg(test)]
mod tests {
    use base::{Nanos, Time};
    use reactor::uring::{Options, UringDriver};
    use reactor::{Completion, Driver, Op, OpKey, Outcome, SocketOptions, Wait};

    fn driver() -> UringDriver {
        UringDriver::new(&Options::default()).expect("a ring")
    }

    fn turn(driver: &mut UringDriver) -> Vec<Completion> {
        let mut completions = Vec::new();
        driver.reap(Wait::No, &mut completions).expect("ok");
        completions
    }

    /// Waits for a completion; the others stay in `kept`, for the far end of a connection is one.
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
        // A connect is with the ring: its namespace is taken although its lease is gone.
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
        // What has no operation is handed out again; what has one never is.
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
        // The end of the operations ends that.
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
}

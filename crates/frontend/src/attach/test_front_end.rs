//! A front end for tests of what is above front ends.

use crate::attach::attached::Attached;
use crate::attach::front_end::{End, FrontEnd, Offered};
use crate::attach::reporter::{Ready, Reporter};
use crate::attach::source::SourceDevice;
use crate::attach::wanted::{File, FileReader, FrontEndOptions, Wanted};
use crate::nbd::{Address, NbdOptions};
use crate::{ClassRules, Handed, IoCounts, Ping};
use anyhow::Result;
use config::ConfigError;
use config::Value;
use config::schema::ApiAddress;
use control::socket_access::SocketAccess;
use reactor::PollPolicy;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use switch::{Class, PerClass};

/// A front end that has ended by itself, refuses to be detached, or takes its time for it.
#[derive(Debug, Default)]
pub(crate) struct TestFrontEnd {
    pub(crate) end: Option<End>,
    pub(crate) refuses: bool,
    /// Takes no messages.
    pub(crate) hangs: bool,
    pub(crate) pings: Mutex<Vec<Ping>>,
    pub(crate) gate: Option<Arc<Gate>>,
}

/// Holds front ends that are to be detached until the test lets them.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    count: usize,
    is_open: bool,
}

impl Gate {
    fn pass(&self) {
        let mut held = self.held.lock().expect("no test panics with it");
        held.count += 1;
        self.changed.notify_all();
        let wait = self.changed.wait_while(held, |held| !held.is_open);
        drop(wait.expect("no test panics with it"));
    }

    /// Waits until so many front ends are held at the same time.
    pub(crate) fn wait(&self, count: usize) {
        let held = self.held.lock().expect("no test panics with it");
        let patience = Duration::from_secs(60);
        let few = |held: &mut Held| held.count < count;
        let wait = self.changed.wait_timeout_while(held, patience, few);
        let (held, waited) = wait.expect("no test panics with it");
        let count_of = held.count;
        drop(held);
        assert!(!waited.timed_out(), "{count_of} of {count} end together");
    }

    pub(crate) fn open(&self) {
        let mut held = self.held.lock().expect("no test panics with it");
        held.is_open = true;
        self.changed.notify_all();
    }
}

impl FrontEnd for TestFrontEnd {
    fn clients(&self) -> usize {
        0
    }

    fn clients_in_words(&self, _: usize) -> String {
        String::new()
    }

    fn counts(&self) -> PerClass<IoCounts> {
        PerClass::default()
    }

    fn ping(&self, ping: &Ping) {
        if self.hangs {
            self.pings
                .lock()
                .expect("no test panics with it")
                .push(ping.clone());
        }
    }

    fn detach(&mut self, force: bool) -> Result<()> {
        anyhow::ensure!(force || !self.refuses, "in use");
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        Ok(())
    }

    fn offer(&self) -> Result<Offered> {
        anyhow::bail!("a test has no successor")
    }

    fn pause(&mut self, _: Instant) -> Result<Handed, String> {
        Ok(Handed::default())
    }

    fn resume(&mut self, _: Handed) -> Result<(), String> {
        Ok(())
    }

    fn end(&self) -> Option<End> {
        self.end
    }
}

/// Tells nothing.
#[derive(Debug)]
pub(crate) struct Silent;

impl Reporter for Silent {
    fn ready(&self, _: Vec<Ready>) -> Result<()> {
        Ok(())
    }

    fn interface(&self, _: &ApiAddress) -> Result<()> {
        Ok(())
    }

    fn note(&self, _: &str) {}
}

/// The file of tests that read none.
pub(crate) fn no_file() -> FileReader {
    fn read(_: &Path, _: bool) -> Result<File, ConfigError> {
        unreachable!("no test reads the file again")
    }
    FileReader { read, only: None }
}

/// An attachment of a file.
pub(crate) fn wanted(test: &str) -> Wanted {
    Wanted {
        name: "a".to_owned(),
        device: SourceDevice::Local("null:1M".parse().expect("a device")),
        path: None,
        nice: 0,
        socket_access: SocketAccess::default(),
        front_end: FrontEndOptions::Nbd(NbdOptions {
            address: Address::Unix(block::temporary(&format!("{test}.sock"))),
            class: Class::DEFAULT,
            rules: ClassRules::default(),
            tls: None,
            read_only: false,
            cores: Vec::new(),
            poll: PollPolicy::Auto,
        }),
        class_rules: 0,
        entry: Some(Value::Null),
    }
}

/// Starts an attachment of a file, which gets this front end instead of its own.
pub(crate) fn attached(test: &str, front_end: TestFrontEnd) -> Attached {
    let attached = Attached::start(wanted(test), &|| Ok(()), None);
    let mut attached = attached.expect("it starts");
    attached.started.front_end = Box::new(front_end);
    attached
}

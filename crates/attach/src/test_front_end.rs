//! A front end for tests of what is above front ends.

use crate::attached::Attached;
use crate::front_end::{End, FrontEnd};
use crate::reporter::{Ready, Reporter};
use crate::source::SourceDevice;
use crate::wanted::{File, FrontEndOptions, Wanted};
use anyhow::Result;
use control::ConfigError;
use control::attachments::Entry;
use control::model::ApiAddress;
use frontend::nbd::{Address, NbdOptions};
use frontend::{ClassRules, IoCounts};
use reactor::PollPolicy;
use std::collections::BTreeMap;
use std::path::Path;
use switch::{Class, PerClass};

/// A front end that has ended by itself, or refuses to be detached.
#[derive(Debug)]
pub(crate) struct TestFrontEnd {
    pub(crate) end: Option<End>,
    pub(crate) refuses: bool,
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

    fn detach(&mut self, force: bool) -> Result<()> {
        anyhow::ensure!(force || !self.refuses, "in use");
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
pub(crate) fn no_file(_: &Path, _: bool) -> Result<File, ConfigError> {
    unreachable!("no test reads the file again")
}

/// Starts an attachment of a file, which gets this front end instead of its own.
pub(crate) fn attached(test: &str, front_end: TestFrontEnd) -> Attached {
    let name = format!("switchyard-{test}-{}.sock", std::process::id());
    let wanted = Wanted {
        name: "a".to_owned(),
        device: SourceDevice::Local("null:1M".parse().expect("a device")),
        path: None,
        nice: 0,
        front_end: FrontEndOptions::Nbd(NbdOptions {
            address: Address::Unix(std::env::temp_dir().join(name)),
            class: Class::DEFAULT,
            rules: ClassRules::default(),
            tls: None,
            read_only: false,
            cores: Vec::new(),
            poll: PollPolicy::Auto,
        }),
        entry: Some(Entry {
            name: "a".to_owned(),
            kind: "nbd".to_owned(),
            words: BTreeMap::new(),
            class_rules: Vec::new(),
        }),
    };
    let mut attached = Attached::start(wanted).expect("it starts");
    attached.started.front_end = Box::new(front_end);
    attached
}

//! A front end for tests of what is above front ends.

use super::attached::{Attached, Wanted};
use super::file;
use super::front_end::{End, FrontEnd};
use anyhow::Result;
use frontend::IoCounts;
use switch::PerClass;

/// A front end that has ended by itself, or refuses to be detached.
#[derive(Debug)]
pub(super) struct TestFrontEnd {
    pub(super) end: Option<End>,
    pub(super) refuses: bool,
}

impl FrontEnd for TestFrontEnd {
    fn ways(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

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

/// Starts an attachment, which gets this front end instead of its own.
pub(super) fn attached(test: &str, front_end: TestFrontEnd) -> Attached {
    let name = format!("switchyard-{test}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let text = format!(
        "[[attachments]]\nname = \"a\"\nkind = \"nbd\"\nsocket = \"{}.sock\"\nnull = \"1M\"\n",
        path.display()
    );
    std::fs::write(&path, text).expect("a temporary file");
    let file = file::load(&path, false).expect("a good file");
    std::fs::remove_file(&path).expect("it was just written");
    let [wanted] = <[Wanted; 1]>::try_from(file.wanted).expect("one attachment");
    let mut attached = wanted.start().expect("it starts");
    attached.started.front_end = Box::new(front_end);
    attached
}

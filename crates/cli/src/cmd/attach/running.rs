//! The attachments of this process, from their start to their end.

use super::attached::{Attached, Wanted};
use super::file;
use super::front_end::{End, is_in_use};
use crate::exit::with_causes;
use crate::output::{Output, human_bytes, print};
use anyhow::Result;
use control::attachments::{Attachments, AttachmentsAnswer};
use control::model::ApiAddress;
use control::{ApplyError, ApplyErrorKind, server};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use switch::Class;

/// Time between two looks at attachments that end by themselves.
const LOOK: Duration = Duration::from_millis(500);

/// The attachments of the process. They change one at a time; the list is locked for moments only,
/// so that it can be asked for meanwhile.
#[derive(Debug)]
pub(super) struct Running {
    attached: Mutex<Vec<Attached>>,
    /// Held while attachments are started or ended.
    changes: Mutex<()>,
    /// Tells the main thread of signals.
    signals: Sender<()>,
    signalled: AtomicU32,
    /// All attachments of the start are there.
    is_ready: AtomicBool,
    is_draining: AtomicBool,
    /// An attachment could not serve any more.
    has_failed: AtomicBool,
    began: Instant,
    /// The file's address of the interface; `None` outside where the attachment is that of the
    /// command line.
    file_api: Option<Option<ApiAddress>>,
    output: Output,
}

impl Running {
    pub(super) fn new(
        file_api: Option<Option<ApiAddress>>,
        signals: Sender<()>,
        output: Output,
    ) -> Self {
        Self {
            attached: Mutex::default(),
            changes: Mutex::default(),
            signals,
            signalled: AtomicU32::new(0),
            is_ready: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            began: Instant::now(),
            file_api,
            output,
        }
    }

    fn has_file(&self) -> bool {
        self.file_api.is_some()
    }

    /// Starts all, and says so; one that does not start ends those before it.
    ///
    /// # Errors
    /// The reason, with the attachment's name.
    pub(super) fn start(&self, wanted: Vec<Wanted>) -> Result<()> {
        let _changes = lock(&self.changes);
        let started = wanted.into_iter().try_for_each(|wanted| {
            let attached = wanted.start()?;
            lock(&self.attached).push(attached);
            Ok(())
        });
        let told = started.and_then(|()| self.tell(&lock(&self.attached)));
        if told.is_err() {
            self.detach_all(true);
        }
        self.is_ready.store(true, Ordering::Relaxed);
        told
    }

    /// Says what clients need.
    fn tell(&self, attached: &[Attached]) -> Result<()> {
        if self.output.json && self.has_file() {
            let all = attached.iter().map(|attached| {
                let mut value = attached.started.ready.clone();
                value["name"] = attached.wanted.name.clone().into();
                value
            });
            let line = json!({ "attachments": all.collect::<Vec<_>>() });
            return print(format_args!("{line}\n"));
        }
        for attached in attached {
            let name = match &attached.wanted.entry {
                Some(entry) => format!("{}: ", entry.name),
                None => String::new(),
            };
            let ways = attached.started.front_end.ways().into_iter();
            let lines = ways.map(|(way, bytes)| {
                let size = human_bytes(bytes);
                format!("ready: {name}{way}, {size}")
            });
            let lines = lines.collect::<Vec<_>>().join("\n");
            self.output.result(&attached.started.ready, lines)?;
        }
        Ok(())
    }

    /// Serves until a signal, until the interface has detached the one of the command line, or until
    /// one cannot serve any more: the next process serves all.
    pub(super) fn serve(&self, signals: &Receiver<()>) {
        while signals.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            self.look();
            if self.has_failed() || (!self.has_file() && self.is_over()) {
                break;
            }
        }
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Returns true if an attachment could not serve any more.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns true if nothing is attached any more. Waits for the interface where it detaches one,
    /// which may refuse and stay.
    fn is_over(&self) -> bool {
        let is_empty = || lock(&self.attached).is_empty();
        is_empty() && {
            drop(lock(&self.changes));
            is_empty()
        }
    }

    /// Ends all. Open files of FUSE get `patience`, without bound where that is `None`; another
    /// signal ends them at once.
    pub(super) fn drain(&self, signals: &Receiver<()>, patience: Option<Duration>) {
        let detach_all = |force| {
            let _changes = lock(&self.changes);
            self.detach_all(force)
        };
        let by = patience.map(|patience| Instant::now() + patience);
        let mut force = false;
        for error in detach_all(false) {
            let within = match patience {
                Some(time) => format!(", or within {} s", time.as_secs()),
                None => String::new(),
            };
            self.output.note(format_args!(
                "{error}; or signal again to detach all the same{within}"
            ));
        }
        while !self.is_over() {
            force |= signals.recv_timeout(LOOK).is_ok();
            force |= by.is_some_and(|by| Instant::now() >= by);
            let unused = |attached: &Attached| attached.clients() == 0;
            if force || lock(&self.attached).iter().any(unused) {
                detach_all(force);
            }
        }
    }

    /// Detaches all at the same time; those that refuse stay. Returns the reasons.
    fn detach_all(&self, force: bool) -> Vec<anyhow::Error> {
        let all = std::mem::take(&mut *lock(&self.attached));
        let detach = |mut attached: Attached| match attached.detach(force) {
            Ok(()) => {
                self.say_goodbye(&attached);
                None
            }
            Err(error) => Some((attached, error)),
        };
        let refused: Vec<_> = std::thread::scope(|scope| {
            let threads = all.into_iter().map(|it| scope.spawn(move || detach(it)));
            let threads: Vec<_> = threads.collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            // One that panicked has said so.
            ended.filter_map(|ended| ended.ok().flatten()).collect()
        });
        let (stay, errors): (Vec<_>, Vec<_>) = refused.into_iter().unzip();
        *lock(&self.attached) = stay;
        errors
    }

    fn say_goodbye(&self, attached: &Attached) {
        let counts = attached.started.front_end.counts();
        let [latency, throughput] =
            [Class::Latency, Class::Throughput].map(|class| counts[class].begun);
        let served = format!("served {latency} latency and {throughput} throughput requests");
        if self.has_file() {
            tracing::info!("{}: detached; {served}", attached.wanted.name);
        } else if attached.wanted.command.kind() == "vhost" {
            self.output.note(served);
        }
    }

    /// Lets each attachment do what is due, and removes those that have ended by themselves.
    fn look(&self) {
        let mut attached = lock(&self.attached);
        attached.retain_mut(|attached| {
            attached.started.front_end.look();
            attached.log_state();
            let name = &attached.wanted.name;
            let end = attached.started.front_end.end();
            match end {
                Some(End::Failed) => {
                    tracing::error!("{name}: it cannot serve any more: it is detached");
                    self.has_failed.store(true, Ordering::Relaxed);
                }
                Some(End::Removed) if self.has_file() => {
                    tracing::warn!("{name}: another program has removed it: it is detached");
                }
                Some(End::Removed) | None => {}
            }
            end.is_none()
        });
    }

    /// Detaches one; the caller has locked the changes.
    fn detach_one(&self, name: &str, force: bool) -> Result<(), ApplyError> {
        let mut list = lock(&self.attached);
        let place = list
            .iter()
            .position(|attached| attached.wanted.name == name);
        let Some(place) = place else {
            return Err(ApplyError::new(
                ApplyErrorKind::NotFound,
                format!("there is no attachment {name:?}"),
                "see `switchyard attachments`",
            ));
        };
        let clients = list[place].clients();
        let in_use = |message: String| {
            ApplyError::new(
                ApplyErrorKind::Conflict,
                message,
                format!(
                    "end that use, or detach it all the same, and later requests fail: `switchyard \
                     detach {name} --force`"
                ),
            )
        };
        if clients > 0 && !force {
            let what = list[place].started.front_end.clients_in_words(clients);
            return Err(in_use(format!("{name:?} is in use by {what}")));
        }
        // Requests under way take their time.
        let mut attached = list.remove(place);
        drop(list);
        match attached.detach(force) {
            Ok(()) => {
                self.say_goodbye(&attached);
                Ok(())
            }
            Err(error) => {
                let mut list = lock(&self.attached);
                let place = place.min(list.len());
                list.insert(place, attached);
                Err(if is_in_use(&error) {
                    in_use(format!("{name:?}: {error}"))
                } else {
                    ApplyError::new(
                        ApplyErrorKind::Failed,
                        format!("{name:?} cannot be detached: {}", with_causes(&error)),
                        format!("detach it all the same: `switchyard detach {name} --force`"),
                    )
                })
            }
        }
    }

    /// Detaches what the file does not say any more, and starts what it says anew.
    fn change_to(&self, wanted: Vec<Wanted>) -> (usize, usize) {
        let same = |attached: &Attached| {
            let mut entries = wanted.iter().map(|wanted| &wanted.entry);
            entries.any(|entry| *entry == attached.wanted.entry)
        };
        let list = lock(&self.attached);
        let others = list.iter().filter(|attached| !same(attached));
        let others: Vec<String> = others.map(|it| it.wanted.name.clone()).collect();
        drop(list);
        let mut detached = 0;
        for name in others {
            match self.detach_one(&name, false) {
                Ok(()) => detached += 1,
                Err(error) => tracing::warn!("SIGHUP: {error}; it goes on as before"),
            }
        }
        let mut started = 0;
        for wanted in wanted {
            let is_there = |attached: &Attached| attached.wanted.name == wanted.name;
            if lock(&self.attached).iter().any(is_there) {
                continue;
            }
            match wanted.start() {
                Ok(attached) => {
                    started += 1;
                    // Without a reader of stdout it serves all the same.
                    if let Err(error) = self.tell(std::slice::from_ref(&attached)) {
                        tracing::warn!("{}", with_causes(&error));
                    }
                    lock(&self.attached).push(attached);
                }
                Err(error) => tracing::error!("SIGHUP: not attached: {}", with_causes(&error)),
            }
        }
        (started, detached)
    }
}

impl Attachments for Running {
    fn snapshot(&self) -> AttachmentsAnswer {
        let uptime = self.began.elapsed().as_millis();
        AttachmentsAnswer {
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            attachments: lock(&self.attached)
                .iter()
                .map(Attached::snapshot)
                .collect(),
        }
    }

    fn detach(&self, name: &str, force: bool) -> Result<(), ApplyError> {
        let _changes = lock(&self.changes);
        self.detach_one(name, force)
    }

    fn reload(&self, path: &Path) {
        let _changes = lock(&self.changes);
        if self.is_draining() {
            return;
        }
        let shown = path.display();
        let file = match file::load(path, false) {
            Ok(file) => file,
            Err(error) => {
                server::log_refused(path, &error);
                return;
            }
        };
        if self.file_api.as_ref().is_some_and(|api| *api != file.api) {
            tracing::warn!("SIGHUP: api cannot be changed while running; restart the process");
        }
        let (started, detached) = self.change_to(file.wanted);
        tracing::info!("SIGHUP: {shown} is in force: {started} attached, {detached} detached");
    }

    fn terminate(&self) {
        let before = self.signalled.fetch_add(1, Ordering::Relaxed);
        let most = if self.is_ready.load(Ordering::Relaxed) {
            2
        } else {
            1
        };
        if before >= most {
            std::process::exit(2);
        }
        // The receiver is gone only at the very end.
        let _ = self.signals.send(());
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}

/// Changes leave the list whole at each moment, so a poisoned lock is as good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::front_end::FrontEnd;
    use super::*;
    use frontend::IoCounts;
    use std::sync::mpsc;
    use switch::PerClass;

    /// A front end that has ended by itself.
    #[derive(Debug)]
    struct Ended(End);

    impl FrontEnd for Ended {
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

        fn detach(&mut self, _: bool) -> Result<()> {
            Ok(())
        }

        fn end(&self) -> Option<End> {
            Some(self.0)
        }
    }

    /// Serves one attachment that has ended so, with or without a file. Returns true if it failed.
    fn fails(end: End, has_file: bool) -> bool {
        let name = format!("switchyard-ended-{end:?}-{has_file}-{}", std::process::id());
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
        attached.started.front_end = Box::new(Ended(end));
        let (sender, signals) = mpsc::channel();
        let api = has_file.then_some(None);
        let running = Running::new(api, sender, Output { json: false });
        lock(&running.attached).push(attached);
        if end == End::Removed && has_file {
            // It serves on without any.
            running.look();
        } else {
            running.serve(&signals);
        }
        assert!(lock(&running.attached).is_empty());
        running.has_failed()
    }

    /// The process of an attachment with a broken ring ended as if all were well, and was not started
    /// again.
    #[test]
    fn an_attachment_that_fails_is_told_from_one_that_was_removed() {
        for has_file in [false, true] {
            assert!(fails(End::Failed, has_file));
            assert!(!fails(End::Removed, has_file));
        }
    }
}

//! The attachments of this process, from their start to their end.

use crate::Ping;
use crate::attach::attached::Attached;
use crate::attach::file::Interface;
use crate::attach::front_end::{End, is_in_use};
use crate::attach::lists::SharedLists;
use crate::attach::reporter::{Ready, Reporter};
use crate::attach::snapshot::AttachmentsAnswer;
use crate::attach::wanted::{FileReader, Wanted};
use anyhow::Result;
use config::{ApplyError, with_causes};
use control::server;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use switch::Class;

/// Time between two looks at attachments that end by themselves.
const LOOK: Duration = Duration::from_millis(500);

/// Time for the first attempts to start attachments, after which the process is ready without those
/// that are under way still.
const START_TIME: Duration = Duration::from_secs(5);

/// The attachments of the process. Those of a file that do not start are tried again, and keep no other
/// ones from serving.
#[derive(Debug)]
pub(crate) struct Running {
    pub(super) shared: Arc<SharedLists>,
    /// Held while attachments are asked for or ended.
    changes: Mutex<()>,
    /// Tells the main thread of signals.
    signals: Sender<()>,
    signalled: AtomicU32,
    /// All attachments of the start are there.
    is_ready: AtomicBool,
    /// The attachment of the command line could not serve any more.
    has_failed: AtomicBool,
    /// The end of the process cut clients off, or gave up their requests.
    was_forced: AtomicBool,
    began: Instant,
    /// The interface as the file says it, and how that is read; `None` outside where the attachment
    /// is the one that was asked for without a file.
    of_file: Option<(Interface, FileReader)>,
    reporter: Arc<dyn Reporter>,
}

impl Running {
    pub(crate) fn new(
        of_file: Option<(Interface, FileReader)>,
        signals: Sender<()>,
        reporter: Arc<dyn Reporter>,
    ) -> Self {
        Self {
            shared: Arc::default(),
            changes: Mutex::default(),
            signals,
            signalled: AtomicU32::new(0),
            is_ready: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            was_forced: AtomicBool::new(false),
            began: Instant::now(),
            of_file,
            reporter,
        }
    }

    pub(crate) fn reporter(&self) -> &dyn Reporter {
        &*self.reporter
    }

    fn has_file(&self) -> bool {
        self.of_file.is_some()
    }

    /// Starts all, and says so.
    ///
    /// # Errors
    /// The reason for which the attachment of the command line does not start, or an output that cannot
    /// be written.
    pub(crate) fn start(&self, wanted: Vec<Wanted>) -> Result<()> {
        let _changes = lock(&self.changes);
        if self.has_file() {
            self.ask_for(wanted);
        } else {
            for wanted in wanted {
                if let Some(started) = self.shared.start_one(wanted) {
                    self.shared.lock().insert(started?);
                }
            }
        }
        let told = self.tell(self.has_file());
        self.is_ready.store(true, Ordering::Relaxed);
        told
    }

    /// Begins to start attachments, and gives them some time for it; none where the process is to end.
    fn ask_for(&self, wanted: Vec<Wanted>) {
        let mut lists = self.shared.lock();
        if lists.is_draining {
            return;
        }
        wanted.into_iter().for_each(|wanted| lists.want(wanted));
        drop(lists);
        self.shared.start_due();
        self.shared.wait_settled(START_TIME);
    }

    /// Ends all as where the process is killed, with what that leaves for the next one.
    pub(crate) fn abandon(&self) {
        self.shared.set_draining();
        let all = std::mem::take(&mut self.shared.lock().attached);
        drop(all);
    }

    /// Says what clients of new attachments need; also that there are none if `always` is true.
    fn tell(&self, always: bool) -> Result<()> {
        let mut lists = self.shared.lock();
        let new = lists.attached.iter_mut().filter(|it| !it.is_told);
        let new = new.map(|attached| {
            attached.is_told = true;
            let wanted = &attached.wanted;
            Ready {
                name: wanted.entry.as_ref().map(|_| wanted.name.clone()),
                description: attached.started.description.clone(),
                ways: attached.started.ways.clone(),
            }
        });
        let new: Vec<_> = new.collect();
        drop(lists);
        if new.is_empty() && !always {
            return Ok(());
        }
        self.reporter.ready(new)
    }

    /// The same while it serves: without a reader of stdout it serves all the same.
    fn tell_later(&self) {
        if let Err(error) = self.tell(false) {
            tracing::warn!("{}", with_causes(&error));
        }
    }

    /// Serves until a signal, or until that of the command line is detached or cannot serve any more.
    pub(crate) fn serve(&self, signals: &Receiver<()>) {
        while signals.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            self.look();
            if self.has_failed() || (!self.has_file() && self.is_over()) {
                break;
            }
        }
        self.shared.set_draining();
    }

    /// Returns true if the attachment of the command line could not serve any more: another process may.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns true if all threads that serve take a message within `time`.
    pub(crate) fn responds(&self, time: Duration) -> bool {
        let (ping, pinged) = Ping::new();
        for attached in &self.shared.lock().attached {
            attached.started.front_end.ping(&ping);
        }
        drop(ping);
        pinged.wait(time)
    }

    /// Returns true if the end of the process cut clients off, or gave up their requests.
    pub(crate) fn was_forced(&self) -> bool {
        self.was_forced.load(Ordering::Relaxed)
    }

    /// Returns true if nothing is attached any more. Waits for the interface where it detaches one,
    /// which may refuse and stay.
    fn is_over(&self) -> bool {
        let is_idle = || self.shared.lock().is_idle();
        is_idle() && {
            drop(lock(&self.changes));
            is_idle()
        }
    }

    /// Ends all. Those in use get `patience`, or without one as long as they need; another signal ends
    /// them at once.
    pub(crate) fn drain(&self, signals: &Receiver<()>, patience: Option<Duration>) {
        // Beside a change that takes its time: what that has in hand is waited for below, and it
        // begins nothing more.
        let detach_all = |force| {
            self.shared.lock().retain_waiting(|_| false);
            self.detach_all(force)
        };
        let by = patience.map(|patience| Instant::now() + patience);
        let mut force = false;
        for error in detach_all(false) {
            let within = match patience {
                Some(time) => format!(", or within {} s", time.as_secs()),
                None => String::new(),
            };
            self.reporter.note(&format!(
                "{error}; or signal again to end all the same{within}"
            ));
        }
        while !self.is_over() {
            force |= signals.recv_timeout(LOOK).is_ok();
            force |= by.is_some_and(|by| Instant::now() >= by);
            let unused = |attached: &Attached| attached.clients() == 0;
            if force || self.shared.lock().attached.iter().any(unused) {
                detach_all(force);
            }
        }
    }

    /// Ends all at the same time; those that refuse stay. Returns the reasons.
    fn detach_all(&self, force: bool) -> Vec<anyhow::Error> {
        let all = std::mem::take(&mut self.shared.lock().attached);
        let detach = |mut attached: Attached| {
            let ended = if force {
                attached.leave()
            } else {
                attached.detach(false)
            };
            match ended {
                Ok(()) => {
                    self.say_goodbye(&attached);
                    let forced = attached.started.front_end.was_forced();
                    self.was_forced.fetch_or(forced, Ordering::Relaxed);
                    None
                }
                Err(error) => Some((attached, error)),
            }
        };
        let refused: Vec<_> = std::thread::scope(|scope| {
            let threads = all.into_iter().map(|it| scope.spawn(move || detach(it)));
            let threads: Vec<_> = threads.collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            // One that panicked has said so.
            ended.filter_map(|ended| ended.ok().flatten()).collect()
        });
        let (stay, errors): (Vec<_>, Vec<_>) = refused.into_iter().unzip();
        let mut lists = self.shared.lock();
        stay.into_iter().for_each(|attached| lists.insert(attached));
        errors
    }

    fn say_goodbye(&self, attached: &Attached) {
        let counts = attached.started.front_end.counts();
        let [latency, throughput] =
            [Class::Latency, Class::Throughput].map(|class| counts[class].begun);
        let served = format!("served {latency} latency and {throughput} throughput requests");
        if self.has_file() {
            tracing::info!("{}: detached; {served}", attached.wanted.name);
        } else if attached.wanted.front_end.kind() == "vhost" {
            self.reporter.note(&served);
        }
    }

    /// Lets each attachment do what is due, and removes those that have ended by themselves. Those of a
    /// file that cannot serve any more are started again, as are those that have not started.
    fn look(&self) {
        let mut lists = self.shared.lock();
        if lists.is_leaving {
            return;
        }
        let mut ended = Vec::new();
        for mut attached in std::mem::take(&mut lists.attached) {
            attached.started.front_end.look();
            attached.log_state();
            let Some(end) = attached.started.front_end.end() else {
                lists.attached.push(attached);
                continue;
            };
            let name = &attached.wanted.name;
            match (end, self.has_file()) {
                (End::Failed, true) => {
                    let error = format!("{name}: it could not serve any more");
                    lists.want_again(&attached, error);
                }
                (End::Failed, false) => {
                    tracing::error!("{name}: it cannot serve any more: it is detached");
                    self.has_failed.store(true, Ordering::Relaxed);
                }
                (End::Removed, true) => {
                    tracing::warn!("{name}: another program has removed it: it is detached");
                }
                (End::Removed, false) => {}
            }
            ended.push(attached);
        }
        drop(lists);
        drop(ended);
        self.shared.start_due();
        self.tell_later();
    }

    /// Detaches one; the caller has locked the changes.
    fn detach_one(&self, name: &str, force: bool) -> Result<(), ApplyError> {
        let mut lists = self.shared.lock();
        if lists.retain_waiting(|wanted| wanted.name != name) > 0 {
            tracing::info!("{name}: it is not tried any more");
            return Ok(());
        }
        let list = &mut lists.attached;
        let place = list
            .iter()
            .position(|attached| attached.wanted.name == name);
        let Some(place) = place else {
            return Err(ApplyError::not_found(
                format!("there is no attachment {name:?}"),
                "see `switchyard attachments`",
            ));
        };
        let clients = list[place].clients();
        let in_use = |message: String| {
            ApplyError::conflict(
                message,
                format!(
                    "end that use, or use `switchyard detach {name} --force`: later requests then fail"
                ),
            )
        };
        if clients > 0 && !force {
            let what = list[place].started.front_end.clients_in_words(clients);
            return Err(in_use(format!("{name:?} is in use by {what}")));
        }
        // Requests under way take their time.
        let mut attached = list.remove(place);
        drop(lists);
        match attached.detach(force) {
            Ok(()) => {
                self.say_goodbye(&attached);
                Ok(())
            }
            Err(error) => {
                self.shared.lock().insert(attached);
                Err(if is_in_use(&error) {
                    in_use(format!("{name:?}: {error}"))
                } else {
                    ApplyError::failed(
                        format!("{name:?} cannot be detached: {}", with_causes(&error)),
                        format!("detach it all the same: `switchyard detach {name} --force`"),
                    )
                })
            }
        }
    }

    /// Detaches what the file does not say any more, and starts what it says anew. Returns the numbers of
    /// both.
    fn change_to(&self, wanted: Vec<Wanted>) -> (usize, usize) {
        let is_wanted = |other: &Wanted| wanted.iter().any(|it| it.entry == other.entry);
        let mut lists = self.shared.lock();
        lists.retain_waiting(is_wanted);
        let others = lists.attached.iter().map(|attached| &attached.wanted);
        let others = others.filter(|other| !is_wanted(other));
        let others: Vec<String> = others.map(|other| other.name.clone()).collect();
        drop(lists);
        let mut detached = 0;
        for name in others {
            if self.is_draining() {
                break;
            }
            match self.detach_one(&name, false) {
                Ok(()) => detached += 1,
                Err(error) => tracing::warn!("SIGHUP: {error}; it goes on as before"),
            }
        }
        let lists = self.shared.lock();
        let is_new = |wanted: &Wanted| lists.names().all(|name| name != wanted.name);
        let new: Vec<Wanted> = wanted.into_iter().filter(is_new).collect();
        drop(lists);
        let names: Vec<String> = new.iter().map(|wanted| wanted.name.clone()).collect();
        self.ask_for(new);
        let lists = self.shared.lock();
        let started = lists.attached.iter();
        let started = started.filter(|attached| names.contains(&attached.wanted.name));
        let started = started.count();
        drop(lists);
        self.tell_later();
        (started, detached)
    }
}

/// Calls of the interface and of signals; they may block.
impl Running {
    /// Returns the state of all attachments.
    pub(crate) fn snapshot(&self) -> AttachmentsAnswer {
        let uptime = self.began.elapsed().as_millis();
        AttachmentsAnswer {
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            attachments: self.shared.lock().snapshot(),
        }
    }

    /// Ends an attachment; one that is in use only if `force` is true.
    ///
    /// # Errors
    /// [`NotFound`](control::ApplyErrorKind::NotFound) for an unknown name,
    /// [`Conflict`](control::ApplyErrorKind::Conflict) for one in use, and while the process ends,
    /// which detaches all.
    pub(crate) fn detach(&self, name: &str, force: bool) -> Result<(), ApplyError> {
        let _changes = lock(&self.changes);
        if self.is_draining() {
            return Err(ApplyError::conflict(
                format!("{name:?} cannot be detached by itself: the process is ending"),
                "it detaches all; see its log",
            ));
        }
        if self.shared.lock().is_leaving {
            return Err(ApplyError::conflict(
                format!("{name:?} cannot be detached: another process is taking it over"),
                "retry in a moment",
            ));
        }
        self.detach_one(name, force)
    }

    /// Attaches and detaches the changes of the file, and logs them.
    pub(crate) fn reload(&self, path: &Path) {
        let _changes = lock(&self.changes);
        if self.is_draining() || self.shared.lock().is_leaving {
            return;
        }
        let shown = path.display();
        let Some((interface, read)) = &self.of_file else {
            return;
        };
        let file = match read.read(path, false) {
            Ok(file) => file,
            Err(error) => {
                server::log_refused(path, &error);
                return;
            }
        };
        if *interface != file.interface {
            tracing::warn!(
                "SIGHUP: api and api_limits cannot be changed while running; restart the process"
            );
        }
        let (started, detached) = self.change_to(file.wanted);
        tracing::info!("SIGHUP: {shown} is in force: {started} attached, {detached} detached");
    }

    /// Takes note of a signal to end; called at each.
    pub(crate) fn terminate(&self) {
        let before = self.signalled.fetch_add(1, Ordering::Relaxed);
        let most = if self.is_ready.load(Ordering::Relaxed) {
            2
        } else {
            1
        };
        if before >= most {
            std::process::exit(2);
        }
        // Attachments that are starting hold the end up no longer.
        self.shared.set_draining();
        // The receiver is gone only at the very end.
        let _ = self.signals.send(());
    }

    /// Lets no other change begin until [`stay`](Self::stay), because a process takes all over.
    pub(super) fn begin_to_leave(&self) -> Result<(), &'static str> {
        let _changes = lock(&self.changes);
        let mut lists = self.shared.lock();
        if lists.is_draining {
            return Err("the process is ending");
        }
        if lists.is_offering() {
            return Err("an attachment is being started: retry");
        }
        lists.is_leaving = true;
        Ok(())
    }

    /// Ends the process without an effect on clients: another one has taken all over.
    pub(super) fn end(&self) {
        self.shared.set_draining();
        // The receiver is gone only at the very end.
        let _ = self.signals.send(());
    }

    /// Returns true once the process is to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::shared::SharedAttachments;
    use crate::attach::test_front_end::{Gate, Silent, TestFrontEnd, attached, no_file};
    use config::schema::ApiAddress;
    use control::client::{self, Method};
    use control::server::{self, ServerOptions};
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    /// Serves one attachment that has ended so, with or without a file. Returns true if the process has
    /// failed by that, and the names that are left.
    fn fails(end: End, has_file: bool) -> (bool, Vec<String>) {
        let front_end = TestFrontEnd {
            end: Some(end),
            ..TestFrontEnd::default()
        };
        let attached = attached(&format!("ended-{end:?}-{has_file}"), front_end);
        let (sender, signals) = mpsc::channel();
        let of_file = has_file.then(|| (Interface::default(), no_file()));
        let running = Running::new(of_file, sender, Arc::new(Silent));
        running.shared.lock().insert(attached);
        if has_file {
            // It serves on.
            running.look();
        } else {
            running.serve(&signals);
        }
        let lists = running.shared.lock();
        assert!(lists.attached.is_empty());
        (
            running.has_failed(),
            lists.names().map(str::to_owned).collect(),
        )
    }

    /// The process of an attachment with a broken ring ended as if all were well, and was not started
    /// again. With a file all others ended with it, those in use, too.
    #[test]
    fn an_attachment_that_fails_is_told_from_one_that_was_removed() {
        assert_eq!(fails(End::Failed, false), (true, vec![]));
        assert_eq!(fails(End::Failed, true), (false, vec!["a".to_owned()]));
        for has_file in [false, true] {
            assert_eq!(fails(End::Removed, has_file), (false, vec![]));
        }
    }
    #[test]
    fn one_that_takes_no_messages_is_seen() {
        for hangs in [false, true] {
            let (sender, _signals) = mpsc::channel();
            let running = Running::new(None, sender, Arc::new(Silent));
            for hangs in [false, hangs] {
                let front_end = TestFrontEnd {
                    hangs,
                    ..TestFrontEnd::default()
                };
                let attached = attached(&format!("ping-{hangs}"), front_end);
                running.shared.lock().insert(attached);
            }
            let time = Duration::from_millis(if hangs { 1 } else { 60_000 });
            assert_eq!(running.responds(time), !hangs);
        }
    }

    /// The process heard of a signal only when the first attempts of its attachments had ended.
    #[test]
    fn a_signal_ends_the_wait_for_attachments_that_start() {
        let (sender, signals) = mpsc::channel();
        let running = Running::new(
            Some((Interface::default(), no_file())),
            sender,
            Arc::new(Silent),
        );
        running.terminate();
        assert!(running.is_draining());
        assert_eq!(signals.try_recv(), Ok(()));
    }

    /// Asks for the end of an attachment, and does not wait for the answer.
    fn ask_to_detach(name: &str, socket: &Path) -> UnixStream {
        let mut client = UnixStream::connect(socket).expect("the interface listens");
        let head = format!(
            "DELETE /v1/attachments/{name}?force=true HTTP/1.1\r\nhost: localhost\r\n\
             connection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes()).expect("it is sent");
        client
    }

    /// Each that waited for its turn took a thread, so that the fifth kept the interface from any
    /// answer; and at a signal those that waited went first, one after the other.
    #[test]
    fn detaches_that_take_their_time_hold_up_no_question_and_no_end() {
        let names = ["a", "b", "c", "d", "e"];
        let (sender, signals) = mpsc::channel();
        let of_file = Some((Interface::default(), no_file()));
        let running = Arc::new(Running::new(of_file, sender, Arc::new(Silent)));
        let gate = Arc::new(Gate::default());
        for name in names {
            let front_end = TestFrontEnd {
                gate: Some(Arc::clone(&gate)),
                ..TestFrontEnd::default()
            };
            let mut attached = attached(&format!("slow-{name}"), front_end);
            name.clone_into(&mut attached.wanted.name);
            running.shared.lock().insert(attached);
        }
        let socket = block::temporary("slow.sock");
        let api = ApiAddress::Unix(socket.clone());
        let options = ServerOptions {
            api: Some(api.clone()),
            ..ServerOptions::default()
        };
        let managed = SharedAttachments::new(Arc::clone(&running));
        let server = server::start(Arc::new(managed), options);
        let server = server.expect("it starts");

        let clients = names.map(|name| ask_to_detach(name, &socket));
        gate.wait(1);
        let list =
            client::ask(&api.into(), Method::GET, "/v1/attachments", None).expect("an answer");
        let left = list["attachments"].as_array().expect("a list").len();
        assert_eq!(left, 4, "{list}");

        running.terminate();
        let draining = Arc::clone(&running);
        let drain = std::thread::spawn(move || draining.drain(&signals, None));
        gate.wait(5);
        gate.open();
        drain.join().expect("it drains");
        let mut answers = clients.map(|mut client| {
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("an answer");
            answer
        });
        answers.sort();
        let [first, others @ ..] = &answers;
        assert!(first.starts_with("HTTP/1.1 204"), "{first}");
        for other in others {
            assert!(other.starts_with("HTTP/1.1 409"), "{other}");
            assert!(other.contains("the process is ending"), "{other}");
        }
        server.stop();
    }
}

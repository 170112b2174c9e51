//! Steps of threads: applications, the write-back thread, the dispatcher, and all of them as
//! runners of queues.
//!
//! The path's rules are called where production calls them. On a polling path, a submitter
//! continues its application only after its own requests have completed; it does continue while it
//! polls for requests of other threads.

use super::cache::Found;
use super::machine::PAGE_BYTES;
use super::request::{Command, Purpose, Request};
use super::scenario::{Mix, Pattern};
use super::world::{Event, Role, Step, World};
use base::Nanos;
use block::limits::{CACHE_WRITES, EXTENTS_MAX, TRANSFER_MAX_BYTES};
use std::ops::Range;
use switch::path::{Properties, QueueKind, QueueStep, Route, Runner};

impl World<'_> {
    /// Returns true if a thread waits for the device by polling.
    pub(super) fn polls(&self, thread: usize) -> bool {
        self.threads[thread].under_way > 0 && self.setup.path.polls()
    }

    /// Returns true if an application continues while its thread polls: if all polled requests are
    /// of other threads, and its next request would take the queue that the thread runs. A thread
    /// of the model runs one queue at a time.
    fn goes_on(&self, thread: usize) -> bool {
        let it = &self.threads[thread];
        let Role::App(app) = &it.role else {
            return false;
        };
        let runs = it.term.map(|(queue, _)| Route::Queue(queue));
        let fits = |request: &Request| Some(self.setup.path.route(request.properties)) == runs;
        it.own_under_way == 0 && app.todo.front().is_none_or(fits)
    }

    /// Returns the next step of a thread and its cost; `None` if it has to wait.
    pub(super) fn next_step(&mut self, thread: usize) -> Option<(Step, u64)> {
        let machine = &self.setup.machine;
        let it = &self.threads[thread];
        let each = |command: &Command, cost: u64| cost * command.requests.len() as u64;
        if let Some(command) = it.finished.front() {
            return Some((Step::Finish, each(command, machine.complete_ns)));
        }
        if let Some(command) = it.unsent.front() {
            return Some((Step::Send, each(command, machine.submit_ns)));
        }
        if let Some((queue, _)) = it.term {
            let kind = self.queues[queue].kind;
            if it.under_way == 0 || !kind.one_batch() {
                return Some((Step::Look, self.lock_ns(kind)));
            }
        }
        if it.rung {
            return Some((Step::Bell, machine.lock_ns));
        }
        if it.debt > 0 {
            return Some((Step::Settle, 0));
        }
        if self.polls(thread) && !self.goes_on(thread) {
            return None;
        }
        match &it.role {
            Role::App(app) => match app.todo.front() {
                Some(_) if app.writes_under_way() >= self.writes_at_once() => None,
                Some(request) => Some((Step::Issue, self.issue_ns(request.properties))),
                None if app.waits => None,
                None => {
                    let copies = machine.copy_ns * self.setup.load.pages;
                    let cost = machine.app_ns + machine.call_ns + copies;
                    Some((Step::Next, cost))
                }
            },
            Role::Flusher(under_way) if *under_way < self.writes_at_once() => {
                let cost = self.issue_ns(WRITE_BACK);
                let cache = self.cache.as_mut()?;
                cache.has_work().then_some((Step::Issue, cost))
            }
            Role::Flusher(_) | Role::Dispatcher => None,
        }
    }

    /// Returns the maximum pages that one thread may have in flight for write-back. If submitters
    /// run the queue, the write returns from the path when the page is written: the thread sends
    /// it, or sleeps until another thread has sent it.
    fn writes_at_once(&self) -> u32 {
        match self.setup.path.route(WRITE_BACK) {
            Route::Queue(queue) if self.queues[queue].kind == QueueKind::Temporal => 1,
            Route::Queue(_) | Route::Own => CACHE_WRITES,
        }
    }

    const fn lock_ns(&self, kind: QueueKind) -> u64 {
        match kind {
            QueueKind::Temporal => self.setup.machine.lock_ns,
            QueueKind::Dispatched | QueueKind::Plugged | QueueKind::Shadow => {
                self.setup.machine.scheduler_ns
            }
        }
    }

    fn issue_ns(&self, properties: Properties) -> u64 {
        match self.setup.path.route(properties) {
            Route::Own => 0,
            Route::Queue(queue) => self.lock_ns(self.queues[queue].kind),
        }
    }

    /// Applies the effect of a step.
    pub(super) fn take_effect(&mut self, thread: usize, step: Step) {
        match step {
            Step::Finish => {
                let it = &mut self.threads[thread];
                it.under_way -= 1;
                let command = it.finished.pop_front().expect("it was there");
                it.own_under_way -= command.of(thread);
                for request in command.requests {
                    self.complete(request, thread);
                }
            }
            Step::Send => {
                let it = &mut self.threads[thread];
                it.under_way += 1;
                let command = it.unsent.pop_front().expect("it was there");
                it.own_under_way += command.of(thread);
                self.send(command);
            }
            Step::Look => self.look(thread),
            Step::Issue => self.issue(thread),
            Step::Next => self.begin(thread),
            Step::Bell => self.answer_bell(thread),
            Step::Settle => {}
        }
    }

    /// Completes a request; `by` notifies the threads that wait for it.
    fn complete(&mut self, request: Request, by: usize) {
        self.report.completed += 1;
        match request.purpose {
            Purpose::Own => self.go_on(request.thread, by),
            Purpose::Fill => {
                for page in pages(&request) {
                    let cache = self.cache.as_mut().expect("it fills the cache");
                    for waiting in cache.filled(page) {
                        self.go_on(waiting, by);
                    }
                }
            }
            Purpose::WriteBack => {
                let cache = self.cache.as_mut().expect("it comes from the cache");
                cache.written(pages(&request));
                match &mut self.threads[request.thread].role {
                    Role::Flusher(under_way) => *under_way -= 1,
                    Role::App(app) => {
                        app.writes_back -= 1;
                        app.waits = app.writes_back > 0;
                    }
                    Role::Dispatcher => {}
                }
                self.notify(request.thread, Some(by));
            }
        }
    }

    /// An application's request or page is complete.
    fn go_on(&mut self, thread: usize, by: usize) {
        if let Role::App(app) = &mut self.threads[thread].role {
            app.waits = false;
        }
        self.count();
        self.notify(thread, Some(by));
    }

    /// Counts a completed request of an application.
    fn count(&mut self) {
        self.report.requests += u64::from(self.measures());
    }

    fn issue(&mut self, thread: usize) {
        let request = match &mut self.threads[thread].role {
            Role::App(app) => app.todo.pop_front(),
            Role::Flusher(under_way) => {
                let page = self.cache.as_mut().and_then(|cache| cache.take());
                *under_way += u32::from(page.is_some());
                page.map(|page| Request {
                    thread,
                    purpose: Purpose::WriteBack,
                    properties: WRITE_BACK,
                    page,
                    pages: 1,
                })
            }
            Role::Dispatcher => None,
        };
        let Some(request) = request else { return };
        self.report.submitted += 1;
        let now = self.time();
        match self.setup.path.route(request.properties) {
            Route::Own => self.threads[thread].unsent.push_back(Command {
                sender: thread,
                requests: vec![request],
            }),
            Route::Queue(index) => {
                // The queue of an application that waits for its write-back is unplugged.
                let unplugs = match &self.threads[thread].role {
                    Role::App(app) => app.writes_back > 0 && app.todo.is_empty(),
                    Role::Flusher(_) | Role::Dispatcher => false,
                };
                let queue = &mut self.queues[index];
                let mut next = queue.gate.arrive(now, request.properties);
                queue.requests.push_back(request);
                if unplugs {
                    next = queue.gate.unplug(now);
                }
                if next == QueueStep::Run(Runner::Submitter) {
                    queue.gate.begin();
                    self.threads[thread].term = Some((index, true));
                } else {
                    self.see_to(index, next, thread);
                }
            }
        }
    }

    /// Lets the dispatcher run a queue when that is due.
    fn see_to(&mut self, queue: usize, next: QueueStep, by: usize) {
        match next {
            QueueStep::Run(_) => self.ring(Some(by)),
            QueueStep::At(time) => self.push(time.0, Event::Due(queue)),
            QueueStep::Nothing => {}
        }
    }

    fn ring(&mut self, by: Option<usize>) {
        if let Some(dispatcher) = self.dispatcher {
            self.threads[dispatcher].rung = true;
            self.notify(dispatcher, by);
        }
    }

    /// A plugged queue may be due.
    pub(super) fn due(&mut self, queue: usize) {
        if self.queues[queue].gate.next(self.time()) == QueueStep::Run(Runner::Dispatcher) {
            self.ring(None);
        }
    }

    fn answer_bell(&mut self, thread: usize) {
        let now = self.time();
        self.threads[thread].rung = false;
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            let runs = match queue.gate.next(now) {
                QueueStep::Run(Runner::Dispatcher) => true,
                // A submitter handed it over.
                QueueStep::Run(Runner::Submitter) => queue.kind == QueueKind::Shadow,
                QueueStep::At(_) | QueueStep::Nothing => false,
            };
            if runs && self.threads[thread].term.is_none() {
                queue.gate.begin();
                self.threads[thread].term = Some((index, true));
            }
        }
    }

    /// The runner of a queue makes commands of the next batch, or stops running the queue.
    fn look(&mut self, thread: usize) {
        let Some((index, first)) = self.threads[thread].term.take() else {
            return;
        };
        let runner = if self.dispatcher == Some(thread) {
            Runner::Dispatcher
        } else {
            Runner::Submitter
        };
        let now = self.time();
        let queue = &mut self.queues[index];
        if !first && !queue.gate.goes_on(now, runner) {
            let after = queue.gate.after(now);
            return self.see_to(index, after, thread);
        }
        let mut taking = queue.gate.taking();
        let mut batch = Vec::new();
        let mut kept = 0;
        while kept < queue.requests.len() && !taking.is_full() {
            let properties = queue.requests[kept].properties;
            if taking.takes(properties) {
                queue.gate.take(properties);
                batch.extend(queue.requests.remove(kept));
            } else {
                kept += 1;
            }
        }
        let commands = commands(queue.kind, thread, batch);
        let it = &mut self.threads[thread];
        it.term = Some((index, false));
        it.unsent.extend(commands);
    }

    fn send(&mut self, command: Command) {
        if self.measures() {
            let pages: u64 = command.requests.iter().map(|request| request.pages).sum();
            let at = usize::try_from(pages - 1).expect("a command's pages");
            let counts = &mut self.report.commands;
            counts.resize(counts.len().max(at + 1), 0);
            counts[at] += 1;
        }
        self.device.waiting.push_back(command);
        self.start_device();
    }

    /// Starts an application's next request.
    fn begin(&mut self, thread: usize) {
        if let Role::App(app) = &mut self.threads[thread].role
            && let Some(page) = app.held_up.take()
        {
            return self.write(thread, page);
        }
        let (now, measures) = (self.now, self.measures());
        let load = &self.setup.load;
        let part = self.setup.device_pages / load.threads as u64 / load.pages * load.pages;
        let reads = match load.mix {
            Mix::OfRequests(permille) => self.random.permille(permille),
            Mix::OfThreads => thread.is_multiple_of(2),
        };
        let random = self.random.below(part / load.pages) * load.pages;
        let Role::App(app) = &mut self.threads[thread].role else {
            return;
        };
        let before = std::mem::replace(&mut app.began, now);
        if measures {
            self.report.latencies.record(Nanos(now - before));
        }
        let page = match load.pattern {
            Pattern::Sequential => {
                let next = app.next;
                app.next = (next + load.pages) % part;
                next
            }
            Pattern::Random => random,
        };
        let page = app.first + page;
        match (self.cache.is_some(), reads) {
            (false, _) => self.pass(thread, reads, page),
            (true, true) => self.read(thread, page),
            (true, false) => self.write(thread, page),
        }
    }

    /// Issues a request that bypasses the cache, or has no cache.
    fn pass(&mut self, thread: usize, reads: bool, page: u64) {
        self.submit_later(
            thread,
            Purpose::Own,
            reads,
            page..page + self.setup.load.pages,
        );
        self.wait(thread);
    }

    fn wait(&mut self, thread: usize) {
        if let Role::App(app) = &mut self.threads[thread].role {
            app.waits = true;
        }
    }

    fn submit_later(&mut self, thread: usize, purpose: Purpose, reads: bool, pages: Range<u64>) {
        if let Role::App(app) = &mut self.threads[thread].role {
            app.todo.push_back(Request {
                thread,
                purpose,
                properties: Properties {
                    reads,
                    awaited: true,
                },
                page: pages.start,
                pages: pages.end - pages.start,
            });
        }
    }

    fn read(&mut self, thread: usize, page: u64) {
        let cache = self.cache.as_mut().expect("it reads through the cache");
        let found = cache.find(page);
        if found == Found::Missing {
            cache.fill(page);
        }
        cache.wait(page, thread);
        match found {
            Found::There => self.count(),
            Found::Filling => self.wait(thread),
            Found::Missing => {
                self.wait(thread);
                self.submit_later(thread, Purpose::Fill, true, page..page + 1);
            }
        }
        self.look_ahead(thread, page);
    }

    fn look_ahead(&mut self, thread: usize, page: u64) {
        let part = self.setup.device_pages / self.setup.load.threads as u64;
        let cache = self.cache.as_mut().expect("it reads through the cache");
        let Role::App(app) = &mut self.threads[thread].role else {
            return;
        };
        let cached = || cache.find(page.wrapping_sub(1)) != Found::Missing;
        let Some(ahead) = app.read_ahead.read(page..page + 1, cached) else {
            return;
        };
        let mut run = ahead.start..ahead.start;
        for page in ahead.start..ahead.end.min(app.first + part) {
            let cache = self.cache.as_mut().expect("it reads through the cache");
            if cache.find(page) != Found::Missing {
                continue;
            }
            cache.fill(page);
            if page != run.end && !run.is_empty() {
                self.submit_later(thread, Purpose::Fill, true, run.clone());
            }
            run = if page == run.end { run.start } else { page }..page + 1;
        }
        if !run.is_empty() {
            self.submit_later(thread, Purpose::Fill, true, run);
        }
    }

    fn write(&mut self, thread: usize, page: u64) {
        let cache = self.cache.as_mut().expect("it writes into the cache");
        if !cache.write(page) {
            return self.write_back(thread, page);
        }
        let writes_back = cache.has_work();
        self.count();
        if let (true, Some(flusher)) = (writes_back, self.flusher) {
            self.notify(flusher, Some(thread));
        }
    }

    /// An application that finds too many dirty pages first writes some back itself, in sequential
    /// order, before it writes its own page: like a process in `balance_dirty_pages` of the thesis'
    /// kernel. If there are none to take, its page bypasses the cache.
    fn write_back(&mut self, thread: usize, page: u64) {
        let cache = self.cache.as_mut().expect("it writes into the cache");
        let mut taken = Vec::new();
        while cache.is_full() && taken.len() < CACHE_WRITES as usize && cache.has_work() {
            taken.extend(cache.take());
        }
        let Role::App(app) = &mut self.threads[thread].role else {
            return;
        };
        if taken.is_empty() {
            return self.pass(thread, false, page);
        }
        app.held_up = Some(page);
        app.writes_back = u32::try_from(taken.len()).expect("a few pages");
        app.todo.extend(taken.into_iter().map(|page| Request {
            thread,
            purpose: Purpose::WriteBack,
            properties: WRITE_BACK,
            page,
            pages: 1,
        }));
        self.wait(thread);
    }
}

/// Properties of a cache's write-back: no thread waits for it.
const WRITE_BACK: Properties = Properties {
    reads: false,
    awaited: false,
};

fn pages(request: &Request) -> Range<u64> {
    request.page..request.page + request.pages
}

/// Maximum pages of one command.
const COMMAND_PAGES_MAX: u64 = TRANSFER_MAX_BYTES as u64 / PAGE_BYTES;

/// Makes commands of a batch, like production's runner.
fn commands(kind: QueueKind, sender: usize, mut batch: Vec<Request>) -> Vec<Command> {
    batch.sort_by_key(|request| (!request.properties.reads, request.page));
    let mut commands: Vec<Command> = Vec::new();
    for request in batch {
        let reads = request.properties.reads;
        let last = commands.last_mut().filter(|command| {
            let last = command.requests.last().expect("no command is empty");
            let carried: u64 = command.requests.iter().map(|request| request.pages).sum();
            let room = command.requests.len() < EXTENTS_MAX as usize
                && carried + request.pages <= COMMAND_PAGES_MAX;
            let joins = kind.merge(reads).joins(pages(last).end, request.page);
            room && joins && last.properties.reads == reads
        });
        match last {
            Some(command) => command.requests.push(request),
            None => commands.push(Command {
                sender,
                requests: vec![request],
            }),
        }
    }
    commands
}

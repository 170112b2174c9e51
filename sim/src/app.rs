//! An application thread of a simulated host. It submits through the host's switchboard, through an
//! I/O path shared with other threads, or through its own channel.

use crate::application::{Application, ApplicationReport, Replacement};
use crate::cache::Medium;
use crate::changing::{Changes, Changing};
use crate::client::{Client, Way};
use crate::host_core::QUEUE_PATIENCE;
use crate::path_core::SharedPath;
use crate::trace::say;
use base::{Nanos, Prng, Time};
use block::{Capabilities, Channel, Device, DeviceError, PathDevice};
use host::{Association, Phase, RemoteNamespace, Switchboard};
use reactor::{Completion, Context, Service};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use switch::Class;

/// Interval between a thread's attempts to open its namespace while its controller is not live.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// Configuration of an application thread.
#[derive(Clone, Debug)]
pub struct Job {
    /// The controller.
    pub association: Arc<Association>,
    /// Its workload, its namespace, and the oracle that checks the answers.
    pub application: Application,
    /// Content of the namespace that survives a power loss; `None` without a volatile cache.
    pub medium: Option<Medium>,
    /// Class of its requests.
    pub class: Class,
    /// When it issues requests of another class.
    pub changes: Changes,
    /// Number of class changes, shared by all threads.
    pub changed: Rc<Cell<u64>>,
}

/// How a thread reaches its namespace.
#[derive(Clone, Debug)]
pub(crate) enum Through {
    /// Through a switchboard.
    Board(Switchboard),
    /// Through an I/O path that threads share.
    Path {
        /// The path.
        path: SharedPath,
        /// Writes are awaited: a thread or commit waits for them.
        awaited: bool,
        /// The thread drives its channel only while it has requests.
        only_in_calls: bool,
    },
    /// Through its own channel.
    Own,
}

/// An application thread.
#[derive(Debug)]
pub struct App {
    job: Job,
    /// `None` once the thread has ended.
    through: Option<Through>,
    /// Seeds its class changes.
    seed: u64,
    client: Option<Client>,
    /// Live associations as of the last turn.
    associations: u64,
    /// Time of the next attempt to reach its controller, or to get a free queue.
    look_at: Time,
    over: bool,
}

impl App {
    /// Creates a thread that runs `job` through `board`.
    #[must_use]
    pub fn new(job: Job, board: Switchboard, seed: u64) -> Self {
        Self::by(job, Through::Board(board), seed)
    }

    /// Creates a thread that runs `job` through `through`.
    pub(crate) fn by(job: Job, through: Through, seed: u64) -> Self {
        Self {
            job,
            through: Some(through),
            seed: Prng::from_seed(seed).next_u64(),
            client: None,
            associations: 0,
            look_at: Time::ZERO,
            over: false,
        }
    }

    /// Returns its report so far, shared with the running thread.
    #[must_use]
    pub fn report(&self) -> Rc<RefCell<ApplicationReport>> {
        Rc::clone(&self.job.application.report)
    }

    /// Returns true if it has opened its namespace.
    pub(crate) fn has_opened(&self) -> bool {
        self.over || self.client.is_some()
    }

    /// Returns its application as configured at the start.
    pub(crate) fn application(&self) -> &Application {
        &self.job.application
    }

    /// Kills the thread. Returns a successor for the rest of its work; `None` if the work is
    /// complete.
    pub(crate) fn dies(&mut self, seed: u64) -> Option<Self> {
        let through = self.through.clone()?;
        if let Some(client) = &mut self.client {
            client.dies();
        }
        let mut job = self.job.clone();
        let application = &mut job.application;
        application.workload.requests -= application.report.borrow().answered;
        application.report = Rc::default();
        application.rest = None;
        application.seed = seed;
        Some(Self::by(job, through, seed))
    }

    /// Notes that another volume replaced its namespace, which it may not have opened yet.
    pub(crate) fn is_replaced(&mut self, by: &Replacement<'_>) {
        self.job.application.is_replaced(by);
    }

    fn switched(
        &self,
        board: &Switchboard,
        remote: &RemoteNamespace,
        cx: &mut Context<'_>,
    ) -> (Way, Capabilities) {
        let job = &self.job;
        let device = board
            .namespace(remote)
            .expect("a few namespaces")
            .with_class(job.class)
            .with_requests(
                depth(&job.application),
                remote.capabilities().max_transfer_bytes,
            );
        let channel = if job.changes == Changes::Never {
            device.open(cx.driver)
        } else {
            let changed = Rc::clone(&job.changed);
            Changing::open(
                &device,
                job.class,
                job.changes,
                self.seed,
                changed,
                cx.driver,
            )
            .map(|channel| Box::new(channel) as Box<dyn Channel>)
        };
        let channel = channel.expect("a few submitters");
        (Way::Any(channel), device.capabilities())
    }

    fn start(&mut self, cx: &mut Context<'_>) {
        let job = &self.job;
        if job.association.phase() != Phase::Live {
            return;
        }
        let Ok(remote) = RemoteNamespace::new(&job.association, job.application.nsid) else {
            return;
        };
        let opened = match &self.through {
            Some(Through::Board(board)) => Ok(self.switched(board, &remote, cx)),
            Some(Through::Path {
                path,
                awaited,
                only_in_calls,
            }) => match &*path.borrow() {
                Some(path) => open_by_path(path, *awaited, *only_in_calls, &job.application, cx),
                None => return,
            },
            Some(Through::Own) => remote.open_remote(cx.driver).map(|channel| {
                let way = Way::Remote(Box::new(channel));
                (way, remote.capabilities())
            }),
            None => return,
        };
        // All I/O queues are in use by other threads.
        let Ok((way, capabilities)) = opened else {
            self.look_at = cx.now + QUEUE_PATIENCE;
            return;
        };
        let geometry = remote.geometry();
        let client = Client::by(way, geometry, capabilities, job.application.clone());
        self.client = Some(client.over(job.medium.clone()));
    }
}

/// Outstanding requests of an application.
fn depth(application: &Application) -> u32 {
    u32::try_from(application.workload.depth).expect("a few")
}

fn open_by_path(
    path: &PathDevice,
    awaited: bool,
    only_in_calls: bool,
    application: &Application,
    cx: &mut Context<'_>,
) -> Result<(Way, Capabilities), DeviceError> {
    let bytes = path.capabilities().max_transfer_bytes;
    let path = path.clone().with_requests(depth(application), bytes);
    let path = if awaited { path } else { path.unawaited() };
    let path = if only_in_calls { path.in_calls() } else { path };
    let channel = path.open(cx.driver)?;
    application.report.borrow_mut().path = Some(path.path());
    say(|| format!("{:?}: a thread opens {path:?}", cx.now));
    Ok((Way::Any(channel), path.capabilities()))
}

impl Service for App {
    type Message = ();

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        // Completions on its own lane.
        let client = self.client.as_mut();
        client
            .expect("a client closes its channel before it ends")
            .apply(completion, cx);
    }

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        match &mut self.client {
            None if self.over || cx.now < self.look_at => {}
            None => {
                self.look_at = cx.now + PATIENCE;
                self.start(cx);
            }
            Some(client) => {
                let associations = self.job.association.generation();
                if std::mem::replace(&mut self.associations, associations) != associations {
                    client.is_reconnected();
                }
                client.maintain(cx);
                client.check_waits(&self.job.association);
                if client.finished() {
                    self.over = true;
                    self.client = None;
                    self.through = None;
                }
            }
        }
    }

    fn deadline(&self) -> Time {
        match &self.client {
            Some(client) => client.deadline(),
            None if self.over => Time::NEVER,
            None => self.look_at,
        }
    }

    fn finished(&self) -> bool {
        self.over
    }
}

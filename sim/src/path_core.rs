//! A core of a simulated host that opens an I/O path to a remote namespace for several threads, and
//! runs the path's dispatcher.

use crate::host_core::QUEUE_PATIENCE;
use crate::trace::say;
use base::{Nanos, Time};
use block::{Device, Dispatcher, PathDevice};
use host::{Association, Phase, RemoteNamespace, Switchboard};
use reactor::{Completion, Context, Service};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use switch::{Class, PathSpec};

/// Interval between attempts to open the path while there is no live controller or free queue.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// An I/O path that threads share; `None` until it is open.
pub(crate) type SharedPath = Rc<RefCell<Option<PathDevice>>>;

/// The I/O path to open.
#[derive(Clone, Debug)]
pub(crate) struct PathJob {
    /// The controller.
    pub(crate) association: Arc<Association>,
    /// The namespace.
    pub(crate) nsid: u32,
    /// The path and its parameters.
    pub(crate) spec: PathSpec,
    /// Maximum outstanding commands of each sending thread.
    pub(crate) depth: u16,
    /// The switchboard below the path, and the class of its requests; `None` if each sending thread
    /// has its own connections.
    pub(crate) board: Option<(Switchboard, Class)>,
    /// Number of runners replaced by other submitters.
    pub(crate) deposed: Rc<Cell<u64>>,
}

/// The core.
#[derive(Debug)]
pub(crate) struct PathCore {
    job: PathJob,
    shared: SharedPath,
    dispatcher: Option<Dispatcher>,
    /// Time of the next attempt to reach its controller, or to get a free queue.
    look_at: Time,
    leaving: bool,
}

impl PathCore {
    /// Creates a core that opens the path of `job`.
    pub(crate) fn new(job: PathJob) -> Self {
        Self {
            job,
            shared: Rc::default(),
            dispatcher: None,
            look_at: Time::ZERO,
            leaving: false,
        }
    }

    /// Returns the path, for the threads that share it.
    pub(crate) fn shared(&self) -> SharedPath {
        Rc::clone(&self.shared)
    }

    /// Ends the path: every thread has closed its channel.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.job.board = None;
        self.end();
    }

    /// Kills the core with its dispatcher, if it has one. Returns a core for the path without a
    /// dispatcher.
    pub(crate) fn dies(&mut self) -> Self {
        let mut left = Self::new(self.job.clone());
        left.shared = std::mem::take(&mut self.shared);
        left
    }

    fn end(&mut self) {
        if let Some(path) = self.shared.take() {
            let deposed = path.snapshot().taken_over;
            self.job.deposed.update(|all| all + deposed);
        }
    }

    fn open(&mut self, cx: &mut Context<'_>) {
        let PathJob {
            association,
            nsid,
            spec,
            depth,
            board,
            ..
        } = &self.job;
        if association.phase() != Phase::Live {
            return;
        }
        let Ok(remote) = RemoteNamespace::new(association, *nsid) else {
            return;
        };
        let below = below(remote, *depth, board.as_ref());
        let device = PathDevice::unattended(below, spec.path, spec.rules).expect("good rules");
        if device.needs_dispatcher() {
            let Ok(dispatcher) = device.dispatcher(cx.driver) else {
                // All I/O queues are in use.
                self.look_at = cx.now + QUEUE_PATIENCE;
                return;
            };
            self.dispatcher = Some(dispatcher);
        }
        say(|| format!("{:?}: {device:?} is open", cx.now));
        self.shared.replace(Some(device));
    }

    fn is_open(&self) -> bool {
        self.shared.borrow().is_some()
    }
}

/// Returns the device below the path.
fn below(
    remote: RemoteNamespace,
    depth: u16,
    board: Option<&(Switchboard, Class)>,
) -> Arc<dyn Device> {
    let Some((board, class)) = board else {
        return Arc::new(remote.with_queues(1, depth).below_path());
    };
    let bytes = remote.capabilities().max_transfer_bytes;
    let switched = board.namespace(&remote).expect("a few namespaces");
    Arc::new(
        switched
            .with_class(*class)
            .with_requests(depth.into(), bytes),
    )
}

impl Drop for PathCore {
    fn drop(&mut self) {
        self.end();
    }
}

impl Service for PathCore {
    type Message = ();

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.apply(completion, cx);
        }
    }

    fn message(&mut self, (): (), _: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        if !self.leaving && !self.is_open() && cx.now >= self.look_at {
            self.look_at = cx.now + PATIENCE;
            self.open(cx);
        }
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.maintain(cx);
        }
        if self.finished() {
            // The dispatcher keeps a switchboard from ending.
            self.dispatcher = None;
        }
    }

    fn deadline(&self) -> Time {
        match &self.dispatcher {
            Some(dispatcher) => dispatcher.deadline(),
            None if self.leaving || self.is_open() => Time::NEVER,
            None => self.look_at,
        }
    }

    fn finished(&self) -> bool {
        self.leaving && self.dispatcher.as_ref().is_none_or(Service::finished)
    }
}

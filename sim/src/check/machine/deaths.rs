//! Threads of hosts that die during their work while other threads run.

use super::super::cast::{Host, Kind, SWITCHED_CORES, Threads};
use super::Machine;
use reactor::{Core, PollPolicy};
use std::rc::Rc;

impl Machine {
    /// Kills a thread that shares an I/O path, or the path's dispatcher, on the first host from
    /// `host` on that has one. The only notification is the drop of its channel.
    pub(super) fn kill_thread(&mut self, host: usize, thread: usize) {
        let cast = Rc::clone(&self.cast);
        let mut cast = cast.borrow_mut();
        let by_path = |threads: &Threads| !threads.paths.is_empty() && !threads.left;
        let Some(Host {
            kind: Kind::Threads(threads),
            applications,
            buffers,
        }) = cast.host_of_threads(host, by_path)
        else {
            return;
        };
        let Threads {
            dataplane,
            controlling,
            paths,
            apps,
            ..
        } = &mut **threads;
        let mut driver = self.world.driver();
        driver.belongs_to(&controlling[0].driver);
        if !dataplane.is_empty() {
            driver.wander(8, SWITCHED_CORES);
        }
        let free = driver.free_buffers();
        let thread = thread % (paths.len() + apps.len());
        buffers[dataplane.len() + controlling.len() + thread] = free;
        if let Some(path) = paths.get_mut(thread) {
            let left = path.service.dies();
            *path = Core::new(driver, left, PollPolicy::Never);
            self.count("deaths of dispatchers");
            return;
        }
        let index = thread - paths.len();
        let app = &mut apps[index];
        let Some(successor) = app.service.dies(self.prng.next_u64()) else {
            return;
        };
        self.reports.push(successor.report());
        applications[index] = successor.application().clone();
        *app = Core::new(driver, successor, PollPolicy::Never);
        self.count("deaths of threads with a path");
    }
}

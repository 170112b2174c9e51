//! Sockets of the simulator that no driver owns.

use std::sync::mpsc::Sender;

/// A socket of the simulator, by its name there. Dropping it closes it, as with a descriptor.
#[derive(Debug)]
pub struct Simulated<T: Copy> {
    name: T,
    /// Receives the name when it is dropped.
    dropped: Option<Sender<T>>,
}

impl<T: Copy> Simulated<T> {
    /// Returns the socket with this name, which `dropped` receives when it is dropped.
    #[must_use]
    pub fn new(name: T, dropped: &Sender<T>) -> Self {
        Self {
            name,
            dropped: Some(dropped.clone()),
        }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> T {
        self.name
    }

    /// Returns the name for the driver that owns the socket from now on.
    #[must_use]
    pub fn into_name(mut self) -> T {
        self.dropped = None;
        self.name
    }
}

impl<T: Copy> Drop for Simulated<T> {
    fn drop(&mut self) {
        if let Some(dropped) = &self.dropped {
            // Without a receiver, the simulation has ended.
            let _ = dropped.send(self.name);
        }
    }
}

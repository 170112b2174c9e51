//! The class of a request by the I/O priority of the thread that makes it.

use super::limits::{CLASS_AGE, THREADS_MAX};
use base::Time;
use reactor::priority::io_class_of;
use std::collections::HashMap;
use switch::Class;

/// Classes of threads, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct ThreadClasses {
    known: HashMap<u32, (Time, Class)>,
}

impl ThreadClasses {
    /// Returns the class of a thread's requests; the default for the kernel's own (0).
    pub(super) fn of(&mut self, thread: u32, now: Time) -> Class {
        if thread == 0 {
            return Class::DEFAULT;
        }
        if let Some(&(asked, class)) = self.known.get(&thread)
            && now.since(asked) < CLASS_AGE
        {
            return class;
        }
        if self.known.len() >= THREADS_MAX {
            self.known.clear();
        }
        let class = io_class_of(thread);
        self.known.insert(thread, (now, class));
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_threads_have_the_default_class_and_are_forgotten() {
        let mut classes = ThreadClasses::default();
        assert_eq!(classes.of(0, Time(1)), Class::DEFAULT);
        for thread in 1..=2 * u32::try_from(THREADS_MAX).expect("few") {
            // Larger than any number that the kernel gives.
            assert_eq!(classes.of(u32::MAX / 2 - thread, Time(1)), Class::DEFAULT);
            assert!(classes.known.len() <= THREADS_MAX);
        }
    }
}

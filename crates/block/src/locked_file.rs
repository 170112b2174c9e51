//! A file locked by its holder.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file with its holder's lock (`flock(2)`), which is released when this value is dropped, unless
/// another process [shares](Self::share) it.
///
/// Closing the descriptor would not always release it at once: a process that another thread starts
/// shares the open file until it executes its program, and the kernel keeps the lock for it.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    /// The process that took the lock. A process forked from it shares the open file, and must not
    /// release its parent's lock.
    holder: u32,
    /// Another process has the open file, and with it the lock.
    shared: AtomicBool,
}

impl LockedFile {
    /// Locks a file exclusively.
    ///
    /// # Errors
    /// `EWOULDBLOCK` if another open file has a lock; the file system's error if it does not
    /// support locks.
    pub fn exclusive(file: File) -> io::Result<Self> {
        Self::lock(file, FlockOperation::NonBlockingLockExclusive)
    }

    /// Locks a file for sharing: other open files can share the lock, and none can lock it
    /// exclusively.
    ///
    /// # Errors
    /// As [`exclusive`](Self::exclusive).
    pub fn shared(file: File) -> io::Result<Self> {
        Self::lock(file, FlockOperation::NonBlockingLockShared)
    }

    fn lock(file: File, operation: FlockOperation) -> io::Result<Self> {
        flock(&file, operation)?;
        Ok(Self::taken_over(file))
    }

    /// Takes over the lock of a file that another process [shares](Self::share).
    #[must_use]
    pub fn taken_over(file: File) -> Self {
        Self {
            file,
            holder: std::process::id(),
            shared: AtomicBool::new(false),
        }
    }

    /// Returns the open file for another process, which takes the lock over: from now on, the lock
    /// lasts until both have closed the file.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> io::Result<File> {
        let file = self.file.try_clone()?;
        self.shared.store(true, Ordering::Relaxed);
        Ok(file)
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.holder == std::process::id() && !*self.shared.get_mut() {
            // If this fails, closing the descriptor releases the lock.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LockedFile;
    use std::fs::File;
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;

    /// An unlinked file, and a function that opens it again.
    fn file() -> (File, impl Fn() -> File) {
        let path = crate::temporary("file");
        let file = File::create(&path).expect("a new file");
        std::fs::remove_file(&path).expect("it is there");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (file, move || File::open(&path).expect("it is open"))
    }

    #[test]
    fn a_lock_ends_with_its_holder_though_others_have_the_open_file() {
        let (file, again) = file();
        // As in a forked process.
        let forked = file.try_clone().expect("a descriptor");
        let other = again();
        let held = LockedFile::exclusive(file).expect("nothing else has it");
        let refused = LockedFile::shared(other).expect_err("it is locked");
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let other = again();
        drop(held);
        LockedFile::exclusive(other).expect("its holder is gone");
        drop(forked);
    }

    #[test]
    fn a_forked_process_does_not_end_the_lock_of_its_parent() {
        let (file, again) = file();
        let held = LockedFile::exclusive(file).expect("nothing else has it");
        let file = held.try_clone().expect("a descriptor");
        let holder = held.holder;
        // As the copy of `held` in a process with another identifier.
        let mut copy = LockedFile::taken_over(file);
        copy.holder = !holder;
        drop(copy);
        LockedFile::shared(again()).expect_err("its holder is there");
        drop(held);
    }

    #[test]
    fn readers_share_a_lock_and_hold_off_a_writer() {
        let (file, again) = file();
        let (second, third) = (again(), again());
        let first = LockedFile::shared(file).expect("nothing else has it");
        let second = LockedFile::shared(second).expect("readers share it");
        LockedFile::exclusive(third).expect_err("it has readers");
        let third = again();
        drop(first);
        drop(second);
        LockedFile::exclusive(third).expect("it has no readers any more");
    }

    #[test]
    fn a_shared_lock_lasts_until_its_last_holder_ends() {
        let (file, again) = file();
        let (second, third) = (again(), again());
        let held = LockedFile::exclusive(file).expect("nothing else has it");
        let successor = LockedFile::taken_over(held.share().expect("a descriptor"));
        drop(held);
        LockedFile::shared(second).expect_err("its successor holds it");
        drop(successor);
        LockedFile::exclusive(third).expect("nothing has it any more");
    }
}

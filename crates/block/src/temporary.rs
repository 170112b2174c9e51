//! Temporary files of tests, removed when the test ends.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed with its content when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder in the system's folder for temporary files.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// Creates a folder in `parent`.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn within(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("switchyard-{}-{number}", std::process::id());
            let path = parent.join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A process with the same identifier was killed before it could remove its folder.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create {}: {error}", path.display()),
            }
        }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A killed process may unmount, or write, for a moment longer.
        for _ in 0..1000 {
            match std::fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

/// Returns an unused path that ends in `name`; its parent exists. The parent is removed with its
/// content when this thread ends, also after a failed test.
///
/// # Panics
/// If the parent cannot be created.
#[must_use]
pub fn temporary(name: &str) -> PathBuf {
    thread_local! {
        static FOLDER: (Folder, Cell<u32>) = (Folder::new(), Cell::new(0));
    }
    FOLDER.with(|(folder, next)| {
        let parent = folder.path().join(next.replace(next.get() + 1).to_string());
        std::fs::create_dir(&parent)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", parent.display()));
        parent.join(name)
    })
}

/// Creates a folder at a path of [`temporary`].
///
/// # Panics
/// If it cannot be created.
#[must_use]
pub fn temporary_folder(name: &str) -> PathBuf {
    let path = temporary(name);
    std::fs::create_dir(&path)
        .unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also if the test fails.
    #[test]
    fn files_of_a_thread_that_panics_are_removed() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let [file, other] = [temporary("file"), temporary("file")];
            assert_ne!(file, other);
            std::fs::write(&file, "content").expect("its folder exists");
            std::fs::write(temporary_folder("folder").join("file"), "content").expect("a file");
            sender.send(file).expect("the test receives it");
            panic!("a test that fails");
        });
        let file = receiver.recv().expect("the thread sends it");
        thread.join().expect_err("it panics");
        let folder = file.ancestors().nth(2).expect("the thread's folder");
        assert!(!folder.exists(), "{}", folder.display());
    }
}

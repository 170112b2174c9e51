//! The number of files and sockets that this process may have open at once.
//!
//! The kernel's default, 1,024, is a soft limit for the sake of programs that use `select`. A
//! target has a descriptor for each connection and a load one for each queue, and neither uses
//! `select`: they take what the hard limit grants.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes the soft limit as high as the hard one; returns the limit in force, `None` for none.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::info!("the limit of open files stays as it was: {error}");
            current
        }
    }
}

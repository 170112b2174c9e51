//! Runs of the laboratory on this machine, which take minutes: `scripts/test --all` has them.

mod figure;
mod hostile;
mod limit;

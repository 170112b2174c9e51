//! Measuring runs of the laboratory on this machine, which take minutes: run by `scripts/test
//! --all`.

mod figure;
mod hostile;
mod limit;

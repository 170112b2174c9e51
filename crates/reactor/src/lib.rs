//! The per-core loop: operations as data, and the io_uring driver that runs them.

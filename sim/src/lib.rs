//! The simulated world: the production crates in virtual time, with faults from a seed.

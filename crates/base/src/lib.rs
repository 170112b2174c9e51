//! Units, time types, fixed pools and seeded random numbers for every other crate.

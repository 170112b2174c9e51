//! Units, time types, fixed pools and seeded random numbers for all other crates.
//!
//! Pure: no clocks and no I/O.

mod bounded_queue;
mod defaults;
mod latencies;
pub mod mutation;
mod named;
mod printable;
pub mod prng;
mod short_queue;
pub mod slab;
pub mod state;
pub mod time;
pub mod timer;
pub mod units;
mod wake_flag;

pub use bounded_queue::BoundedQueue;
pub use latencies::Latencies;
pub use mutation::Mutation;
pub use printable::{is_printable, printable, printable_json, printable_lines};
pub use prng::Prng;
pub use short_queue::ShortQueue;
pub use slab::{Slab, SlabKey};
pub use time::{Nanos, Time};
pub use timer::TimerQueue;
pub use wake_flag::WakeFlag;

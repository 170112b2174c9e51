//! The service: the connections of one core, and the only module that knows all the others.
//!
//! ```text
//!             ┌────────────────────────── service ──────────────────────────┐
//!   driver ──►│ turn ─► input ─► (session) ─► io, controller ─► (command,    │
//!             │                                                  controller) │
//!             │           requests ◄──────── Step, Reply ─────┘              │
//!             │            │  ▲                                              │
//!             │            ▼  └── devices, turn                              │
//!   driver ◄──│         answers                                              │
//!             └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `turn` | the order of a turn; commands that wait; new connections; the drain |
//! | `input` | receives, the commands in them, buffers for data in capsules |
//! | `io` | the arrival of I/O commands |
//! | `controller` | admin and Fabrics commands; the end of controllers; notices to hosts |
//! | `requests` | the life of a command that has a slot |
//! | `devices` | completions of devices, and what they had no room for |
//! | `answers` | answers, R2Ts, events, and what is ready to be sent |
//! | `connection`, `timers` | the life of a connection; its deadlines |
//! | `moves` | application steering, thread scaling |
//! | `changes` | changes of the configuration |
//! | `core`, `wait_lists` | state of the core; commands that wait for buffers or shares, in order |
//!
//! A read of a device goes through `input`, `io`, `requests`, `devices` and `answers`; a read of memory
//! through the first two. Functions that take both a connection and the core's state exist here alone.

mod answers;
mod changes;
mod connection;
mod connection_state;
mod controller;
mod core;
mod devices;
mod input;
mod io;
mod moves;
mod poll_group;
mod requests;
mod timers;
mod turn;
mod wait_lists;

pub use poll_group::PollGroup;
pub use turn::Held;

//! The service: the connections of one core, and the only module that uses all other modules.
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
//! | `turn` | the order of a turn; waiting commands; new connections; the drain |
//! | `input` | receives, the commands in them, buffers for in-capsule data |
//! | `io` | the arrival of I/O commands |
//! | `controller` | admin and Fabrics commands; the end of controllers; notices to hosts |
//! | `chap` | the authentication of queues |
//! | `requests` | commands that have a slot, until they are answered |
//! | `fused`, `fences` | pairs of fused commands; fences around their blocks |
//! | `devices` | completions of devices, and requests that they had no room for |
//! | `answers` | answers, R2Ts, events, and the output that is ready |
//! | `connection`, `timers` | connections from accept to close; their deadlines |
//! | `moves` | application steering, thread scaling |
//! | `changes` | changes of the configuration |
//! | `listeners` | listeners, and the accept of each |
//! | `departures` | connections that leave for another process, or come from one |
//! | `core`, `wait_lists` | state of the core; commands waiting for buffers or shares, in order |
//!
//! A read of a device goes through `input`, `io`, `requests`, `devices` and `answers`; a read of
//! memory through the first two. Functions that take both a connection and the core's state exist
//! only here.

mod admission;
mod answers;
mod changes;
mod chap;
mod connection;
mod connection_state;
mod controller;
mod core;
mod departures;
mod devices;
mod fences;
mod fused;
mod input;
mod io;
mod listeners;
mod moves;
mod poll_group;
mod requests;
mod reservations;
mod stamping;
mod timers;
mod turn;
mod wait_lists;

pub use poll_group::PollGroup;
pub use turn::Held;

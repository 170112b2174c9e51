//! The service: the connections of one core, and the only room that knows all the others.
//!
//! ```text
//!             ┌────────────────────────── service ──────────────────────────┐
//!   driver ──►│ turn ─► input ─► (session) ─► io, admin ─► (command,         │
//!             │                                            controller)       │
//!             │           requests ◄──────── Step, Reply ─────┘              │
//!             │            │  ▲                                              │
//!             │            ▼  └── waiters, tokens, devices                   │
//!   driver ◄──│ sending ◄─ answers                                           │
//!             └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! | file | has |
//! |---|---|
//! | `turn` | what a turn of the core does, in order |
//! | `input` | receives, and the commands in them |
//! | `io`, `admin` | the arrival of I/O commands; of admin and Fabrics commands |
//! | `capsule_data` | buffers for data that comes in capsules |
//! | `controller` | admin and Fabrics commands that have their data |
//! | `requests`, `prepare`, `abort` | the life of a command that has a slot; what it gets first; its early end |
//! | `answers`, `sending` | answers and R2Ts; prioritised processing of what is ready to be sent |
//! | `connection`, `closing`, `timers`, `token_queues`, `moving` | the life of a connection |
//! | `waiters`, `tokens`, `devices` | events that take waiting commands on |
//! | `wait_lists` | commands that wait for buffers or shares, in order |
//! | `steering`, `scaling` | application steering, thread scaling |
//! | `controllers`, `events` | the end of controllers; notices to hosts |
//! | `changes`, `accept`, `drain` | changes of the configuration; new connections; the end |
//!
//! Functions that take both a connection and the core's state exist here alone.

mod abort;
mod accept;
mod admin;
mod answers;
mod capsule_data;
mod changes;
mod closing;
mod connection;
mod connection_state;
mod controller;
mod controllers;
mod core;
mod devices;
mod drain;
mod events;
mod flow;
mod held;
mod input;
mod io;
mod moving;
mod namespaces;
mod poll_group;
mod prepare;
mod requests;
mod scaling;
mod sending;
mod steering;
mod timers;
mod token_queues;
mod tokens;
mod turn;
mod wait_lists;
mod waiters;
mod withdrawals;

pub use held::Held;
pub use poll_group::PollGroup;

//! The tables and the screen of `switchyard top`.
//!
//! What is this: [`Board`] is what two looks at a target say, as tables; [`Screen`] is what of it
//! is on a terminal, and what keys do. Both are pure: looks, keys and the terminal are the
//! command's (`cmd/top.rs`). Whatever a target or its hosts call themselves must never reach a
//! terminal as a control sequence: [`Cell::text`] sees to that.

mod attachments;
mod board;
mod cell;
#[cfg(test)]
mod fixtures;
mod interval;
mod screen;
mod table;

pub use board::Board;
use cell::Cell;
pub use screen::{Key, Screen};

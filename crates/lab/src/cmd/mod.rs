//! The commands.

pub mod figure;
pub mod measured;
pub mod sim;

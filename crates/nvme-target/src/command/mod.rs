//! I/O commands of the NVM command set: a command in, a [`Step`](step::Step) out.
//! `[NVMe NVM 1.0 §3.2]`
//!
//! Everything here is a function of the command, its slot, its namespace and its host's rights. No
//! connection, no core, no device is changed: the service does what a step says, and asks for the
//! next one.
//!
//! | file | commands |
//! |---|---|
//! | `blocks` | the blocks that a command names, its data, the memory behind them |
//! | `device` | Read, Write, Compare, Verify, Write Zeroes: one request to the device each |
//! | `flush` | Flush, of one namespace or of all |
//! | `dataset` | Dataset Management |
//! | `extents` | Read Extents, Write Extents (vendor specific) |
//! | `cost` | the tokens that each of them costs |

pub(crate) mod blocks;
pub(crate) mod cost;
pub(crate) mod dataset;
pub(crate) mod device;
pub(crate) mod extents;
pub(crate) mod flush;
pub(crate) mod step;
pub(crate) mod table;

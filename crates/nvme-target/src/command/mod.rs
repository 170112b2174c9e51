//! I/O commands of the NVM command set: a command in, a [`Step`](crate::request::Step) out. `[NVMe
//! NVM 1.0 §3.2]`
//!
//! Everything here is a function of the command, its slot, its namespace and its host's rights. No
//! connection, core or device is changed: the service executes a step and requests the next one.
//!
//! | file | commands |
//! |---|---|
//! | `blocks` | the blocks of a command, its data, the memory of the blocks |
//! | `device` | Read, Write, Compare, Verify, Write Zeroes: one request to the device each |
//! | `flush` | Flush, of one namespace or all |
//! | `dataset` | Dataset Management |
//! | `extents` | Read Extents, Write Extents (vendor specific) |
//! | `table` | the row of every command: its checks, its price, its execution |
//! | `cost` | the tokens that each command costs |

pub(crate) mod blocks;
pub(crate) mod cost;
pub(crate) mod dataset;
pub(crate) mod device;
pub(crate) mod extents;
pub(crate) mod flush;
pub(crate) mod table;

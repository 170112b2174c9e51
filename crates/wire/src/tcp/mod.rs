//! The TCP transport: PDUs, and the framer that parses a byte stream into PDUs.
//!
//! One file per PDU, with parse and encode. Encoding writes the header of a PDU (with digest and
//! padding) into the caller's buffer; the caller sends payload and data digest without a copy.
//! `[NVMe-TCP 1.0 §3.6]`

pub mod c2h_data;
pub mod capsule_cmd;
pub mod capsule_resp;
pub mod digest;
pub mod framer;
pub mod h2c_data;
pub mod header;
pub mod ic_req;
pub mod ic_resp;
pub mod limits;
pub mod r2t;
pub mod term_req;

mod framing_error;
mod pdu_header;

pub use c2h_data::C2hData;
pub use capsule_cmd::CapsuleCmd;
pub use capsule_resp::CapsuleResp;
pub use framer::{Event, Framer, FramerLimits};
pub use framing_error::FramingError;
pub use h2c_data::H2cData;
pub use header::{DataAlignment, PduFormat, PduType, Role};
pub use ic_req::IcReq;
pub use ic_resp::IcResp;
pub use pdu_header::PduHeader;
pub use r2t::R2t;
pub use term_req::{FatalErrorStatus, TermReq};

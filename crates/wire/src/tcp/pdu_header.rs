//! The header of any PDU.

use crate::tcp::c2h_data::C2hData;
use crate::tcp::capsule_cmd::CapsuleCmd;
use crate::tcp::capsule_resp::CapsuleResp;
use crate::tcp::h2c_data::H2cData;
use crate::tcp::header::PduType;
use crate::tcp::ic_req::IcReq;
use crate::tcp::ic_resp::IcResp;
use crate::tcp::r2t::R2t;
use crate::tcp::term_req::TermReq;

/// The header of any PDU, parsed and checked. Its data is separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PduHeader {
    /// A command.
    CapsuleCmd(CapsuleCmd),
    /// A completion.
    CapsuleResp(CapsuleResp),
    /// Data from the host.
    H2cData(H2cData),
    /// Data from the controller.
    C2hData(C2hData),
    /// The controller is ready for data.
    R2t(R2t),
    /// The host initializes the connection.
    IcReq(IcReq),
    /// The controller accepts the connection.
    IcResp(IcResp),
    /// The host terminates the connection; data is the offending header.
    H2cTermReq(TermReq),
    /// The controller terminates the connection; data is the offending header.
    C2hTermReq(TermReq),
}

impl PduHeader {
    /// The type of the PDU.
    pub const fn pdu_type(&self) -> PduType {
        match self {
            Self::CapsuleCmd(_) => PduType::CapsuleCmd,
            Self::CapsuleResp(_) => PduType::CapsuleResp,
            Self::H2cData(_) => PduType::H2cData,
            Self::C2hData(_) => PduType::C2hData,
            Self::R2t(_) => PduType::R2t,
            Self::IcReq(_) => PduType::IcReq,
            Self::IcResp(_) => PduType::IcResp,
            Self::H2cTermReq(_) => PduType::H2cTermReq,
            Self::C2hTermReq(_) => PduType::C2hTermReq,
        }
    }
}

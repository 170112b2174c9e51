//! Headers of PDUs as bytes again, for termination requests.

use wire::tcp::{C2hData, CapsuleResp, IcResp, PduFormat, PduHeader, R2t};

/// Returns a header as bytes again, and its length, for a termination request.
pub(super) fn header_bytes(header: &PduHeader, format: &PduFormat) -> ([u8; 128], usize) {
    let mut out = [0; 128];
    let length = match header {
        PduHeader::C2hData(pdu) => {
            pdu.encode(format, &mut out);
            C2hData::SIZE
        }
        PduHeader::R2t(pdu) => {
            pdu.encode(format, &mut out);
            R2t::SIZE
        }
        PduHeader::CapsuleResp(pdu) => {
            pdu.encode(format, &mut out);
            CapsuleResp::SIZE
        }
        PduHeader::IcResp(pdu) => {
            out = pdu.to_bytes();
            IcResp::SIZE
        }
        _ => 0,
    };
    (out, length)
}

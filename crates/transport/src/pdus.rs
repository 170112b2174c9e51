//! Appends PDUs with their digests to the current caravan. `[NVMe-TCP 1.0 §3.6.2]`
//!
//! The caller makes room first; otherwise appending panics.

use crate::send_queue::SendQueue;
use reactor::{IoSlice, SendList};
use wire::nvme::{Command, Completion};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::digest::{crc32c_append, digest_bytes};
use wire::tcp::limits::{DIGEST_BYTES, PREFIX_BYTES_MAX, TERM_REQ_BYTES_MAX};
use wire::tcp::{C2hData, CapsuleCmd, CapsuleResp, H2cData, R2t, Role, TermReq};

/// Bytes copied at a time to compute the digest of memory that cannot be read in place.
const PIECE_BYTES: usize = 4096;

impl<T: Default> SendQueue<T> {
    /// The list of the current caravan.
    #[inline]
    fn list(&mut self) -> &mut SendList {
        self.filling.as_mut().expect("the caller made room")
    }

    /// Appends bytes that are a PDU, or part of one.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.list().push_header(bytes);
    }

    /// Appends a CapsuleCmd, without the `data_bytes` bytes of data in it.
    #[inline]
    pub fn push_command(&mut self, command: Command, data_bytes: u32) {
        let mut header = [0; PREFIX_BYTES_MAX];
        let length = CapsuleCmd { command }.encode(self.format(), data_bytes, &mut header);
        self.list().push_header(&header[..length]);
    }

    /// Appends the header of an H2CData PDU.
    #[inline]
    pub fn push_h2c_data(&mut self, pdu: &H2cData) {
        let mut header = [0; PREFIX_BYTES_MAX];
        let length = pdu.encode(self.format(), &mut header);
        self.list().push_header(&header[..length]);
    }

    /// Appends a CapsuleResp.
    #[inline]
    pub fn push_response(&mut self, completion: Completion) {
        let mut header = [0; CapsuleResp::SIZE + DIGEST_BYTES];
        let length = CapsuleResp { completion }.encode(self.format(), &mut header);
        self.list().push_header(&header[..length]);
    }

    /// Appends an R2T.
    pub fn push_r2t(&mut self, r2t: R2t) {
        let mut header = [0; R2t::SIZE + DIGEST_BYTES];
        let length = r2t.encode(self.format(), &mut header);
        self.list().push_header(&header[..length]);
    }

    /// Appends one C2HData PDU with a part of a command's data, at its offset in the data.
    #[inline]
    pub fn push_c2h_data_at(
        &mut self,
        command_id: u16,
        data_offset: u32,
        data: IoSlice,
        progress: C2hProgress,
    ) {
        let pdu = C2hData {
            command_id,
            data_offset,
            data_length: u32::try_from(data.len()).expect("a transfer is at most 1 MiB"),
            progress,
        };
        let mut header = [0; PREFIX_BYTES_MAX];
        let length = pdu.encode(self.format(), &mut header);
        self.list().push_header(&header[..length]);
        self.push_payload(data);
    }

    /// Appends payload by reference (after its header), and its digest.
    #[inline]
    pub fn push_payload(&mut self, data: IoSlice) {
        let digest = self.format().data_digest.then(|| digest_of(&data));
        let list = self.list();
        list.push_payload(data);
        if let Some(digest) = digest {
            list.push_header(&digest);
        }
    }

    /// Appends a copy of payload, and its digest.
    pub fn push_copied_payload(&mut self, data: &[u8]) {
        let digest = self.format().data_digest.then(|| digest_bytes(data));
        let list = self.list();
        list.push_header(data);
        if let Some(digest) = digest {
            list.push_header(&digest);
        }
    }

    /// Replaces the current caravan by a termination request for the offending header, to be sent
    /// at once. `[NVMe-TCP 1.0 §3.6.2.4]`
    pub fn push_termination(&mut self, role: Role, request: &TermReq, header: &[u8]) {
        let mut out = [0; TERM_REQ_BYTES_MAX];
        let length = request.encode(role, header, &mut out);
        let list = self.list();
        list.clear();
        list.push_header(&out[..length]);
        self.send_now();
    }
}

/// Returns the digest of payload in place.
fn digest_of(data: &IoSlice) -> [u8; DIGEST_BYTES] {
    if let Some(bytes) = data.bytes() {
        return digest_bytes(bytes);
    }
    // A device's memory can only be read by copying.
    let mut piece = [0; PIECE_BYTES];
    let mut crc = 0;
    let mut at = 0;
    while at < data.len() {
        let length = piece.len().min(data.len() - at);
        data.copy_out(at, &mut piece[..length]);
        crc = crc32c_append(crc, &piece[..length]);
        at += length;
    }
    crc.to_le_bytes()
}

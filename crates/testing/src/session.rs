//! The host's end of a connection, without its socket.

use crate::{Found, Pdu, Pdus};
use wire::fabrics::connect::ConnectAttributes;
use wire::fabrics::property::Configuration;
use wire::fabrics::{Connect, ConnectData, PropertySet};
use wire::nvme::io::LbaControl;
use wire::nvme::{Command, IoOpcode, LbaCommand, Nqn, SglDescriptor};
use wire::tcp::{
    CapsuleCmd, DataAlignment, FramingError, H2cData, IcReq, IcResp, PduFormat, PduHeader, R2t,
    Role, digest,
};

/// Default HOSTID of scripted hosts.
pub const HOST_ID: [u8; 16] = [7; 16];

/// Parameters of a host's connection initialisation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dialect {
    /// Header digests in both directions.
    pub header_digest: bool,
    /// Data digests in both directions.
    pub data_digest: bool,
    /// HPDA, 0 to 31: `4 * (alignment + 1)` bytes.
    pub alignment: u8,
    /// MAXR2T, zero-based.
    pub max_r2t: u32,
}

impl Dialect {
    /// Encodes the ICReq of these parameters.
    ///
    /// # Panics
    /// If the alignment is invalid.
    #[must_use]
    pub fn ic_req(self) -> [u8; IcReq::SIZE] {
        let request = IcReq {
            host_alignment: self.alignment(),
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            max_r2t: self.max_r2t,
        };
        request.to_bytes()
    }

    fn alignment(self) -> DataAlignment {
        DataAlignment::from_code(self.alignment).expect("a legal alignment")
    }
}

/// The host's end of a connection: the negotiated format, the received bytes, and command
/// identifiers.
#[derive(Debug)]
pub struct Session {
    /// Format of the PDUs that the host sends; [plain](PduFormat::PLAIN) before ICResp.
    pub format: PduFormat,
    /// Largest data of an H2CData PDU, in bytes: 4,096 before ICResp.
    pub max_h2c_data: u32,
    /// The last command identifier that [`cid`](Self::cid) returned.
    pub last_cid: u16,
    /// Bytes from the target.
    pub inward: Pdus,
    alignment: DataAlignment,
}

impl Session {
    /// A connection before ICResp.
    ///
    /// # Panics
    /// If the alignment is invalid.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self {
            format: PduFormat::PLAIN,
            max_h2c_data: 4096,
            last_cid: 0,
            inward: Pdus::to(Role::Host),
            alignment: dialect.alignment(),
        }
    }

    /// Returns the next complete PDU of the bytes [fed](Pdus::feed) so far; `None` if more bytes
    /// are needed. An ICResp sets the session's format.
    ///
    /// # Errors
    /// The target violated the framing rules.
    pub fn next_pdu(&mut self) -> Result<Option<Pdu>, FramingError> {
        while let Some(found) = self.inward.find()? {
            let Found::Whole(pdu) = found else {
                continue;
            };
            if let PduHeader::IcResp(response) = &pdu.header {
                self.agree(response, self.alignment);
            }
            return Ok(Some(pdu));
        }
        Ok(None)
    }

    /// Sets the format of ICResp; the target pads its data to `alignment`.
    pub fn agree(&mut self, response: &IcResp, alignment: DataAlignment) {
        let (header_digest, data_digest) = (response.header_digest, response.data_digest);
        self.inward.framer.set_digests(header_digest, data_digest);
        self.inward.framer.set_alignment(alignment);
        self.format = PduFormat {
            header_digest,
            data_digest,
            alignment: response.controller_alignment,
        };
        self.max_h2c_data = response.max_h2c_data;
    }

    /// Returns the next command identifier: from 1 to 2^16 - 1, then 0.
    pub const fn cid(&mut self) -> u16 {
        self.last_cid = self.last_cid.wrapping_add(1);
        self.last_cid
    }

    /// Encodes a capsule.
    ///
    /// # Panics
    /// If the data has 4 GiB or more.
    #[must_use]
    pub fn capsule(&self, command: &Command, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        let capsule = CapsuleCmd { command: *command };
        let header = capsule.encode(&self.format, length(data), &mut bytes);
        self.with_data(bytes, header, data)
    }

    /// Encodes a capsule with the next command identifier and in-capsule data; returns it with the
    /// identifier.
    ///
    /// # Panics
    /// As [`capsule`](Self::capsule).
    #[must_use]
    pub fn command(&mut self, mut command: Command, data: &[u8]) -> (Vec<u8>, u16) {
        let cid = self.cid();
        command.set_cid(cid);
        if !data.is_empty() {
            command.set_sgl(SglDescriptor::in_capsule(0, length(data)));
        }
        (self.capsule(&command, data), cid)
    }

    /// Encodes an H2CData PDU.
    #[must_use]
    pub fn h2c_data(&self, pdu: &H2cData, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        let header = pdu.encode(&self.format, &mut bytes);
        self.with_data(bytes, header, data)
    }

    /// Encodes the H2CData PDUs that answer an R2T, as large as the target allows.
    ///
    /// # Panics
    /// If the data length differs from the R2T's.
    #[must_use]
    pub fn answer(&self, r2t: &R2t, data: &[u8]) -> Vec<u8> {
        assert_eq!(data.len(), r2t.length as usize, "the data of {r2t:?}");
        let (mut bytes, mut sent) = (Vec::new(), 0);
        for part in data.chunks(self.max_h2c_data as usize) {
            let pdu = H2cData {
                command_id: r2t.command_id,
                transfer_tag: r2t.transfer_tag,
                data_offset: r2t.offset + sent,
                data_length: length(part),
                last: sent + length(part) == r2t.length,
            };
            bytes.extend(self.h2c_data(&pdu, part));
            sent += length(part);
        }
        bytes
    }

    fn with_data(&self, mut bytes: Vec<u8>, header: usize, data: &[u8]) -> Vec<u8> {
        bytes.truncate(header);
        bytes.extend_from_slice(data);
        if self.format.data_digest && !data.is_empty() {
            bytes.extend_from_slice(&digest::digest_bytes(data));
        }
        bytes
    }
}

fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("the data of a capsule is short")
}

/// Connect, with submission queue flow control disabled. SQSIZE is zero-based.
#[must_use]
pub const fn connect(queue_id: u16, sq_size: u16, keep_alive_timeout_ms: u32) -> Connect {
    Connect {
        record_format: 0,
        queue_id,
        sq_size,
        attributes: ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL),
        keep_alive_timeout_ms,
    }
}

/// Data of Connect.
///
/// # Panics
/// If a name is not an NQN.
#[must_use]
pub fn connect_data(subsystem: &str, host: &str, host_id: [u8; 16], cntlid: u16) -> ConnectData {
    let [subsystem, host] = [subsystem, host].map(|name| Nqn::new(name).expect("an NQN"));
    ConnectData::new(host_id, cntlid, &subsystem, &host)
}

/// The command that enables a controller.
#[must_use]
pub fn enable() -> Command {
    PropertySet::configure(Configuration::ENABLE).encode(0)
}

/// A command on blocks of a namespace.
#[must_use]
pub fn blocks(opcode: IoOpcode, nsid: u32, slba: u64, blocks: u32) -> Command {
    let command = LbaCommand {
        nsid,
        slba,
        blocks,
        control: LbaControl(0),
        dataset_hints: 0,
    };
    command.encode(opcode, 0)
}

//! As much of iSCSI as a read and a write take: one login, READ(10), and WRITE(10) with its data in
//! the command. `[RFC 7143 §11]`

use super::Remote;
use super::connection::{Connection, Wait, u32_at};
use anyhow::{Context as _, Result, bail, ensure};
use std::net::SocketAddr;

/// A basic header segment.
const HEADER_BYTES: usize = 48;

const LOGIN: u8 = 0x03;
const LOGIN_ANSWER: u8 = 0x23;
const COMMAND: u8 = 0x01;
const COMMAND_ANSWER: u8 = 0x21;
const DATA_IN: u8 = 0x25;
const IMMEDIATE: u8 = 0x40;

/// Flags of a login: from operational parameters to the full feature phase.
const TRANSIT: u8 = 0x80;
const OPERATIONAL_TO_FULL: u8 = 0b01 << 2 | 0b11;

/// Flags of a command.
const FINAL: u8 = 0x80;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
const SIMPLE: u8 = 1;

/// Of Data-In: this one has the status.
const HAS_STATUS: u8 = 1;

const TEST_UNIT_READY: u8 = 0x00;
const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;
const CHECK_CONDITION: u8 = 0x02;

/// Our only request has this tag.
const TAG: u32 = 1;

/// Conditions that a unit reports to a new initiator before it works: resets, changed parameters.
const ATTENTIONS_MAX: usize = 8;

/// Bytes of a logical block.
const BLOCK_BYTES: u64 = 512;

const INITIATOR: &str = "iqn.2026-11.io.switchyard:bench";

/// An initiator of one unit.
#[derive(Debug)]
pub struct Iscsi {
    connection: Connection,
    lun: u8,
    command_number: u32,
    status_number: u32,
    message: Vec<u8>,
}

impl Iscsi {
    /// Logs in, without authentication.
    ///
    /// # Errors
    /// When the target does not answer, refuses, or its unit does not become ready.
    pub fn connect(address: SocketAddr, target: &str, lun: u8, wait: Wait) -> Result<Self> {
        let mut iscsi = Self {
            connection: Connection::open(address, wait)?,
            lun,
            command_number: 1,
            status_number: 0,
            message: Vec::new(),
        };
        iscsi.log_in(target)?;
        for _ in 0..ATTENTIONS_MAX {
            iscsi.start(TEST_UNIT_READY, 0, 0, SIMPLE | FINAL, &[])?;
            match iscsi.status(&mut [])? {
                0 => return Ok(iscsi),
                CHECK_CONDITION => {}
                other => bail!("the unit answers with status {other:#04x}"),
            }
        }
        bail!("the unit does not become ready");
    }

    fn log_in(&mut self, target: &str) -> Result<()> {
        let keys = [
            ("InitiatorName", INITIATOR),
            ("TargetName", target),
            ("SessionType", "Normal"),
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("MaxConnections", "1"),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxRecvDataSegmentLength", "262144"),
            ("ErrorRecoveryLevel", "0"),
        ];
        let mut text = Vec::new();
        for (key, value) in keys {
            text.extend(format!("{key}={value}\0").into_bytes());
        }
        let mut header = [0; HEADER_BYTES];
        header[0] = IMMEDIATE | LOGIN;
        header[1] = TRANSIT | OPERATIONAL_TO_FULL;
        // Of the initiator's own choice, of the random kind.
        header[8..14].copy_from_slice(&[0x80, 0, 0, 1, 0, 0]);
        self.send(header, &text)?;
        let answer = self.head()?;
        ensure!(
            answer[0] == LOGIN_ANSWER,
            "a login is answered with {:#04x}",
            answer[0]
        );
        let class = answer[36];
        ensure!(
            class == 0,
            "the target refuses the login: {class:#04x}, {:#04x}",
            answer[37]
        );
        ensure!(
            answer[1] & TRANSIT != 0,
            "the target wants to negotiate further"
        );
        self.connection.skip(padded(data_bytes(&answer)))
    }

    /// Sends a PDU, with what both directions count filled in.
    fn send(&mut self, mut header: [u8; HEADER_BYTES], data: &[u8]) -> Result<()> {
        let length = u32::try_from(data.len())?.to_be_bytes();
        header[5..8].copy_from_slice(&length[1..]);
        header[16..20].copy_from_slice(&TAG.to_be_bytes());
        header[24..28].copy_from_slice(&self.command_number.to_be_bytes());
        header[28..32].copy_from_slice(&self.status_number.to_be_bytes());
        self.message.clear();
        self.message.extend(header);
        self.message.extend(data);
        self.message.resize(HEADER_BYTES + padded(data.len()), 0);
        self.connection.send(&self.message)
    }

    /// Receives a header, and takes note of what it counts.
    fn head(&mut self) -> Result<[u8; HEADER_BYTES]> {
        let mut header = [0; HEADER_BYTES];
        self.connection.receive(&mut header)?;
        ensure!(header[4] == 0, "additional headers were not negotiated");
        let counts = header[0] != DATA_IN || header[1] & HAS_STATUS != 0;
        if counts {
            self.status_number = u32_at(&header, 24).wrapping_add(1);
        }
        Ok(header)
    }

    /// Sends a command; `data` goes with it.
    fn start(
        &mut self,
        operation: u8,
        offset: u64,
        bytes: usize,
        flags: u8,
        data: &[u8],
    ) -> Result<()> {
        let mut header = [0; HEADER_BYTES];
        header[0] = COMMAND;
        header[1] = flags;
        header[9] = self.lun;
        header[20..24].copy_from_slice(&u32::try_from(bytes)?.to_be_bytes());
        let block = u32::try_from(offset / BLOCK_BYTES).context("beyond what READ(10) reaches")?;
        let blocks = u16::try_from(bytes as u64 / BLOCK_BYTES).context("too long")?;
        header[32] = operation;
        if operation != TEST_UNIT_READY {
            header[34..38].copy_from_slice(&block.to_be_bytes());
            header[39..41].copy_from_slice(&blocks.to_be_bytes());
        }
        self.send(header, data)?;
        self.command_number = self.command_number.wrapping_add(1);
        Ok(())
    }

    /// Receives data, and the status of the command.
    fn status(&mut self, data: &mut [u8]) -> Result<u8> {
        let mut received = 0;
        loop {
            let header = self.head()?;
            ensure!(
                u32_at(&header, 16) == TAG,
                "an answer to another request: {:#04x}",
                header[0]
            );
            let length = data_bytes(&header);
            match header[0] {
                DATA_IN => {
                    let offset = u32_at(&header, 40) as usize;
                    ensure!(
                        offset == received && length <= data.len() - received,
                        "data that was not asked for"
                    );
                    self.connection
                        .receive(&mut data[offset..offset + length])?;
                    self.connection.skip(padded(length) - length)?;
                    received += length;
                    if header[1] & HAS_STATUS == 0 {
                        continue;
                    }
                }
                COMMAND_ANSWER => {
                    ensure!(header[2] == 0, "the target failed: {:#04x}", header[2]);
                    self.connection.skip(padded(length))?;
                }
                other => bail!("a command is answered with {other:#04x}"),
            }
            let status = header[3];
            ensure!(
                status != 0 || received == data.len(),
                "{received} bytes instead of {}",
                data.len()
            );
            return Ok(status);
        }
    }
}

impl Remote for Iscsi {
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.start(READ_10, offset, data.len(), FINAL | READS | SIMPLE, &[])?;
        let status = self.status(data)?;
        ensure!(status == 0, "the unit answers with status {status:#04x}");
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.start(WRITE_10, offset, data.len(), FINAL | WRITES | SIMPLE, data)?;
        let status = self.status(&mut [])?;
        ensure!(status == 0, "the unit answers with status {status:#04x}");
        Ok(())
    }
}

/// DataSegmentLength.
fn data_bytes(header: &[u8; HEADER_BYTES]) -> usize {
    u32_at(header, 4) as usize & 0x00ff_ffff
}

/// Data segments are multiples of four bytes.
const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

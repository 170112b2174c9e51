//! A packet capture on loopback, and the findings of Wireshark's NVMe/TCP dissector.
//!
//! Owns the capturing process and its file. The dissector is an independent implementation of the
//! specification: nothing here decodes PDUs itself.

use crate::limits::{CAPTURE_LINGER, CAPTURE_READY_DEADLINE, END_DEADLINE};
use crate::output_of;
use crate::process::Process;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Programs required to capture and dissect.
pub const PROGRAMS: [&str; 2] = ["dumpcap", "tshark"];

/// A running capture of one TCP port.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: CaptureFile,
    port: u16,
}

impl Capture {
    /// Starts the capture of a port of the loopback interface, and waits until it runs.
    ///
    /// # Errors
    /// If this user may not capture, or the capture does not start before the deadline.
    pub fn start(port: u16) -> Result<Self> {
        let file = CaptureFile::new();
        let mut command = Command::new("dumpcap");
        // 64 MiB between the kernel and the file, so that the workload does not outrun the disk.
        command.args(["-q", "-i", "lo", "-s", "0", "-B", "64"]);
        command
            .args(["-f", &format!("tcp port {port}")])
            .arg("-w")
            .arg(&file.path);
        let mut process = Process::start(&mut command)?;
        process.wait_for(
            "the start of the capture",
            CAPTURE_READY_DEADLINE,
            |_, stderr| stderr.contains("File: ").then_some(()),
        )?;
        Ok(Self {
            process,
            file,
            port,
        })
    }

    /// Ends the capture and dissects it.
    ///
    /// # Errors
    /// If the capture lost packets, or tshark fails.
    pub fn finish(self) -> Result<Dissection> {
        self.dissect(|_| true)
    }

    /// Ends the capture and dissects it; counts and complaints cover only the target's PDUs, not
    /// those of its host.
    ///
    /// # Errors
    /// Like [`Capture::finish`].
    pub fn finish_of_target(self) -> Result<Dissection> {
        let port = self.port.to_string();
        self.dissect(|sender| sender == port)
    }

    /// Dissects the packets from ports for which `counts` returns true.
    fn dissect(mut self, counts: impl Fn(&str) -> bool) -> Result<Dissection> {
        std::thread::sleep(CAPTURE_LINGER);
        self.process.signal(Signal::INT)?;
        let status = self.process.wait(END_DEADLINE)?;
        let said = self.process.stderr();
        ensure!(status.success(), "dumpcap ended with {status}: {said}");
        let lost = lost_packets(&said).with_context(|| format!("no statistics in: {said}"))?;
        ensure!(lost == 0, "{lost} packets were lost to the capture: {said}");

        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&self.file.path);
        tshark.args(["-d", &format!("tcp.port=={},nvme-tcp", self.port)]);
        tshark.args(["-o", "nvme-tcp.check_hdgst:TRUE"]);
        tshark.args(["-o", "nvme-tcp.check_ddgst:TRUE"]);
        // Two processors capture concurrently, and may write packets in another order than they
        // were sent.
        tshark.args(["-o", "tcp.reassemble_out_of_order:TRUE"]);
        tshark.args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|"]);
        for field in FIELDS {
            tshark.args(["-e", field]);
        }
        let text = String::from_utf8(output_of(&mut tshark)?).context("tshark speaks UTF-8")?;
        Dissection::parse(&text, counts)
    }
}

/// A file for the packets, in the folder for temporary files, because `dumpcap` drops root's right
/// to write to folders of other users. Removed when dropped.
#[derive(Debug)]
struct CaptureFile {
    path: PathBuf,
}

impl CaptureFile {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("switchyard-e2e-{}-{count}.pcapng", std::process::id());
        Self {
            path: std::env::temp_dir().join(name),
        }
    }
}

impl Drop for CaptureFile {
    fn drop(&mut self) {
        // It does not exist if the capture did not start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the packets that the kernel or `dumpcap` dropped, from its final output: `Packets
/// received/dropped on interface 'Loopback: lo': 20/0 (pcap:0/…`.
fn lost_packets(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find(|line| line.starts_with("Packets received/dropped"))?;
    let (_, counts) = line.rsplit_once("': ")?;
    counts
        .split_whitespace()
        .next()?
        .split_once('/')?
        .1
        .parse()
        .ok()
}

/// Fields of every packet, in the order of a line's columns.
const FIELDS: [&str; 9] = [
    "frame.number",
    "tcp.srcport",
    "nvme-tcp.type",
    "nvme.cmd.opc",
    "nvme-tcp.hdgst.status",
    "nvme-tcp.ddgst.status",
    "_ws.malformed",
    "_ws.expert.severity",
    "_ws.expert.message",
];

/// Minimum severity of a relevant expert message: warning.
const SEVERITY_WARNING: u32 = 0x0060_0000;

/// Warnings about TCP flow that do not concern PDUs: a full window, a packet order that the capture
/// changed (losses are counted), a connection closed with data in flight.
const FLOW_REMARKS: [&str; 7] = [
    "Previous segment",
    "indow",
    "out-of-order",
    "retransmission",
    "D-SACK",
    "Duplicate ACK",
    "Connection ",
];

/// PDU types, numbered as in Wireshark and the specification. `[NVMe-TCP 1.0 §3.6.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PduType {
    /// Initialise connection request, from the host.
    IcReq = 0,
    /// Initialise connection response, from the controller.
    IcResp = 1,
    /// The host terminates the connection.
    H2cTermReq = 2,
    /// The controller terminates the connection.
    C2hTermReq = 3,
    /// A command.
    CapsuleCmd = 4,
    /// A completion.
    CapsuleResp = 5,
    /// Data to the controller.
    H2cData = 6,
    /// Data to the host.
    C2hData = 7,
    /// The controller requests data.
    R2t = 9,
}

impl PduType {
    const ALL: [Self; 9] = [
        Self::IcReq,
        Self::IcResp,
        Self::H2cTermReq,
        Self::C2hTermReq,
        Self::CapsuleCmd,
        Self::CapsuleResp,
        Self::H2cData,
        Self::C2hData,
        Self::R2t,
    ];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|pdu| *pdu as u32 == number)
    }
}

/// Numbers of correct and wrong digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DigestCount {
    /// Correct digests.
    pub good: u64,
    /// Wrong or misplaced digests.
    pub bad: u64,
}

/// The dissector's findings in a capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dissection {
    /// PDUs by type.
    pub pdus: BTreeMap<PduType, u64>,
    /// Commands by opcode, of admin and I/O queues together, without Fabrics commands.
    pub commands: BTreeMap<u8, u64>,
    /// Header digests.
    pub header_digests: DigestCount,
    /// Data digests.
    pub data_digests: DigestCount,
    /// All complaints, each with its frame's number.
    pub complaints: Vec<String>,
}

impl Dissection {
    fn parse(text: &str, counts: impl Fn(&str) -> bool) -> Result<Self> {
        let mut dissection = Self::default();
        for line in text.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let Ok(
                [
                    frame,
                    sender,
                    types,
                    opcodes,
                    header,
                    data,
                    malformed,
                    severities,
                    messages,
                ],
            ) = <[&str; FIELDS.len()]>::try_from(columns)
            else {
                bail!(
                    "tshark wrote a line without {} columns: {line:?}",
                    FIELDS.len()
                );
            };
            if !counts(sender) {
                continue;
            }
            for number in values(types) {
                let pdu = number.parse().ok().and_then(PduType::from_number);
                match pdu {
                    Some(pdu) => *dissection.pdus.entry(pdu).or_default() += 1,
                    None => dissection
                        .complaints
                        .push(format!("frame {frame}: PDU type {number}")),
                }
            }
            for opcode in values(opcodes) {
                let number = opcode.trim_start_matches("0x");
                let number = u8::from_str_radix(number, 16)
                    .with_context(|| format!("frame {frame}: opcode {opcode:?}"))?;
                *dissection.commands.entry(number).or_default() += 1;
            }
            count_digests(&mut dissection.header_digests, header);
            count_digests(&mut dissection.data_digests, data);
            if !malformed.is_empty() {
                dissection
                    .complaints
                    .push(format!("frame {frame}: malformed: {malformed}"));
            }
            let severe = values(severities)
                .filter_map(|severity| severity.parse::<u32>().ok())
                .any(|severity| severity >= SEVERITY_WARNING);
            let about_flow = |message| FLOW_REMARKS.iter().any(|part| str::contains(message, part));
            if severe && !values(messages).all(about_flow) {
                dissection
                    .complaints
                    .push(format!("frame {frame}: {messages}"));
            }
        }
        Ok(dissection)
    }

    /// Returns the number of PDUs of a type.
    pub fn count(&self, pdu: PduType) -> u64 {
        self.pdus.get(&pdu).copied().unwrap_or(0)
    }
}

fn values(column: &str) -> impl Iterator<Item = &str> {
    column.split('|').filter(|value| !value.is_empty())
}

fn count_digests(count: &mut DigestCount, statuses: &str) {
    for status in values(statuses) {
        match status {
            "1" => count.good += 1,
            // Not present: according to its flags the PDU has none.
            "3" => {}
            _ => count.bad += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_counts_and_complaints() {
        let text = "1\t9\t0\t\t\t\t\t\t\n\
                    2\t9\t4|6\t0x81\t1|1\t1\t\t2097152\tWindow update\n\
                    3\t9\t7\t\t0\t2\tNVMe TCP\t8388608\tMalformed Packet\n\
                    4\t9\t8\t\t\t\t\t\t\n\
                    5\t8\t5\t\t1\t\t\t6291456\tPrevious segment(s) not captured (common at capture start)\n";
        let dissection = Dissection::parse(text, |_| true).unwrap();
        assert_eq!(dissection.count(PduType::IcReq), 1);
        assert_eq!(dissection.count(PduType::H2cData), 1);
        assert_eq!(dissection.count(PduType::R2t), 0);
        assert_eq!(dissection.commands, [(0x81, 1)].into());
        assert_eq!(dissection.header_digests, DigestCount { good: 3, bad: 1 });
        assert_eq!(dissection.data_digests, DigestCount { good: 1, bad: 1 });
        assert_eq!(
            dissection.complaints,
            [
                "frame 3: malformed: NVMe TCP",
                "frame 3: Malformed Packet",
                "frame 4: PDU type 8"
            ]
        );
        let of_one = Dissection::parse(text, |sender| sender == "8").unwrap();
        assert_eq!(of_one.pdus, [(PduType::CapsuleResp, 1)].into());
        assert!(of_one.complaints.is_empty());
        Dissection::parse("1\t2\n", |_| true).unwrap_err();
    }

    #[test]
    fn lost_packets_are_read_from_the_last_words() {
        let said = "Capturing on 'Loopback: lo'\nPackets captured: 20\nPackets received/dropped \
                    on interface 'Loopback: lo': 20/3 (pcap:3/dumpcap:0/flushed:0/ps_ifdrop:0)\n";
        assert_eq!(lost_packets(said), Some(3));
        assert_eq!(lost_packets("Capturing"), None);
    }
}

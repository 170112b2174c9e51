//! Questions that take several admin commands: which namespaces there are, and what the discovery
//! log says. Pure: each says what to ask next and is told the answer.

use crate::info::{DiscoveryEntry, NamespaceInfo};
use crate::limits::{DISCOVERY_ENTRIES_MAX, DISCOVERY_READS_MAX, NAMESPACES_MAX};
use std::collections::{BTreeMap, VecDeque};
use wire::fabrics::{DiscoveryLogEntry, DiscoveryLogHeader};
use wire::limits::IDENTIFY_BYTES;
use wire::nvme::identify::Cns;
use wire::nvme::identify_lists::{NamespaceId, parse_namespace_descriptors, parse_namespace_list};
use wire::nvme::log_page::LogPageId;
use wire::nvme::{AdminCommand, GetLogPage, Identify, IdentifyNamespace, Status};

/// How an inquiry goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Ask the next command.
    Continue,
    /// Everything is known.
    Finished,
    /// The controller says something that cannot be.
    Failed(&'static str),
}

/// What is being asked.
#[derive(Debug)]
pub(super) enum Inquiry {
    Namespaces(NamespaceScan),
    Discovery(Box<LogScan>),
}

impl Inquiry {
    /// The next command, and how many bytes it returns.
    pub(super) fn command(&self) -> (AdminCommand, usize) {
        match self {
            Self::Namespaces(scan) => scan.command(),
            Self::Discovery(scan) => scan.command(),
        }
    }

    /// The answer to it.
    pub(super) fn answer(&mut self, status: Status, data: &[u8]) -> Progress {
        match self {
            Self::Namespaces(scan) => scan.answer(status, data),
            Self::Discovery(scan) => scan.answer(status, data),
        }
    }
}

/// What the scan asks next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanStage {
    /// The log of changed namespaces: reading it lets the controller report the next change.
    Changed,
    /// Active namespaces above this one.
    List { above: u32 },
    /// One namespace.
    Namespace(u32),
    /// Its identifiers.
    Descriptors(u32),
}

/// Finds the active namespaces and identifies each.
#[derive(Debug)]
pub(super) struct NamespaceScan {
    stage: ScanStage,
    todo: VecDeque<u32>,
    pub(super) found: Vec<NamespaceInfo>,
    pub(super) unusable: BTreeMap<u32, &'static str>,
}

impl NamespaceScan {
    /// The scan; `changed` where the controller has reported a change.
    pub(super) fn new(changed: bool) -> Self {
        Self {
            stage: if changed {
                ScanStage::Changed
            } else {
                ScanStage::List { above: 0 }
            },
            todo: VecDeque::new(),
            found: Vec::new(),
            unusable: BTreeMap::new(),
        }
    }

    fn command(&self) -> (AdminCommand, usize) {
        let (cns, nsid) = match self.stage {
            ScanStage::Changed => {
                let bytes = u32::try_from(IDENTIFY_BYTES).expect("4096");
                let nsid = wire::limits::NSID_BROADCAST;
                let get = GetLogPage::new(LogPageId::CHANGED_NAMESPACES, nsid, 0, bytes);
                return (AdminCommand::GetLogPage(get), IDENTIFY_BYTES);
            }
            ScanStage::List { above } => (Cns::ACTIVE_NAMESPACES, above),
            ScanStage::Namespace(nsid) => (Cns::NAMESPACE, nsid),
            ScanStage::Descriptors(nsid) => (Cns::NAMESPACE_DESCRIPTORS, nsid),
        };
        (
            AdminCommand::Identify(Identify::new(cns, nsid)),
            IDENTIFY_BYTES,
        )
    }

    fn answer(&mut self, status: Status, data: &[u8]) -> Progress {
        let Some(data) = data.first_chunk::<IDENTIFY_BYTES>() else {
            return Progress::Failed("identify data is shorter than 4096 bytes");
        };
        match self.stage {
            // Which ones changed does not matter: all are looked at.
            ScanStage::Changed => self.stage = ScanStage::List { above: 0 },
            ScanStage::List { above } => {
                if !status.is_success() {
                    return Progress::Failed("it does not list its active namespaces");
                }
                return self.listed(above, data);
            }
            ScanStage::Namespace(nsid) => {
                if !status.is_success() {
                    // It went away between the list and the question.
                    return self.next();
                }
                match NamespaceInfo::from_identify(nsid, &IdentifyNamespace::parse(data)) {
                    Ok(info) => self.found.push(info),
                    Err(reason) => {
                        self.unusable.insert(nsid, reason);
                        return self.next();
                    }
                }
                self.stage = ScanStage::Descriptors(nsid);
            }
            ScanStage::Descriptors(nsid) => {
                // A controller of an old version may not know the descriptors.
                let info = self.found.last_mut().filter(|info| info.nsid == nsid);
                if let (true, Some(info)) = (status.is_success(), info) {
                    describe(info, data);
                }
                return self.next();
            }
        }
        Progress::Continue
    }

    fn listed(&mut self, above: u32, data: &[u8; IDENTIFY_BYTES]) -> Progress {
        let mut last = above;
        let mut count = 0;
        for nsid in parse_namespace_list(data) {
            if nsid <= last {
                return Progress::Failed("its list of active namespaces does not ascend");
            }
            last = nsid;
            count += 1;
            self.todo.push_back(nsid);
            if self.todo.len() >= NAMESPACES_MAX {
                return self.next();
            }
        }
        if count == wire::limits::NAMESPACE_LIST_ENTRIES {
            self.stage = ScanStage::List { above: last };
            return Progress::Continue;
        }
        self.next()
    }

    fn next(&mut self) -> Progress {
        match self.todo.pop_front() {
            Some(nsid) => {
                self.stage = ScanStage::Namespace(nsid);
                Progress::Continue
            }
            None => Progress::Finished,
        }
    }
}

fn describe(info: &mut NamespaceInfo, data: &[u8; IDENTIFY_BYTES]) {
    for id in parse_namespace_descriptors(data) {
        match id {
            NamespaceId::Eui64(id) => info.eui64 = Some(id),
            NamespaceId::Nguid(id) => info.nguid = Some(id),
            NamespaceId::Uuid(id) => info.uuid = Some(id),
            NamespaceId::CommandSet(_) => {}
        }
    }
}

/// What the log scan reads next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStage {
    /// The header.
    Header,
    /// Entries from this one on.
    Entries { next: u64 },
    /// The header again: the log must not have changed meanwhile.
    Check,
}

/// Entries read by one command.
const ENTRIES_PER_READ: u64 = 4;

/// Reads a discovery log whole, again where it changes meanwhile. `[NVMe Base 2.0 §5.16.1.23]`
#[derive(Debug)]
pub(super) struct LogScan {
    stage: LogStage,
    generation: u64,
    records: u64,
    reads: u32,
    pub(super) entries: Vec<DiscoveryEntry>,
}

impl LogScan {
    pub(super) fn new() -> Self {
        Self {
            stage: LogStage::Header,
            generation: 0,
            records: 0,
            reads: 0,
            entries: Vec::new(),
        }
    }

    fn command(&self) -> (AdminCommand, usize) {
        const ENTRY: u64 = DiscoveryLogEntry::SIZE as u64;
        let (offset, bytes) = match self.stage {
            LogStage::Header | LogStage::Check => (0, ENTRY),
            LogStage::Entries { next } => {
                let count = ENTRIES_PER_READ.min(self.records - next);
                (ENTRY * (next + 1), ENTRY * count)
            }
        };
        let length = u32::try_from(bytes).expect("a few entries");
        let mut get = GetLogPage::new(LogPageId::DISCOVERY, 0, offset, length);
        // Only the last look lets the controller report the next change.
        get.retain_async_event = self.stage != LogStage::Check;
        (AdminCommand::GetLogPage(get), length as usize)
    }

    fn answer(&mut self, status: Status, data: &[u8]) -> Progress {
        if !status.is_success() {
            return Progress::Failed("it does not hand out its discovery log");
        }
        match self.stage {
            LogStage::Header | LogStage::Check => {
                let Some(header) = DiscoveryLogHeader::parse_prefix(data) else {
                    return Progress::Failed("its discovery log is shorter than a header");
                };
                self.header(&header)
            }
            LogStage::Entries { next } => {
                let (entries, _) = data.as_chunks::<{ DiscoveryLogEntry::SIZE }>();
                for entry in entries {
                    let entry = DiscoveryLogEntry::parse(entry);
                    self.entries.push(DiscoveryEntry::from_log(&entry));
                }
                let next = next + entries.len() as u64;
                self.stage = if next < self.records {
                    LogStage::Entries { next }
                } else {
                    LogStage::Check
                };
                Progress::Continue
            }
        }
    }

    fn header(&mut self, header: &DiscoveryLogHeader) -> Progress {
        if header.record_format != 0 {
            return Progress::Failed("its discovery log has an unknown format");
        }
        if header.records > DISCOVERY_ENTRIES_MAX {
            return Progress::Failed("its discovery log is unreasonably long");
        }
        let same = header.generation == self.generation && header.records == self.records;
        if self.stage == LogStage::Check && same {
            return Progress::Finished;
        }
        self.reads += 1;
        if self.reads > DISCOVERY_READS_MAX {
            return Progress::Failed("its discovery log changes faster than it can be read");
        }
        self.generation = header.generation;
        self.records = header.records;
        self.entries.clear();
        self.stage = if header.records == 0 {
            LogStage::Check
        } else {
            LogStage::Entries { next: 0 }
        };
        Progress::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::nvme::identify_lists::{encode_namespace_descriptors, encode_namespace_list};
    use wire::nvme::identify_namespace::LbaFormat;

    fn list(nsids: &[u32]) -> [u8; IDENTIFY_BYTES] {
        let mut data = [0; IDENTIFY_BYTES];
        encode_namespace_list(nsids.iter().copied(), &mut data);
        data
    }

    fn namespace(shift: u8) -> [u8; IDENTIFY_BYTES] {
        let mut identify = IdentifyNamespace {
            nsze: 100,
            ..IdentifyNamespace::default()
        };
        identify.lba_formats[0] = LbaFormat::of_shift(shift);
        identify.to_bytes()
    }

    #[test]
    fn every_active_namespace_is_identified_and_the_odd_ones_are_named() {
        let mut scan = NamespaceScan::new(false);
        let ok = Status::SUCCESS;
        assert_eq!(scan.answer(ok, &list(&[1, 5, 9])), Progress::Continue);
        assert_eq!(scan.answer(ok, &namespace(12)), Progress::Continue);
        let mut ids = [0; IDENTIFY_BYTES];
        encode_namespace_descriptors([NamespaceId::Uuid([7; 16])], &mut ids);
        assert_eq!(scan.answer(ok, &ids), Progress::Continue);
        // 64 KiB blocks.
        assert_eq!(scan.answer(ok, &namespace(16)), Progress::Continue);
        // Gone meanwhile.
        let gone = Status::INVALID_NAMESPACE.with_dnr();
        assert_eq!(scan.answer(gone, &namespace(9)), Progress::Finished);
        assert_eq!(scan.found.len(), 1);
        assert_eq!(scan.found[0].geometry.block_bytes, 4096);
        assert_eq!(scan.found[0].uuid, Some([7; 16]));
        assert!(scan.unusable.contains_key(&5));
    }

    #[test]
    fn after_an_event_the_log_is_read_first() {
        let mut scan = NamespaceScan::new(true);
        assert!(matches!(scan.command().0, AdminCommand::GetLogPage(_)));
        let answer = scan.answer(Status::INVALID_LOG_PAGE, &list(&[]));
        assert_eq!(answer, Progress::Continue);
        assert!(matches!(scan.command().0, AdminCommand::Identify(_)));
    }

    #[test]
    fn a_list_that_does_not_ascend_is_refused() {
        let mut scan = NamespaceScan::new(false);
        let answer = scan.answer(Status::SUCCESS, &list(&[3, 3]));
        assert!(matches!(answer, Progress::Failed(_)));
    }

    fn header(generation: u64, records: u64) -> [u8; 1024] {
        let header = DiscoveryLogHeader {
            generation,
            records,
            record_format: 0,
        };
        header.to_bytes()
    }

    #[test]
    fn a_log_that_changes_is_read_again_and_one_that_never_rests_is_given_up() {
        let mut scan = LogScan::new();
        let ok = Status::SUCCESS;
        assert_eq!(scan.answer(ok, &header(1, 5)), Progress::Continue);
        assert_eq!(scan.command().1, 4096);
        assert_eq!(scan.answer(ok, &[0; 4096]), Progress::Continue);
        assert_eq!(scan.command().1, 1024);
        assert_eq!(scan.answer(ok, &[0; 1024]), Progress::Continue);
        assert_eq!(scan.entries.len(), 5);
        assert_eq!(scan.answer(ok, &header(2, 1)), Progress::Continue);
        assert_eq!(scan.entries.len(), 0);
        assert_eq!(scan.answer(ok, &[0; 1024]), Progress::Continue);
        assert_eq!(scan.answer(ok, &header(2, 1)), Progress::Finished);
        assert_eq!(scan.entries.len(), 1);

        let mut restless = LogScan::new();
        let mut generation = 0;
        let end = loop {
            generation += 1;
            let progress = restless.answer(ok, &header(generation, 0));
            if progress != Progress::Continue {
                break progress;
            }
        };
        assert!(matches!(end, Progress::Failed(_)));
        let mut huge = LogScan::new();
        assert!(matches!(
            huge.answer(ok, &header(1, u64::MAX)),
            Progress::Failed(_)
        ));
    }
}

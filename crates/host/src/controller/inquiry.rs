//! Questions that take several admin commands: which namespaces there are, and what the discovery
//! log says. Pure: each says what to ask next and is told the answer.

pub(super) use crate::discovery::Progress;
use crate::discovery::log::LogScan;
use crate::info::NamespaceInfo;
use crate::limits::NAMESPACES_MAX;
use std::collections::{BTreeMap, VecDeque};
use wire::limits::IDENTIFY_BYTES;
use wire::nvme::identify::Cns;
use wire::nvme::identify_lists::{NamespaceId, parse_namespace_descriptors, parse_namespace_list};
use wire::nvme::log_page::LogPageId;
use wire::nvme::vendor::Extensions;
use wire::nvme::{
    AdminCommand, GetLogPage, Identify, IdentifyController, IdentifyNamespace, Status,
};

/// A question that takes several admin commands.
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

    pub(super) fn answer(&mut self, status: Status, data: &[u8]) -> Progress {
        match self {
            Self::Namespaces(scan) => scan.answer(status, data),
            Self::Discovery(scan) => scan.answer(status, data),
        }
    }
}

/// Next command of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanStage {
    /// The log of changed namespaces: reading it lets the controller report the next change.
    Changed,
    /// The controller: its write caches may have another life now.
    Controller,
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
    /// The life of the controller's write caches, where it was asked for.
    pub(super) cache_life: Option<u64>,
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
            cache_life: None,
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
            ScanStage::Controller => (Cns::CONTROLLER, 0),
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
            ScanStage::Changed => self.stage = ScanStage::Controller,
            ScanStage::Controller => {
                let identify = IdentifyController::parse_prefix(data);
                let identify = identify.filter(|_| status.is_success());
                self.cache_life = identify.map(|i| Extensions::parse(&i.vendor).cache_life);
                self.stage = ScanStage::List { above: 0 };
            }
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
}

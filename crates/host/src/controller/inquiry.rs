//! Inquiries that take several admin commands: the scan of the namespaces, and the discovery log.
//! Pure state machines: each returns its next command and takes the answer.

pub(super) use crate::discovery::Progress;
use crate::discovery::log::LogScan;
use crate::info::NamespaceInfo;
use crate::limits::NAMESPACES_MAX;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::limits::IDENTIFY_BYTES;
use wire::nvme::ana::{ANA_GROUPS_ONLY, AnaState, parse_ana_log};
use wire::nvme::identify::Cns;
use wire::nvme::identify_lists::{NamespaceId, parse_namespace_descriptors, parse_namespace_list};
use wire::nvme::log_page::LogPageId;
use wire::nvme::vendor::Extensions;
use wire::nvme::{
    AdminCommand, GetLogPage, Identify, IdentifyController, IdentifyNamespace, Status,
};

/// An inquiry that takes several admin commands.
#[derive(Debug)]
pub(super) enum Inquiry {
    Namespaces(NamespaceScan),
    /// The ANA states alone, which requests may be waiting for.
    Ana(NamespaceScan),
    Discovery(Box<LogScan>),
}

impl Inquiry {
    /// Returns the next command, and the bytes that it returns.
    pub(super) fn command(&self) -> (AdminCommand, usize) {
        match self {
            Self::Namespaces(scan) | Self::Ana(scan) => scan.command(),
            Self::Discovery(scan) => scan.command(),
        }
    }

    /// Returns true if the next command concerns one namespace only.
    pub(super) fn is_of_one_namespace(&self) -> bool {
        matches!(self, Self::Namespaces(scan) if scan.is_of_one())
    }

    pub(super) fn answer(&mut self, status: Status, data: &[u8]) -> Progress {
        match self {
            Self::Namespaces(scan) | Self::Ana(scan) => scan.answer(status, data),
            Self::Discovery(scan) => scan.answer(status, data),
        }
    }
}

/// Next command of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanStage {
    /// The log of changed namespaces: reading it lets the controller report the next change.
    Changed,
    /// Identify Controller: the life of its write caches may have changed.
    Controller,
    /// Active namespaces above this one.
    List { above: u32 },
    /// Identify of one namespace.
    Namespace(u32),
    /// Its namespace identification descriptors.
    Descriptors(u32),
    /// The states of the ANA groups.
    Ana,
}

/// Finds the active namespaces and identifies each.
#[derive(Debug)]
pub(super) struct NamespaceScan {
    stage: ScanStage,
    todo: VecDeque<u32>,
    pub(super) found: Vec<NamespaceInfo>,
    pub(super) unusable: BTreeMap<u32, &'static str>,
    /// Namespaces that the controller could not identify now.
    pub(super) unknown: BTreeSet<u32>,
    /// The namespaces to identify; `None` for all.
    pub(super) only: Option<BTreeSet<u32>>,
    /// The life of the controller's write caches, if it was read.
    pub(super) cache_life: Option<u64>,
    /// ANA groups of the namespaces; `None` if the controller reports no ANA states.
    pub(super) groups: Option<BTreeSet<u32>>,
    /// There are namespaces, and none of them is accessible by this controller.
    pub(super) inaccessible: bool,
}

impl NamespaceScan {
    /// Creates the scan; `changed` if the controller has reported a change, `ana` if it reports ANA
    /// states.
    pub(super) fn new(changed: bool, ana: bool) -> Self {
        Self {
            stage: if changed {
                ScanStage::Changed
            } else {
                ScanStage::List { above: 0 }
            },
            todo: VecDeque::new(),
            found: Vec::new(),
            unusable: BTreeMap::new(),
            unknown: BTreeSet::new(),
            only: None,
            cache_life: None,
            groups: ana.then(BTreeSet::new),
            inaccessible: false,
        }
    }

    /// Creates a scan of only these namespaces, which the controller could not identify before;
    /// `None` if there are none.
    pub(super) fn of(namespaces: impl Iterator<Item = u32>) -> Option<Self> {
        let only: BTreeSet<u32> = namespaces.collect();
        let mut todo: VecDeque<u32> = only.iter().copied().collect();
        Some(Self {
            stage: ScanStage::Namespace(todo.pop_front()?),
            todo,
            only: Some(only),
            ..Self::new(false, false)
        })
    }

    /// Creates a scan of only the states of these ANA groups.
    pub(super) fn of_groups(groups: BTreeSet<u32>) -> Self {
        Self {
            stage: ScanStage::Ana,
            groups: Some(groups),
            ..Self::new(false, false)
        }
    }

    /// Returns true if the next command concerns one namespace only.
    const fn is_of_one(&self) -> bool {
        matches!(
            self.stage,
            ScanStage::Namespace(_) | ScanStage::Descriptors(_)
        )
    }

    fn command(&self) -> (AdminCommand, usize) {
        let (cns, nsid) = match self.stage {
            ScanStage::Changed => {
                let bytes = u32::try_from(IDENTIFY_BYTES).expect("4096");
                let nsid = wire::limits::NSID_BROADCAST;
                let get = GetLogPage::new(LogPageId::CHANGED_NAMESPACES, nsid, 0, bytes);
                return (AdminCommand::GetLogPage(get), IDENTIFY_BYTES);
            }
            ScanStage::Ana => {
                let bytes = u32::try_from(IDENTIFY_BYTES).expect("4096");
                let nsid = wire::limits::NSID_BROADCAST;
                let get = GetLogPage {
                    specific_field: ANA_GROUPS_ONLY,
                    ..GetLogPage::new(LogPageId::ANA, nsid, 0, bytes)
                };
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
            return Progress::Failed("its Identify data has fewer than 4096 bytes");
        };
        match self.stage {
            // All namespaces are identified, whichever of them changed.
            ScanStage::Changed => self.stage = ScanStage::Controller,
            ScanStage::Controller => {
                let identify = IdentifyController::parse_prefix(data);
                let identify = identify.filter(|_| status.is_success());
                self.cache_life = identify.map(|i| Extensions::parse(&i.vendor).cache_life);
                self.stage = ScanStage::List { above: 0 };
            }
            ScanStage::List { above } => {
                if !status.is_success() {
                    return Progress::Failed("it does not support the Active Namespace ID List");
                }
                return self.listed(above, data);
            }
            ScanStage::Namespace(nsid) => {
                if !status.is_success() {
                    // It was removed after the list was read, or cannot be identified now.
                    if !is_absence(status) {
                        self.unknown.insert(nsid);
                    }
                    return self.next();
                }
                let identify = IdentifyNamespace::parse(data);
                if let Some(groups) = &mut self.groups {
                    groups.insert(identify.anagrpid);
                }
                match NamespaceInfo::from_identify(nsid, &identify) {
                    Ok(info) => self.found.push(info),
                    Err(reason) => {
                        self.unusable.insert(nsid, reason);
                        return self.next();
                    }
                }
                self.stage = ScanStage::Descriptors(nsid);
            }
            ScanStage::Descriptors(nsid) => {
                if status.is_success() {
                    let info = self.found.last_mut().filter(|info| info.nsid == nsid);
                    if let Some(info) = info {
                        describe(info, data);
                    }
                } else if !is_absence(status) {
                    // Without its identifiers, its volume is unknown.
                    self.found.pop_if(|info| info.nsid == nsid);
                    self.unknown.insert(nsid);
                }
                // A controller of an older version does not support the descriptors.
                return self.next();
            }
            ScanStage::Ana => {
                self.inaccessible = status.is_success() && self.is_inaccessible(data);
                return Progress::Finished;
            }
        }
        Progress::Continue
    }

    fn listed(&mut self, above: u32, data: &[u8; IDENTIFY_BYTES]) -> Progress {
        let mut last = above;
        let mut count = 0;
        for nsid in parse_namespace_list(data) {
            if nsid <= last {
                return Progress::Failed("its Active Namespace ID List is not in ascending order");
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
            None if self
                .groups
                .as_ref()
                .is_some_and(|groups| !groups.is_empty()) =>
            {
                self.stage = ScanStage::Ana;
                Progress::Continue
            }
            None => Progress::Finished,
        }
    }

    /// Returns true if this ANA log page says that no namespace is accessible. Without a word about a
    /// group, it is taken for accessible: its commands say otherwise.
    fn is_inaccessible(&self, data: &[u8]) -> bool {
        let Ok((_, states)) = parse_ana_log(data) else {
            return false;
        };
        let is_lost = |group: &u32| {
            let found = states.clone().find(|state| state.group == *group);
            let lost = [AnaState::Inaccessible, AnaState::PersistentLoss];
            found.is_some_and(|found| lost.contains(&found.state))
        };
        self.groups.iter().flatten().all(is_lost)
    }
}

/// Returns true if a status of Identify means that there is no such namespace, or no such data. Any
/// other error leaves that open.
fn is_absence(status: Status) -> bool {
    let absent = [Status::INVALID_NAMESPACE, Status::INVALID_FIELD];
    let absent = absent.map(Status::type_and_code);
    absent.contains(&status.type_and_code())
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
    use wire::nvme::ana::{AnaLogHeader, encode_ana_group};
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
        let mut scan = NamespaceScan::new(false, false);
        let ok = Status::SUCCESS;
        assert_eq!(scan.answer(ok, &list(&[1, 5, 9])), Progress::Continue);
        assert_eq!(scan.answer(ok, &namespace(12)), Progress::Continue);
        let mut ids = [0; IDENTIFY_BYTES];
        encode_namespace_descriptors([NamespaceId::Uuid([7; 16])], &mut ids);
        assert_eq!(scan.answer(ok, &ids), Progress::Continue);
        // 64 KiB blocks.
        assert_eq!(scan.answer(ok, &namespace(16)), Progress::Continue);
        // Removed meanwhile.
        let gone = Status::INVALID_NAMESPACE.with_dnr();
        assert_eq!(scan.answer(gone, &namespace(9)), Progress::Finished);
        assert_eq!(scan.found.len(), 1);
        assert_eq!(scan.found[0].geometry.block_bytes, 4096);
        assert_eq!(scan.found[0].uuid, Some([7; 16]));
        assert!(scan.unusable.contains_key(&5));
    }

    #[test]
    fn a_namespace_is_gone_only_where_the_controller_says_so() {
        let gone = [
            Status::INVALID_NAMESPACE.with_dnr(),
            Status::INVALID_FIELD,
            Status::INVALID_FIELD.with_dnr(),
        ];
        let unknown = [(0, 0x06), (0, 0x22), (0, 0x82), (2, 0x86)];
        let unknown = unknown.map(|(kind, code)| Status::from_type_and_code(kind, code).with_dnr());
        let statuses = gone.map(|status| (status, false));
        for (status, is_unknown) in statuses.into_iter().chain(unknown.map(|s| (s, true))) {
            let mut scan = NamespaceScan::new(false, false);
            scan.answer(Status::SUCCESS, &list(&[1, 2]));
            assert_eq!(scan.answer(status, &list(&[])), Progress::Continue);
            scan.answer(Status::SUCCESS, &namespace(12));
            assert_eq!(scan.answer(status, &list(&[])), Progress::Finished);
            let expected = if is_unknown { vec![1, 2] } else { vec![] };
            assert!(scan.unknown.iter().eq(&expected), "{status}");
            assert_eq!(scan.found.is_empty(), is_unknown, "{status}");

            let Some(mut again) = NamespaceScan::of(scan.unknown.iter().copied()) else {
                assert!(!is_unknown);
                continue;
            };
            for _ in 0..2 {
                again.answer(Status::SUCCESS, &namespace(12));
                again.answer(Status::SUCCESS, &list(&[]));
            }
            assert!(again.found.iter().map(|info| info.nsid).eq([1, 2]));
        }
    }

    #[test]
    fn after_an_event_the_log_is_read_first() {
        let mut scan = NamespaceScan::new(true, false);
        assert!(matches!(scan.command().0, AdminCommand::GetLogPage(_)));
        let answer = scan.answer(Status::INVALID_LOG_PAGE, &list(&[]));
        assert_eq!(answer, Progress::Continue);
        assert!(matches!(scan.command().0, AdminCommand::Identify(_)));
    }

    #[test]
    fn a_list_that_does_not_ascend_is_refused() {
        let mut scan = NamespaceScan::new(false, false);
        let answer = scan.answer(Status::SUCCESS, &list(&[3, 3]));
        assert!(matches!(answer, Progress::Failed(_)));
    }

    fn ana_page(states: &[(u32, AnaState)]) -> [u8; IDENTIFY_BYTES] {
        let mut page = [0; IDENTIFY_BYTES];
        let header = AnaLogHeader {
            change_count: 1,
            groups: u16::try_from(states.len()).expect("few"),
        };
        page[..AnaLogHeader::SIZE].copy_from_slice(&header.to_bytes());
        let mut at = AnaLogHeader::SIZE;
        for &(group, state) in states {
            let none = std::iter::empty();
            at += encode_ana_group(group, 1, state, none, &mut page[at..]).expect("room");
        }
        page
    }

    #[test]
    fn namespaces_are_inaccessible_if_all_their_groups_are() {
        use AnaState::{Change, Inaccessible, NonOptimized, Optimized, PersistentLoss};
        for (one, seven, inaccessible) in [
            (Inaccessible, Inaccessible, true),
            (PersistentLoss, Inaccessible, true),
            (Inaccessible, Optimized, false),
            (NonOptimized, Inaccessible, false),
            // It becomes one of the others.
            (Inaccessible, Change, false),
        ] {
            let page = ana_page(&[(1, one), (3, Optimized), (7, seven)]);
            for (status, found) in [
                (Status::SUCCESS, inaccessible),
                (Status::INVALID_LOG_PAGE, false),
            ] {
                let mut scan = NamespaceScan::of_groups([1, 7].into());
                assert!(matches!(scan.command().0, AdminCommand::GetLogPage(_)));
                assert!(matches!(scan.answer(status, &page), Progress::Finished));
                assert_eq!(scan.inaccessible, found, "{one} {seven} {status}");
            }
        }
        let mut unknown = NamespaceScan::of_groups([1, 9].into());
        let page = ana_page(&[(1, Inaccessible)]);
        unknown.answer(Status::SUCCESS, &page);
        assert!(!unknown.inaccessible, "nothing is said about group 9");
    }
}

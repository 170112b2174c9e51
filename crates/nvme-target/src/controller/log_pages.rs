//! Get Log Page. `[NVMe Base 2.0 §5.16]`

use crate::command::table;
use crate::controller::reply::{Reply, View};
use crate::controller::state::Controller;
use crate::controller::{discovery, features};
use crate::namespace::Namespace;
use crate::stats::NamespaceStats;
use std::collections::BTreeMap;
use wire::limits::NSID_BROADCAST;
use wire::nvme::ana::{ANA_GROUPS_ONLY, AnaLogHeader, ana_log_bytes, encode_ana_group};
use wire::nvme::feature::FeatureId;
use wire::nvme::log_page::{
    ChangedNamespaces, FirmwareSlotLog, LogPageId, SmartLog, SupportedFeatures, SupportedLogPages,
};
use wire::nvme::{GetLogPage, Status};
use wire::text;

/// Executes Get Log Page.
pub(crate) fn execute(
    controller: &mut Controller,
    get: &GetLogPage,
    data: &mut [u8],
    view: &View<'_>,
) -> Result<Reply, Status> {
    let invalid = Status::INVALID_FIELD.with_dnr();
    if data.len() as u64 != get.data_bytes() {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    if get.offset_is_index || !get.offset.is_multiple_of(4) {
        return Err(invalid);
    }
    // [NVMe Base 2.0 §5.16]: an offset beyond the page is an error, bytes beyond its end are not.
    let page = if get.log_page == LogPageId::DISCOVERY && controller.is_discovery() {
        let host = (
            controller.shared.host_nqn.as_str(),
            controller.shared.peer.ip(),
        );
        discovery::log_page(view.shared, host, controller.reached, get)?
    } else {
        let mut page = page(controller, get, view)?;
        let offset = usize::try_from(get.offset).map_err(|_| invalid)?;
        page.get(offset..).ok_or(invalid)?;
        page.drain(..offset);
        page
    };
    let rest = page.as_slice();
    let count = rest.len().min(data.len());
    data[..count].copy_from_slice(&rest[..count]);
    if !get.retain_async_event {
        controller.events.page_read(get.log_page);
    }
    Ok(Reply::Data(0))
}

fn page(controller: &Controller, get: &GetLogPage, view: &View<'_>) -> Result<Vec<u8>, Status> {
    let unknown = Status::INVALID_LOG_PAGE.with_dnr();
    let discovery = controller.is_discovery();
    Ok(match get.log_page {
        LogPageId::SUPPORTED => supported(discovery).to_bytes().to_vec(),
        LogPageId::ERROR => {
            let entries = controller.shared.errors();
            let mut page = Vec::with_capacity(crate::limits::ERROR_LOG_ENTRIES * 64);
            for entry in entries {
                page.extend_from_slice(&entry.to_bytes());
            }
            page.resize(crate::limits::ERROR_LOG_ENTRIES * 64, 0);
            page
        }
        _ if discovery => return Err(unknown),
        LogPageId::SMART => {
            // [NVMe Base 2.0 §5.16.1.3]: the page belongs to the controller, not to a namespace.
            if !matches!(get.nsid, 0 | NSID_BROADCAST) {
                return Err(Status::INVALID_FIELD.with_dnr());
            }
            smart(controller).to_bytes().to_vec()
        }
        LogPageId::FIRMWARE_SLOT => {
            let mut log = FirmwareSlotLog {
                active: 1,
                ..FirmwareSlotLog::default()
            };
            log.revisions[0] = text::ascii_field(env!("CARGO_PKG_VERSION"));
            log.to_bytes().to_vec()
        }
        LogPageId::CHANGED_NAMESPACES => ChangedNamespaces::of(controller.events.changed())
            .to_bytes()
            .to_vec(),
        LogPageId::ANA => ana(controller, get.specific_field & ANA_GROUPS_ONLY != 0),
        LogPageId::RESERVATION => controller.events.reservation_log().to_bytes().to_vec(),
        LogPageId::EFFECTS => table::effects(view.limits).to_bytes().to_vec(),
        LogPageId::FEATURE_EFFECTS => supported_features(controller).to_bytes().to_vec(),
        _ => return Err(unknown),
    })
}

fn supported(discovery: bool) -> SupportedLogPages {
    let mut log = SupportedLogPages::default();
    let pages: &[LogPageId] = if discovery {
        &[LogPageId::SUPPORTED, LogPageId::ERROR, LogPageId::DISCOVERY]
    } else {
        &[
            LogPageId::SUPPORTED,
            LogPageId::ERROR,
            LogPageId::SMART,
            LogPageId::FIRMWARE_SLOT,
            LogPageId::CHANGED_NAMESPACES,
            LogPageId::EFFECTS,
            LogPageId::ANA,
            LogPageId::FEATURE_EFFECTS,
            LogPageId::RESERVATION,
        ]
    };
    for page in pages {
        log.pages[usize::from(page.0)] = SupportedLogPages::SUPPORTED;
    }
    log
}

fn supported_features(controller: &Controller) -> SupportedFeatures {
    let mut log = SupportedFeatures::default();
    for (id, entry) in (0..=u8::MAX).zip(&mut log.features) {
        let scope = match FeatureId(id) {
            FeatureId::ERROR_RECOVERY
            | FeatureId::RESERVATION_NOTIFICATION_MASK
            | FeatureId::RESERVATION_PERSISTENCE => SupportedFeatures::OF_NAMESPACE,
            _ => SupportedFeatures::OF_CONTROLLER,
        };
        if features::has(controller, FeatureId(id)) {
            *entry = SupportedFeatures::SUPPORTED | scope;
        }
    }
    log
}

/// Returns the ANA log page: the groups of the namespaces that the host may access, by identifier.
fn ana(controller: &Controller, groups_only: bool) -> Vec<u8> {
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for namespace in controller.namespaces() {
        let Namespace { options, .. } = &*namespace;
        let nsids = groups.entry(options.ana_group).or_default();
        if !groups_only {
            nsids.push(options.nsid);
        }
    }
    let count = groups.values().map(Vec::len).sum();
    let mut page = vec![0; ana_log_bytes(groups.len(), count)];
    let Some(subsystem) = &controller.shared.subsystem else {
        return page;
    };
    let changing = subsystem.lock();
    let header = AnaLogHeader {
        change_count: changing.ana.changes,
        groups: u16::try_from(groups.len()).expect("a group has a namespace"),
    };
    page[..AnaLogHeader::SIZE].copy_from_slice(&header.to_bytes());
    let mut at = AnaLogHeader::SIZE;
    for (group, nsids) in groups {
        let (state, changes) = changing.ana.get(group);
        let encoded = encode_ana_group(group, changes, state, nsids.into_iter(), &mut page[at..]);
        at += encoded.expect("the page has room for each group");
    }
    page
}

/// Returns SMART / Health: real counters, and a fixed temperature because the field is mandatory.
fn smart(controller: &Controller) -> SmartLog {
    let mut total = NamespaceStats::default();
    for namespace in controller.namespaces() {
        total.add(&namespace.total());
    }
    let units = |bytes: u64| u128::from(bytes.div_ceil(512 * 1000));
    SmartLog {
        temperature_kelvin: 298,
        available_spare: 100,
        available_spare_threshold: 10,
        data_units_read: units(total.read_bytes),
        data_units_written: units(total.written_bytes),
        host_reads: u128::from(total.reads),
        host_writes: u128::from(total.writes),
        error_entries: u128::from(controller.shared.error_count()),
        ..SmartLog::default()
    }
}

//! Identify. `[NVMe Base 2.0 §5.17]`

use crate::command::table;
use crate::controller::reply::{Reply, View};
use crate::controller::state::{ABORTS_MAX, Controller};
use crate::limits::{
    ANA_GROUPS_MAX, ANA_TRANSITION_SECONDS, ASYNC_EVENT_REQUESTS_MAX, COMPARE_AND_WRITE_BLOCKS,
    ERROR_LOG_ENTRIES, KEEP_ALIVE_GRANULARITY_100_MS, NAMESPACES_MAX, RETRY_DELAY_100_MS,
};
use crate::namespace::Namespace;
use std::sync::Arc;
use wire::fabrics::property::Version;
use wire::limits::{IDENTIFY_BYTES, NSID_BROADCAST, NSID_MAX};
use wire::nvme::identify::{CSI_NVM, Cns};
use wire::nvme::identify_controller::NvmIdentifyController;
use wire::nvme::identify_lists::{
    COMMAND_SET_NVM, NamespaceId, encode_command_sets, encode_controller_list,
    encode_namespace_descriptors, encode_namespace_list,
};
use wire::nvme::identify_namespace::{
    IndependentIdentifyNamespace, LbaFormat, NvmIdentifyNamespace,
};
use wire::nvme::reservation::{RESCAP_PERSISTENT, RESCAP_TYPES};
use wire::nvme::vendor::Extensions;
use wire::nvme::{Identify, IdentifyController, IdentifyNamespace, Nqn, Status};
use wire::text;

/// Executes Identify. Every data structure has 4096 bytes.
pub(crate) fn execute(
    controller: &Controller,
    identify: &Identify,
    data: &mut [u8],
    view: &View<'_>,
) -> Result<Reply, Status> {
    let out: &mut [u8; IDENTIFY_BYTES] = data
        .try_into()
        .map_err(|_| Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
    let invalid = Status::INVALID_FIELD.with_dnr();
    let nvm = identify.command_set == CSI_NVM;
    match identify.cns {
        Cns::CONTROLLER => identify_controller(controller, view).encode(out),
        _ if controller.is_discovery() => return Err(invalid),
        Cns::NAMESPACE => match namespace(controller, identify.nsid)? {
            Some(namespace) => identify_namespace(&namespace, view).encode(out),
            None => out.fill(0),
        },
        Cns::ACTIVE_NAMESPACES | Cns::ALLOCATED_NAMESPACES => {
            active_list(controller, identify.nsid, out)?;
        }
        Cns::NAMESPACE_DESCRIPTORS => descriptors(controller, identify.nsid, out)?,
        Cns::COMMAND_SET_NAMESPACE if nvm => match namespace(controller, identify.nsid)? {
            Some(_) => NvmIdentifyNamespace::default().encode(out),
            None => out.fill(0),
        },
        Cns::COMMAND_SET_CONTROLLER if nvm => nvm_controller(view).encode(out),
        // Other command sets are accepted but have no data. [NVMe Base 2.0 §5.17.2.7]
        Cns::COMMAND_SET_CONTROLLER => out.fill(0),
        Cns::COMMAND_SET_ACTIVE_NAMESPACES if nvm => active_list(controller, identify.nsid, out)?,
        Cns::INDEPENDENT_NAMESPACE => match namespace(controller, identify.nsid)? {
            Some(namespace) => independent(&namespace, view).encode(out),
            None => return Err(Status::INVALID_NAMESPACE.with_dnr()),
        },
        Cns::ALLOCATED_NAMESPACE => match namespace(controller, identify.nsid)? {
            Some(namespace) => identify_namespace(&namespace, view).encode(out),
            None => out.fill(0),
        },
        Cns::CONTROLLERS => controllers(controller, identify.controller_id, view, out),
        Cns::COMMAND_SETS => {
            encode_command_sets([COMMAND_SET_NVM], out);
        }
        _ => return Err(invalid),
    }
    Ok(Reply::Data(0))
}

/// Returns a namespace by its identifier; `None` for a valid identifier without a namespace for
/// this host.
fn namespace(controller: &Controller, nsid: u32) -> Result<Option<Arc<Namespace>>, Status> {
    if nsid == 0 || nsid > NAMESPACES_MAX {
        return Err(Status::INVALID_NAMESPACE.with_dnr());
    }
    Ok(controller.namespace(nsid))
}

fn active_list(
    controller: &Controller,
    after: u32,
    out: &mut [u8; IDENTIFY_BYTES],
) -> Result<(), Status> {
    if after > NSID_MAX {
        return Err(Status::INVALID_NAMESPACE.with_dnr());
    }
    let nsids = controller.namespaces().map(|namespace| namespace.nsid());
    encode_namespace_list(nsids.filter(|&nsid| nsid > after), out);
    Ok(())
}

fn descriptors(
    controller: &Controller,
    nsid: u32,
    out: &mut [u8; IDENTIFY_BYTES],
) -> Result<(), Status> {
    let found = if nsid == NSID_BROADCAST {
        None
    } else {
        namespace(controller, nsid)?
    };
    let found = found.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    let options = &found.options;
    let eui64 = (options.eui64 != [0; 8]).then_some(NamespaceId::Eui64(options.eui64));
    let nguid = options.announced_nguid();
    let nguid = (nguid != [0; 16]).then_some(NamespaceId::Nguid(nguid));
    let uuid = (options.uuid != [0; 16]).then_some(NamespaceId::Uuid(options.uuid));
    let ids = eui64
        .into_iter()
        .chain(nguid)
        .chain(uuid)
        .chain([NamespaceId::CommandSet(CSI_NVM)]);
    encode_namespace_descriptors(ids, out);
    Ok(())
}

fn controllers(
    controller: &Controller,
    from: u16,
    view: &View<'_>,
    out: &mut [u8; IDENTIFY_BYTES],
) {
    let same = |other: &Option<Arc<crate::subsystem::Subsystem>>| match (
        other,
        &controller.shared.subsystem,
    ) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    let all = view.shared.controllers();
    let ids = all
        .iter()
        .filter(|other| other.id >= from && same(&other.subsystem));
    encode_controller_list(ids.map(|other| other.id), out);
}

/// Returns MDTS, WZSL and VSL: the largest transfer as a power of two of 4 KiB.
fn transfer_shift(view: &View<'_>) -> u8 {
    let pages = view.limits.transfer_bytes / 4096;
    u8::try_from(pages.trailing_zeros()).expect("a 32-bit number has few bits")
}

/// Returns VWC. The value must hold for the lifetime of the controller.
fn volatile_write_cache(controller: &Controller) -> u8 {
    let cached = controller.has_volatile_cache();
    // A host that reads it again may continue to use the first value.
    controller
        .uncached
        .set(controller.uncached.get() || !cached);
    let present = if cached {
        IdentifyController::VWC_PRESENT
    } else {
        0
    };
    present | IdentifyController::VWC_FLUSH_ALL
}

fn identify_controller(controller: &Controller, view: &View<'_>) -> IdentifyController {
    let discovery = controller.is_discovery();
    let subsystem = controller.shared.subsystem.as_ref();
    let serial = subsystem.map_or("SWDISCOVERY", |subsystem| &subsystem.serial);
    let model = subsystem.map_or("Switchyard discovery", |subsystem| &subsystem.model);
    let name = subsystem.map_or_else(
        || wire::nvme::DISCOVERY_NQN.to_owned(),
        |subsystem| subsystem.nqn.clone(),
    );
    let common = IdentifyController {
        serial_number: text::ascii_field(serial),
        model_number: text::ascii_field(model),
        firmware_revision: text::ascii_field(env!("CARGO_PKG_VERSION")),
        cmic: IdentifyController::CMIC_MULTI_PORT | IdentifyController::CMIC_MULTI_CONTROLLER,
        mdts: transfer_shift(view),
        cntlid: controller.shared.id,
        ver: Version::V2_0.0,
        ctratt: IdentifyController::CTRATT_HOST_ID_128,
        acl: ABORTS_MAX - 1,
        aerl: u8::try_from(ASYNC_EVENT_REQUESTS_MAX - 1).expect("a handful"),
        lpa: IdentifyController::LPA_EXTENDED_DATA,
        elpe: u8::try_from(ERROR_LOG_ENTRIES - 1).expect("at most 256"),
        kas: KEEP_ALIVE_GRANULARITY_100_MS,
        maxcmd: view.limits.queue_entries,
        sgls: IdentifyController::SGLS_SUPPORTED
            | IdentifyController::SGLS_OFFSET
            | IdentifyController::SGLS_TRANSPORT,
        subnqn: Nqn::lenient(&name).map_or([0; 256], |name| name.to_field()),
        ioccsz: 4,
        iorcsz: 1,
        msdbd: 1,
        ..IdentifyController::default()
    };
    if discovery {
        return IdentifyController {
            cntrltype: IdentifyController::CNTRLTYPE_DISCOVERY,
            oaes: IdentifyController::OAES_DISCOVERY_LOG_CHANGE,
            ..common
        };
    }
    with_ana(IdentifyController {
        cntrltype: IdentifyController::CNTRLTYPE_IO,
        crdt: [RETRY_DELAY_100_MS, 0, 0],
        lpa: common.lpa | IdentifyController::LPA_EFFECTS,
        oaes: IdentifyController::OAES_NAMESPACE_ATTRIBUTE,
        frmw: IdentifyController::FRMW_SLOT1_READ_ONLY | IdentifyController::FRMW_ONE_SLOT,
        // [NVMe Base 2.0 §5.17.2.1]: the usual thresholds; the target cannot overheat.
        wctemp: 343,
        cctemp: 353,
        sqes: IdentifyController::SQES_64,
        cqes: IdentifyController::CQES_16,
        nn: NAMESPACES_MAX,
        mnan: NAMESPACES_MAX,
        oncs: table::oncs()
            | IdentifyController::ONCS_SAVE_AND_SELECT
            | IdentifyController::ONCS_TIMESTAMP,
        fuses: IdentifyController::FUSES_COMPARE_AND_WRITE,
        acwu: u16::try_from(COMPARE_AND_WRITE_BLOCKS - 1).expect("few blocks"),
        vwc: volatile_write_cache(controller),
        ioccsz: (64 + view.limits.in_capsule_bytes) / 16,
        ofcs: IdentifyController::OFCS_DISCONNECT,
        vendor: extensions(controller, view).encode(),
        ..common
    })
}

/// Adds Asymmetric Namespace Access.
fn with_ana(identify: IdentifyController) -> IdentifyController {
    IdentifyController {
        cmic: identify.cmic | IdentifyController::CMIC_ANA,
        oaes: identify.oaes | IdentifyController::OAES_ANA_CHANGE,
        anatt: ANA_TRANSITION_SECONDS,
        anacap: IdentifyController::ANACAP_OPTIMIZED
            | IdentifyController::ANACAP_NON_OPTIMIZED
            | IdentifyController::ANACAP_INACCESSIBLE
            | IdentifyController::ANACAP_PERSISTENT_LOSS
            | IdentifyController::ANACAP_CHANGE
            | IdentifyController::ANACAP_STABLE_GROUPS,
        anagrpmax: ANA_GROUPS_MAX,
        nanagrpid: ANA_GROUPS_MAX,
        ..identify
    }
}

/// Returns the vendor extensions that the target announces.
fn extensions(controller: &Controller, view: &View<'_>) -> Extensions {
    let subsystem = controller.shared.subsystem.as_ref();
    let life = subsystem.and_then(|subsystem| subsystem.lock().cache_life);
    Extensions {
        end_controller: view.limits.end_controller,
        queue_classes: true,
        extents: view.limits.extent_terms(),
        cache_life: life.unwrap_or(view.limits.cache_life),
        incarnation: view.limits.incarnation,
    }
}

fn nvm_controller(view: &View<'_>) -> NvmIdentifyController {
    NvmIdentifyController {
        vsl: transfer_shift(view),
        wzsl: transfer_shift(view),
        // The three limits are reported together or not at all. 256 ranges, the maximum of a
        // command, do not fit.
        dmrl: u8::MAX,
        dmrsl: view.limits.deallocate_blocks,
        dmsl: view.limits.deallocate_blocks.into(),
        ..NvmIdentifyController::default()
    }
}

/// Returns RESCAP.
fn reservation_capabilities(view: &View<'_>) -> u8 {
    match view.shared.reservation_keeper.get() {
        Some(_) => RESCAP_TYPES | RESCAP_PERSISTENT,
        None => RESCAP_TYPES,
    }
}

fn identify_namespace(namespace: &Namespace, view: &View<'_>) -> IdentifyNamespace {
    let device = &namespace.options.device;
    let (geometry, capabilities) = (device.geometry(), device.capabilities());
    let shift = u8::try_from(geometry.block_bytes.trailing_zeros()).expect("at most 31");
    let mut identify = IdentifyNamespace {
        nsze: geometry.blocks,
        ncap: geometry.blocks,
        nuse: geometry.blocks,
        nmic: IdentifyNamespace::NMIC_SHARED,
        rescap: reservation_capabilities(view),
        dlfeat: IdentifyNamespace::DLFEAT_READS_ZERO
            | IdentifyNamespace::DLFEAT_WRITE_ZEROES_DEALLOCATES,
        nguid: namespace.options.announced_nguid(),
        eui64: namespace.options.eui64,
        nvmcap: u128::from(geometry.bytes()),
        anagrpid: namespace.options.ana_group,
        ..IdentifyNamespace::default()
    };
    identify.lba_formats[0] = LbaFormat::of_shift(shift);
    if capabilities.thin {
        identify.nsfeat |= IdentifyNamespace::NSFEAT_THIN;
    }
    if capabilities.preferred_bytes > geometry.block_bytes {
        let blocks = capabilities.preferred_bytes / geometry.block_bytes - 1;
        let blocks = u16::try_from(blocks).unwrap_or(u16::MAX);
        identify.nsfeat |= IdentifyNamespace::NSFEAT_OPTIMAL_IO;
        (identify.npwg, identify.npwa) = (blocks, blocks);
        (identify.npdg, identify.npda) = (blocks, blocks);
        identify.nows = blocks;
    }
    if namespace.read_only() {
        identify.nsattr |= IdentifyNamespace::NSATTR_WRITE_PROTECTED;
    }
    identify
}

fn independent(namespace: &Namespace, view: &View<'_>) -> IndependentIdentifyNamespace {
    let nsattr = if namespace.read_only() {
        IdentifyNamespace::NSATTR_WRITE_PROTECTED
    } else {
        0
    };
    IndependentIdentifyNamespace {
        nmic: IdentifyNamespace::NMIC_SHARED,
        rescap: reservation_capabilities(view),
        nsattr,
        anagrpid: namespace.options.ana_group,
        nstat: IndependentIdentifyNamespace::NSTAT_READY,
        ..IndependentIdentifyNamespace::default()
    }
}

//! Properties of a controller: CAP, VS, CC, CSTS and CRTO. `[NVMe Base 2.0 §3.1.3]`

use crate::controller::async_events::AsyncEvents;
use crate::controller::reply::{Reply, View};
use crate::controller::state::{Controller, Features};
use std::sync::Arc;
use wire::fabrics::property::{Capabilities, Configuration, Version};
use wire::fabrics::{Property, PropertyGet, PropertySet};
use wire::nvme::Status;
use wire::nvme::feature::HostBehavior;

/// CAP.TO in units of 500 ms. A controller is ready at once, but hosts take 0 for no time at all.
const READY_TIMEOUT_500_MS: u8 = 15;

/// Returns CAP.
fn capabilities(controller: &Controller, view: &View<'_>) -> Capabilities {
    let command_sets = if controller.is_discovery() {
        Capabilities::CSS_NVM
    } else {
        Capabilities::CSS_NVM | Capabilities::CSS_COMMAND_SETS
    };
    Capabilities {
        max_queue_entries: view.limits.queue_entries - 1,
        contiguous_queues: true,
        arbitration: 0,
        timeout: READY_TIMEOUT_500_MS,
        subsystem_reset: false,
        command_sets,
        page_shift_min: 0,
        page_shift_max: 0,
        ready_modes: Capabilities::CRMS_WITH_MEDIA,
    }
}

/// Handles Property Get. Returns the value.
pub(crate) fn get(
    controller: &Controller,
    get: &PropertyGet,
    view: &View<'_>,
) -> Result<u64, Status> {
    let size = get
        .property
        .size()
        .ok_or(Status::INVALID_FIELD.with_dnr())?;
    if size != get.size {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let registers = &controller.registers;
    Ok(match get.property {
        Property::CAP => capabilities(controller, view).to_bits(),
        Property::VS => u64::from(Version::V2_0.0),
        Property::CC => u64::from(registers.configuration.0),
        Property::CSTS => u64::from(registers.status.0),
        Property::CRTO => u64::from(READY_TIMEOUT_500_MS),
        _ => return Err(Status::INVALID_FIELD.with_dnr()),
    })
}

/// Handles Property Set, which can set only CC. `[NVMe Base 2.0 §3.1.3.5]`
pub(crate) fn set(
    controller: &mut Controller,
    set: &PropertySet,
    view: &View<'_>,
) -> Result<Reply, Status> {
    if set.property != Property::CC || set.property.size() != Some(set.size) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let value = u32::try_from(set.value & 0xffff_ffff).expect("masked to 32 bits");
    let wanted = Configuration(value);
    let starts = wanted.enabled() && !controller.registers.configuration.enabled();
    // Checked before any change: a shutdown that began with a refused value would never end.
    if starts && !is_supported(wanted, controller.is_discovery()) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    // CSTS.RDY is 1 until the previous reset is complete.
    if starts && controller.registers.is_ready() {
        return Err(Status::COMMAND_SEQUENCE_ERROR);
    }
    let changes = controller.registers.configure(wanted);
    if changes.shutdown {
        controller.shared.queues().ready = false;
    }
    if changes.enabled {
        controller.keep_alive.restart(view.now);
        controller.shared.queues().ready = true;
    }
    if changes.disabled {
        // A reset: settings return to their defaults. [NVMe Base 2.0 §3.7.2]
        controller.features = Features::default();
        controller.error_recovery.clear();
        controller.events = AsyncEvents::default();
        let mut queues = controller.shared.queues();
        queues.ready = false;
        queues.granted = view.limits.io_queues;
        queues.created = false;
        // The settings of Host Extensions and Host Behavior Support, like the features above.
        queues.classes = false;
        queues.behavior = HostBehavior::default();
    }
    if !changes.disabled && !changes.shutdown {
        return Ok(Reply::Bare(0));
    }
    controller.settle();
    let shared = Arc::clone(&controller.shared);
    Ok(if changes.flushes {
        Reply::Flush(shared)
    } else {
        Reply::EndQueues(shared)
    })
}

/// Returns true if CC requests a supported configuration: 64-byte commands, 16-byte completions, 4
/// KiB pages, round robin. Discovery hosts leave the entry sizes zero.
fn is_supported(wanted: Configuration, discovery: bool) -> bool {
    let sizes = (wanted.sq_entry_shift(), wanted.cq_entry_shift());
    let entries = sizes == (6, 4) || (discovery && sizes == (0, 0));
    entries
        && wanted.page_shift() == 0
        && wanted.arbitration() == 0
        // 110b is valid because CAP.CSS has bit 6.
        && (wanted.command_set() == 0b000 || (wanted.command_set() == 0b110 && !discovery))
}

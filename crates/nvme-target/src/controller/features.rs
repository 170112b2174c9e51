//! Get Features and Set Features. `[NVMe Base 2.0 §5.15, §5.27]`

use crate::controller::reply::{Reply, View};
use crate::controller::state::{Controller, Features};
use crate::reservation::state::Request;
use base::Time;
use qos::access::Need;
use wire::limits::NSID_BROADCAST;
use wire::nvme::feature::{
    AsyncEventConfiguration, CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE_SPECIFIC, FeatureId,
    FeatureSelect, HOST_IDENTIFIER_EXTENDED, HostBehavior, NumberOfQueues,
    VOLATILE_WRITE_CACHE_ENABLE,
};
use wire::nvme::vendor::HostExtensions;
use wire::nvme::{GetFeatures, SetFeatures, Status};

const INVALID: Status = Status::INVALID_FIELD.with_dnr();

/// Status if there is no room for a feature's data, or too little data.
const SHORT: Status = Status::DATA_SGL_LENGTH_INVALID.with_dnr();

/// Fields of a temperature threshold's dword: the sensor, and whether over or under.
const THRESHOLD_SENSOR_SHIFT: u32 = 16;
const THRESHOLD_TYPE_SHIFT: u32 = 20;

/// Returns the index of the threshold in a dword; only the composite temperature has thresholds.
fn threshold(dword: u32) -> Result<usize, Status> {
    let sensor = (dword >> THRESHOLD_SENSOR_SHIFT) & 0xf;
    let kind = (dword >> THRESHOLD_TYPE_SHIFT) & 0b11;
    match (sensor, kind) {
        (0 | 0xf, 0) => Ok(0),
        (0 | 0xf, 1) => Ok(1),
        _ => Err(INVALID),
    }
}

/// Returns true for a feature that discovery controllers have.
fn for_discovery(feature: FeatureId) -> bool {
    matches!(
        feature,
        FeatureId::ASYNC_EVENT_CONFIGURATION
            | FeatureId::KEEP_ALIVE_TIMER
            | FeatureId::HOST_IDENTIFIER
    )
}

/// Handles Get Features.
pub(crate) fn get(
    controller: &Controller,
    get: &GetFeatures,
    data: &mut [u8],
    view: &View<'_>,
) -> Result<Reply, Status> {
    if controller.is_discovery() && !for_discovery(get.feature) {
        return Err(INVALID);
    }
    let features = match get.select {
        FeatureSelect::CURRENT => controller.features,
        FeatureSelect::DEFAULT | FeatureSelect::SAVED => Features::default(),
        FeatureSelect::CAPABILITIES => return capabilities(controller, get.feature),
        _ => return Err(INVALID),
    };
    let current = get.select == FeatureSelect::CURRENT;
    let value = match get.feature {
        FeatureId::ARBITRATION => features.arbitration,
        FeatureId::POWER_MANAGEMENT => features.power_management,
        FeatureId::TEMPERATURE_THRESHOLD => features.temperature[threshold(get.dword11)?],
        FeatureId::ERROR_RECOVERY => error_recovery(controller, get.nsid, current)?,
        FeatureId::VOLATILE_WRITE_CACHE if controller.has_volatile_cache() => {
            features.volatile_write_cache
        }
        FeatureId::NUMBER_OF_QUEUES => {
            let granted = if current {
                controller.shared.queues().granted
            } else {
                view.limits.io_queues
            };
            NumberOfQueues::of(granted).to_dword()
        }
        FeatureId::WRITE_ATOMICITY => features.write_atomicity,
        FeatureId::ASYNC_EVENT_CONFIGURATION if current => controller.events.configuration.0,
        FeatureId::ASYNC_EVENT_CONFIGURATION => 0,
        FeatureId::KEEP_ALIVE_TIMER if current => controller.keep_alive.timeout_ms,
        FeatureId::KEEP_ALIVE_TIMER => 0,
        FeatureId::HOST_EXTENSIONS => {
            let queue_classes = current && controller.shared.queues().classes;
            HostExtensions { queue_classes }.to_dword()
        }
        id if is_of_reservations(id) => of_reservations(controller, id, get.nsid, current)?,
        FeatureId::TIMESTAMP => return timestamp(&features, data, view.now),
        FeatureId::HOST_BEHAVIOR => {
            let behavior = if current {
                controller.shared.queues().behavior
            } else {
                HostBehavior::default()
            };
            let place = data.first_chunk_mut().ok_or(SHORT)?;
            behavior.encode(place);
            return Ok(Reply::Data(0));
        }
        FeatureId::HOST_IDENTIFIER => {
            // [NVMe Base 2.0 §5.27.1.25]: over fabrics, the identifier always has 128 bits.
            if get.dword11 & HOST_IDENTIFIER_EXTENDED == 0 {
                return Err(INVALID);
            }
            let place = data.get_mut(..16).ok_or(SHORT)?;
            place.copy_from_slice(&controller.shared.host_id);
            return Ok(Reply::Data(0));
        }
        _ => return Err(INVALID),
    };
    Ok(Reply::Bare(u64::from(value)))
}

/// Returns true if an I/O controller has a feature.
pub(crate) fn has(controller: &Controller, feature: FeatureId) -> bool {
    capabilities(controller, feature).is_ok()
}

/// Returns the capabilities of a feature (SEL = 011b). No feature is saveable.
fn capabilities(controller: &Controller, feature: FeatureId) -> Result<Reply, Status> {
    let changeable = match feature {
        FeatureId::HOST_IDENTIFIER => 0,
        FeatureId::ERROR_RECOVERY
        | FeatureId::RESERVATION_NOTIFICATION_MASK
        | FeatureId::RESERVATION_PERSISTENCE => {
            CAPABILITY_CHANGEABLE | CAPABILITY_NAMESPACE_SPECIFIC
        }
        FeatureId::VOLATILE_WRITE_CACHE if !controller.has_volatile_cache() => return Err(INVALID),
        FeatureId::ARBITRATION
        | FeatureId::POWER_MANAGEMENT
        | FeatureId::TEMPERATURE_THRESHOLD
        | FeatureId::VOLATILE_WRITE_CACHE
        | FeatureId::NUMBER_OF_QUEUES
        | FeatureId::WRITE_ATOMICITY
        | FeatureId::ASYNC_EVENT_CONFIGURATION
        | FeatureId::KEEP_ALIVE_TIMER
        | FeatureId::HOST_BEHAVIOR
        | FeatureId::HOST_EXTENSIONS
        | FeatureId::TIMESTAMP => CAPABILITY_CHANGEABLE,
        _ => return Err(INVALID),
    };
    Ok(Reply::Bare(u64::from(changeable)))
}

/// Returns Timestamp: 48 bits of milliseconds, then their origin. `[NVMe Base 2.0 §5.27.1.11]`
fn timestamp(features: &Features, data: &mut [u8], now: Time) -> Result<Reply, Status> {
    let place = data.get_mut(..8).ok_or(SHORT)?;
    // Bits 3:1 of byte 6: 1 if a host has set it.
    let millis = features.timestamp_at(now);
    let (millis, origin) = millis.map_or((0, 0), |millis| (millis, 0b0010));
    place[..6].copy_from_slice(&millis.to_le_bytes()[..6]);
    place[6] = origin;
    Ok(Reply::Data(0))
}

/// Handles Set Features.
pub(crate) fn set(
    controller: &mut Controller,
    set: &SetFeatures,
    data: &[u8],
    view: &View<'_>,
) -> Result<Reply, Status> {
    if set.save {
        return Err(Status::FEATURE_NOT_SAVEABLE.with_dnr());
    }
    if controller.is_discovery() && !for_discovery(set.feature) {
        return Err(INVALID);
    }
    let value = set.dword11();
    let cached = controller.has_volatile_cache();
    let features = &mut controller.features;
    match set.feature {
        FeatureId::ARBITRATION => features.arbitration = value,
        // The only power state is 0.
        FeatureId::POWER_MANAGEMENT if value & 0x1f == 0 => features.power_management = value,
        FeatureId::TEMPERATURE_THRESHOLD => {
            features.temperature[threshold(value)?] = value & 0xffff;
        }
        FeatureId::ERROR_RECOVERY if value >> 16 == 0 => set_recovery(controller, set.nsid, value)?,
        id if is_of_reservations(id) => return set_of_reservations(controller, set),
        FeatureId::VOLATILE_WRITE_CACHE if cached => {
            // The cache belongs to the device, so it cannot be disabled for one host. [NVMe Base
            // 2.0 §5.27.1.4]
            if value & VOLATILE_WRITE_CACHE_ENABLE == 0 {
                return Err(Status::FEATURE_NOT_CHANGEABLE.with_dnr());
            }
        }
        FeatureId::NUMBER_OF_QUEUES => return number_of_queues(controller, value, view),
        FeatureId::WRITE_ATOMICITY => features.write_atomicity = value & 1,
        FeatureId::ASYNC_EVENT_CONFIGURATION => {
            controller.events.configuration = AsyncEventConfiguration(value);
        }
        FeatureId::KEEP_ALIVE_TIMER => {
            let least = if value == 0 {
                0
            } else {
                view.limits.keep_alive_min_ms
            };
            controller.keep_alive.set(value.max(least), view.now);
        }
        FeatureId::TIMESTAMP => {
            let bytes = data.first_chunk::<8>().ok_or(SHORT)?;
            let millis = u64::from_le_bytes(*bytes) & 0xffff_ffff_ffff;
            features.timestamp = Some((millis, view.now));
        }
        FeatureId::HOST_EXTENSIONS => {
            let extensions = HostExtensions::from_dword(value);
            controller.shared.queues().classes = extensions.queue_classes;
        }
        FeatureId::HOST_BEHAVIOR => {
            let behavior = HostBehavior::parse_prefix(data).ok_or(SHORT)?;
            let HostBehavior {
                acre,
                etdas,
                lbafee,
            } = behavior;
            if acre.max(etdas).max(lbafee) > 1 {
                return Err(INVALID);
            }
            controller.shared.queues().behavior = behavior;
        }
        // [NVMe Base 2.0 §5.27.1.25]: Connect has set it; it cannot be changed afterwards.
        FeatureId::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
        _ => return Err(INVALID),
    }
    Ok(Reply::Bare(0))
}

/// Returns an NSID if it identifies a namespace that the host sees.
fn known(controller: &Controller, nsid: u32) -> Result<u32, Status> {
    let found = controller.namespace(nsid);
    found.map_or(Err(Status::INVALID_NAMESPACE.with_dnr()), |_| Ok(nsid))
}

/// Returns true for Reservation Notification Mask and Reservation Persistence. `[NVMe Base 2.0
/// §5.27.1.26, §5.27.1.27]`
const fn is_of_reservations(feature: FeatureId) -> bool {
    matches!(
        feature,
        FeatureId::RESERVATION_NOTIFICATION_MASK | FeatureId::RESERVATION_PERSISTENCE
    )
}

/// Returns the value of one of these of a namespace: the current one, or the default.
fn of_reservations(
    controller: &Controller,
    feature: FeatureId,
    nsid: u32,
    current: bool,
) -> Result<u32, Status> {
    let unknown = Status::INVALID_NAMESPACE.with_dnr();
    let namespace = controller.namespace(nsid).ok_or(unknown)?;
    Ok(if !current {
        0
    } else if feature == FeatureId::RESERVATION_PERSISTENCE {
        u32::from(namespace.reservations().persists())
    } else {
        let masks = &controller.events.reservation_masks;
        masks.get(&nsid).copied().unwrap_or_default()
    })
}

/// Sets one of these of one namespace, or of all. Persistence concerns every block, so the host
/// must be allowed to write all of them.
fn set_of_reservations(controller: &mut Controller, set: &SetFeatures) -> Result<Reply, Status> {
    let (nsid, value) = (set.nsid, set.dword11());
    let persistence = set.feature == FeatureId::RESERVATION_PERSISTENCE;
    for nsid in named(controller, nsid)? {
        let namespace = controller.namespace(nsid);
        if !persistence {
            // Bits 3:1 are those of the types.
            let masks = &mut controller.events.reservation_masks;
            masks.insert(nsid, value & 0b1110);
        } else if let (Some(rights), Some(namespace)) = (&controller.rights, namespace) {
            let blocks = namespace.options.device.geometry().blocks;
            rights.check(nsid, Need::Write, 0, blocks)?;
        }
    }
    if !persistence {
        return Ok(Reply::Bare(0));
    }
    let request = Request::Persist(value & 1 != 0);
    Ok(Reply::Reserve { nsid, request })
}

/// Returns the value of Error Recovery of a namespace: the current one, or the default.
fn error_recovery(controller: &Controller, nsid: u32, current: bool) -> Result<u32, Status> {
    let nsid = known(controller, nsid)?;
    let value = controller.error_recovery.get(&nsid).filter(|_| current);
    Ok(value.copied().unwrap_or_default())
}

/// Returns the namespaces of a Set Features: one, or all that the host sees.
fn named(controller: &Controller, nsid: u32) -> Result<Vec<u32>, Status> {
    Ok(match nsid {
        NSID_BROADCAST => controller.namespaces().map(|n| n.nsid()).collect(),
        one => vec![known(controller, one)?],
    })
}

/// Sets Error Recovery of one namespace, or of all. `[NVMe NVM 1.0 §4.1.3]`
fn set_recovery(controller: &mut Controller, nsid: u32, value: u32) -> Result<(), Status> {
    for nsid in named(controller, nsid)? {
        if value == 0 {
            controller.error_recovery.remove(&nsid);
        } else {
            controller.error_recovery.insert(nsid, value);
        }
    }
    Ok(())
}

/// Handles Number of Queues: grants the target's number of I/O queues, only before the first I/O
/// queue since the controller's reset, even if none is connected any more. `[NVMe Base 2.0
/// §5.27.1.5]`
fn number_of_queues(controller: &Controller, value: u32, view: &View<'_>) -> Result<Reply, Status> {
    let asked = NumberOfQueues::from_dword(value);
    if asked.submission == u16::MAX || asked.completion == u16::MAX {
        return Err(INVALID);
    }
    let mut queues = controller.shared.queues();
    if queues.created {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    }
    let pairs = u16::try_from(asked.pairs()).unwrap_or(u16::MAX);
    queues.granted = pairs.min(view.limits.io_queues);
    Ok(Reply::Bare(u64::from(
        NumberOfQueues::of(queues.granted).to_dword(),
    )))
}

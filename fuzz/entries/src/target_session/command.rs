//! Commands from a fuzzer's bytes: of every kind, most of them with fields that fit.

use crate::mangle::{byte, dword, pick, seldom, word};
use arbitrary::Unstructured;
use wire::fabrics::{Property, PropertySize};
use wire::nvme::{
    AdminOpcode, Command, ExtentEntry, ExtentsCommand, FabricsType, IoOpcode, SglDescriptor,
};

/// Bytes of a block of the namespaces that a session sees, by namespace identifier less one.
pub(super) const BLOCK_BYTES: [u32; 3] = [512, 4096, 4096];

/// Bytes of each of these namespaces.
pub(super) const NAMESPACE_BYTES: u32 = 1 << 20;

/// Largest data of one command.
const DATA_BYTES_MAX: u32 = 1 << 20;

const ADMIN: [AdminOpcode; 8] = [
    AdminOpcode::IDENTIFY,
    AdminOpcode::GET_LOG_PAGE,
    AdminOpcode::GET_FEATURES,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::ABORT,
    AdminOpcode::ASYNC_EVENT_REQUEST,
    AdminOpcode::KEEP_ALIVE,
    AdminOpcode::END_CONTROLLER,
];

/// Most of them twice: inputs from before there were extents mean nearly the same.
const IO: [IoOpcode; 16] = [
    IoOpcode::READ,
    IoOpcode::WRITE,
    IoOpcode::WRITE_ZEROES,
    IoOpcode::COMPARE,
    IoOpcode::VERIFY,
    IoOpcode::DATASET_MANAGEMENT,
    IoOpcode::FLUSH,
    IoOpcode::FLUSH,
    IoOpcode::READ,
    IoOpcode::WRITE,
    IoOpcode::WRITE_ZEROES,
    IoOpcode::COMPARE,
    IoOpcode::READ_EXTENTS,
    IoOpcode::DATASET_MANAGEMENT,
    IoOpcode::WRITE_EXTENTS,
    IoOpcode::FLUSH,
];

const PROPERTIES: [Property; 6] = [
    Property::CAP,
    Property::VS,
    Property::CC,
    Property::CSTS,
    Property::NSSR,
    Property(0x40),
];

/// A command, how many bytes of data belong to it, and which way they go.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) command: Command,
    pub(super) length: u32,
    pub(super) to_target: bool,
    /// Table of extents at the end of the capsule's data.
    pub(super) table: Vec<u8>,
}

impl Draft {
    /// A command without a table.
    const fn new(command: Command, length: u32, to_target: bool) -> Self {
        Self {
            command,
            length,
            to_target,
            table: Vec::new(),
        }
    }
}

/// A command for an admin or an I/O queue; the identifier is not set.
pub(super) fn command(u: &mut Unstructured<'_>, is_io: bool) -> Draft {
    let mut draft = match (seldom(u, 8), is_io) {
        (false, true) => io(u),
        (false, false) if seldom(u, 4) => property(u),
        (false, false) => admin(u),
        (true, _) => anything(u),
    };
    if seldom(u, 8) {
        let dword_index = 10 + usize::from(byte(u)) % 6;
        draft.command.set_cdw(dword_index, dword(u));
    }
    draft
}

fn io(u: &mut Unstructured<'_>) -> Draft {
    let opcode = pick(u, &IO);
    let mut command = Command::new(opcode.0, 0);
    let nsid = nsid(u);
    command.set_nsid(nsid);
    let block_bytes = BLOCK_BYTES[(nsid as usize).wrapping_sub(1) % BLOCK_BYTES.len()];
    if opcode == IoOpcode::DATASET_MANAGEMENT {
        let ranges = u32::from(byte(u)) % 4;
        command.set_cdw(10, ranges);
        command.set_cdw(11, u32::from(byte(u)));
        return Draft::new(command, (ranges + 1) * 16, true);
    }
    let capacity = u64::from(NAMESPACE_BYTES / block_bytes);
    if matches!(opcode, IoOpcode::READ_EXTENTS | IoOpcode::WRITE_EXTENTS) {
        return extents(u, opcode, nsid, (capacity, block_bytes));
    }
    let slba = match byte(u) {
        at @ 0..240 => u64::from(at) % capacity,
        240..250 => capacity - 1,
        _ => u64::from(dword(u)) << (byte(u) % 33),
    };
    let blocks = match byte(u) {
        count @ 0..200 => u32::from(count) % 9,
        count @ 200..250 => u32::from(count),
        _ => u32::from(word(u)),
    };
    command.set_cdw64(10, slba);
    let control = if seldom(u, 4) { word(u) } else { 0 };
    command.set_cdw(12, blocks | u32::from(control) << 16);
    let carries = matches!(opcode, IoOpcode::READ | IoOpcode::WRITE | IoOpcode::COMPARE);
    let length = if carries {
        ((blocks + 1) * block_bytes).min(DATA_BYTES_MAX)
    } else {
        0
    };
    Draft::new(command, length, opcode != IoOpcode::READ)
}

/// A command over a few extents, which mostly ascend; a write brings its data or has it asked for.
fn extents(
    u: &mut Unstructured<'_>,
    opcode: IoOpcode,
    nsid: u32,
    (capacity, block_bytes): (u64, u32),
) -> Draft {
    let count = 1 + u16::from(byte(u)) % 4;
    let mut next = u64::from(byte(u)) % capacity;
    let (mut table, mut sum) = (Vec::new(), 0);
    for _ in 0..count {
        let slba = match byte(u) {
            gap @ 0..240 => next + u64::from(gap % 4),
            _ => u64::from(dword(u)) << (byte(u) % 33),
        };
        let blocks = 1 + u32::from(byte(u)) % 3;
        table.extend(ExtentEntry { slba, blocks }.to_bytes());
        next = slba.wrapping_add(blocks.into());
        sum += blocks;
    }
    let command = ExtentsCommand {
        nsid,
        extents: count,
        blocks: sum,
        fua: seldom(u, 4),
        // Not drawn, so that kept inputs mean what they did.
        outcomes: sum % 2 == 0,
    };
    let brought = opcode == IoOpcode::WRITE_EXTENTS && seldom(u, 2);
    let brought = if brought { sum * block_bytes } else { 0 };
    Draft {
        command: command.encode(opcode, 0),
        length: brought + u32::from(count) * 16,
        to_target: true,
        table,
    }
}

fn nsid(u: &mut Unstructured<'_>) -> u32 {
    match byte(u) {
        nsid @ 0..250 => 1 + u32::from(nsid) % 3,
        250..253 => u32::MAX,
        253 => 0,
        _ => dword(u),
    }
}

fn admin(u: &mut Unstructured<'_>) -> Draft {
    let opcode = pick(u, &ADMIN);
    let mut command = Command::new(opcode.0, 0);
    let mut length = 0;
    match opcode {
        AdminOpcode::IDENTIFY => {
            command.set_nsid(nsid(u));
            command.set_cdw(10, u32::from(byte(u)));
            command.set_cdw(11, dword(u) & 0xff00_00ff);
            length = 4096;
        }
        AdminOpcode::GET_LOG_PAGE => {
            let dwords = u32::from(word(u)) % 2048;
            command.set_nsid(u32::MAX);
            let page = pick(u, &[1, 2, 3, 4, 5, 0x70, 0xc0, 0xc1]);
            command.set_cdw(10, page | u32::from(byte(u)) << 8 | dwords << 16);
            command.set_cdw(12, u32::from(byte(u)) * 4);
            length = (dwords + 1) * 4;
        }
        AdminOpcode::GET_FEATURES | AdminOpcode::SET_FEATURES => {
            command.set_nsid(nsid(u));
            let selector = if seldom(u, 4) {
                dword(u) & 0x8000_0700
            } else {
                0
            };
            command.set_cdw(10, u32::from(byte(u) % 0x88) | selector);
            command.set_cdw(11, dword(u));
            // Only the host behavior and the host identifier have data.
            length = pick(u, &[0, 0, 8, 16, 512, 4096]);
        }
        AdminOpcode::ABORT => {
            command.set_cdw(10, u32::from(byte(u) % 4) | u32::from(byte(u) % 32) << 16);
        }
        AdminOpcode::END_CONTROLLER => command.set_cdw(10, u32::from(byte(u) % 8)),
        _ => {}
    }
    Draft::new(command, length, opcode == AdminOpcode::SET_FEATURES)
}

fn property(u: &mut Unstructured<'_>) -> Draft {
    let property = pick(u, &PROPERTIES);
    let sets = seldom(u, 2);
    let kind = if sets {
        FabricsType::PROPERTY_SET
    } else {
        FabricsType::PROPERTY_GET
    };
    let mut command = Command::new_fabrics(kind, 0);
    let size = property.size().unwrap_or(PropertySize::Four);
    command.set_cdw(10, u32::from(size == PropertySize::Eight));
    command.set_cdw(11, property.0);
    if sets {
        // A start, a stop, both kinds of shutdown, or anything.
        let start = 1 | 6 << 16 | 4 << 20;
        let value = pick(
            u,
            &[start, 0, start | 1 << 14, start | 2 << 14, 0x4e56_4d65],
        );
        let value = if seldom(u, 4) { dword(u) } else { value };
        command.set_cdw(12, value);
    }
    Draft::new(command, 0, false)
}

fn anything(u: &mut Unstructured<'_>) -> Draft {
    let mut bytes = [0; 64];
    let _ = u.fill_buffer(&mut bytes);
    let to_target = bytes[0] & 1 != 0;
    Draft::new(Command::from_bytes(bytes), u32::from(word(u)), to_target)
}

/// Places the data: mostly in the capsule, if it fits there, or else with the host. Returns how
/// many bytes go with the capsule.
pub(super) fn place(u: &mut Unstructured<'_>, draft: &mut Draft, capsule_bytes: u32) -> u32 {
    let length = draft.length;
    if seldom(u, 16) {
        let mut descriptor = [0; SglDescriptor::SIZE];
        let _ = u.fill_buffer(&mut descriptor);
        draft.command.set_sgl(SglDescriptor::from_bytes(descriptor));
        return u32::from(word(u)) % (capsule_bytes + 1);
    }
    let length = match byte(u) {
        0..240 => length,
        extra @ 240..248 => length + u32::from(extra - 239) * 4,
        _ => u32::from(word(u)),
    };
    if length == 0 {
        return 0;
    }
    let inside = draft.to_target && length <= capsule_bytes && !seldom(u, 4);
    draft.command.set_sgl(if inside {
        SglDescriptor::in_capsule(0, length)
    } else {
        SglDescriptor::transport(length)
    });
    if inside { length } else { 0 }
}

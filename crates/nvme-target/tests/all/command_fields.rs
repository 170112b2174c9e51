//! Every field of every command that a target receives, with every kind of invalid value: the
//! specified status, and whether a retry may help (DNR). Reserved fields are ignored. The
//! parameters of Connect are in `refusals.rs`.

use crate::common;
use crate::common::{BLOCK, Bed, Client, NQN, fabrics, io, io_on};
use wire::fabrics::ConnectData;
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::fabrics::{Property, PropertyGet, PropertySet, PropertySize};
use wire::nvme::{AdminOpcode, Command, FabricsType, IoOpcode, SglDescriptor, Status};
use wire::tcp::PduHeader;
use wire::tcp::c2h_data::C2hProgress;

const FIELD: Status = Status::INVALID_FIELD;
const LENGTH: Status = Status::DATA_SGL_LENGTH_INVALID;
const NAMESPACE: Status = Status::INVALID_NAMESPACE;
const RANGE: Status = Status::LBA_OUT_OF_RANGE;
const OPCODE: Status = Status::INVALID_OPCODE;
const SEQUENCE: Status = Status::COMMAND_SEQUENCE_ERROR;
const SUCCESS: Status = Status::SUCCESS;

/// Size of the namespace in blocks.
const CAPACITY: u64 = 4096;

/// Block size in bytes.
const ONE: u32 = BLOCK as u32;

/// Commands on a block range, and whether they transfer data.
const RUNS: [(IoOpcode, bool); 5] = [
    (IoOpcode::READ, true),
    (IoOpcode::WRITE, true),
    (IoOpcode::COMPARE, true),
    (IoOpcode::VERIFY, false),
    (IoOpcode::WRITE_ZEROES, false),
];

/// Sends an unmodified command with its data in the capsule, and returns its status.
fn status(client: &mut Client, command: &Command, data: &[u8]) -> Status {
    let mut command = *command;
    let cid = client.cid();
    command.set_cid(cid);
    client.capsule(&command, data);
    loop {
        match client.receive().header {
            PduHeader::CapsuleResp(response) => {
                assert_eq!(response.completion.cid, cid);
                return response.completion.status;
            }
            PduHeader::C2hData(data) if data.progress == C2hProgress::LastAndSuccess => {
                return SUCCESS;
            }
            PduHeader::C2hData(_) => {}
            other => panic!("{command:?}: {other:?}"),
        }
    }
}

/// Checks the status of a command. An invalid command stays invalid, so DNR must be set.
#[track_caller]
fn expect(client: &mut Client, what: &str, command: &Command, data: &[u8], expected: Status) {
    let status = status(client, command, data);
    let dnr = status.dnr();
    assert!(
        status.is(expected),
        "{what}: {status}, not {expected}: {command:?}"
    );
    assert_eq!(dnr, !expected.is_success(), "{what}: {command:?}");
}

fn with(command: Command, change: impl FnOnce(&mut Command)) -> Command {
    let mut command = command;
    change(&mut command);
    command
}

/// Returns the command with a transport descriptor: its data stays at the host.
fn transport(command: Command, bytes: u32) -> Command {
    with(command, |command| {
        command.set_sgl(SglDescriptor::transport(bytes))
    })
}

/// Returns a command on a block range and its data, which is in the capsule if the host sends it.
fn run(opcode: IoOpcode, nsid: u32, slba: u64, blocks: u32) -> (Command, Vec<u8>) {
    let command = io_on(nsid, opcode, slba, blocks);
    let bytes = blocks * ONE;
    match opcode {
        IoOpcode::READ => (transport(command, bytes), Vec::new()),
        IoOpcode::WRITE | IoOpcode::COMPARE => {
            let inside = SglDescriptor::in_capsule(0, bytes);
            let command = with(command, |command| command.set_sgl(inside));
            (command, vec![0; bytes as usize])
        }
        _ => (command, Vec::new()),
    }
}

/// Returns the command with a modified descriptor.
fn with_sgl(command: Command, change: impl FnOnce(&mut SglDescriptor)) -> Command {
    let mut sgl = command.sgl();
    change(&mut sgl);
    with(command, |command| command.set_sgl(sgl))
}

#[test]
fn every_field_of_a_command_on_blocks_is_checked() {
    let bed = Bed::new();
    let (_admin, mut queue) = bed.host();
    for (opcode, _) in RUNS {
        let mut case = |what: &str, nsid, slba, blocks, expected, edit: &dyn Fn(&mut Command)| {
            let (command, data) = run(opcode, nsid, slba, blocks);
            let what = format!("{opcode}: {what}");
            expect(&mut queue, &what, &with(command, edit), &data, expected);
        };
        case("nothing", 1, 0, 1, SUCCESS, &|_| {});
        for fuse in 1..=3 {
            // A half of a Compare and Write: see `fused`.
            let half = [(1, IoOpcode::COMPARE), (2, IoOpcode::WRITE)].contains(&(fuse, opcode));
            if !half {
                case("FUSE", 1, 0, 1, FIELD, &|command| command.set_fuse(fuse));
            }
        }
        for nsid in [0, 2, 1024, 1025, u32::MAX - 1, u32::MAX] {
            case("NSID", nsid, 0, 1, NAMESPACE, &|_| {});
        }
        for slba in [CAPACITY, CAPACITY + 1, 1 << 32, u64::MAX - 1, u64::MAX] {
            case("SLBA", 1, slba, 1, RANGE, &|_| {});
        }
        case("NLB beyond the end", 1, CAPACITY - 1, 2, RANGE, &|_| {});
        case("the last block", 1, CAPACITY - 1, 1, SUCCESS, &|_| {});
        for dword in [2, 3, 4, 5, 14, 15] {
            let reserved = |command: &mut Command| command.set_cdw(dword, u32::MAX);
            case("reserved, metadata, tags", 1, 0, 1, SUCCESS, &reserved);
        }
        let both = |command: &mut Command| command.set_cdw(12, 0xc000_0000);
        case("LR and FUA", 1, 0, 1, SUCCESS, &both);
    }
    // More than MDTS; refused before any data is sent. VSL and WZSL are not maximums, only the fast
    // sizes.
    for (opcode, moves) in RUNS {
        let command = transport(io(opcode, 0, 257), 257 * ONE);
        let expected = if moves { FIELD } else { SUCCESS };
        expect(&mut queue, "NLB", &command, &[], expected);
    }
    let verify = io(IoOpcode::VERIFY, 0, 1);
    let command = with(verify, |command| command.set_cdw(12, 1 << 29));
    expect(&mut queue, "PRACT of Verify", &command, &[], FIELD);
}

#[test]
fn every_field_of_a_data_pointer_is_checked() {
    let bed = Bed::new();
    let (_admin, mut queue) = bed.host();
    for (opcode, moves) in RUNS {
        let (command, data) = run(opcode, 1, 0, 1);
        for psdt in [0, 2, 3] {
            let command = with(command, |command| command.set_psdt(psdt));
            let expected = if moves { FIELD } else { SUCCESS };
            expect(&mut queue, "PSDT", &command, &data, expected);
        }
        if !moves {
            continue;
        }
        let legal = [SglDescriptor::IN_CAPSULE, SglDescriptor::TRANSPORT];
        for identifier in (0..=255).filter(|identifier| !legal.contains(identifier)) {
            let command = with_sgl(command, |sgl| sgl.identifier = identifier);
            let expected = Status::SGL_DESCRIPTOR_TYPE_INVALID;
            expect(&mut queue, "SGL identifier", &command, &data, expected);
        }
        for length in [0, 1, ONE - 1, ONE + 1, 2 * ONE, u32::MAX] {
            let command = with_sgl(command, |sgl| sgl.length = length);
            expect(&mut queue, "SGL length", &command, &data, LENGTH);
        }
    }
    // The data is in the capsule, but not at the descriptor's location.
    let (write, data) = run(IoOpcode::WRITE, 1, 0, 1);
    for (address, expected) in [
        (1, LENGTH),
        (u64::from(ONE), LENGTH),
        (u64::from(ONE) + 1, Status::SGL_OFFSET_INVALID),
        (u64::MAX, Status::SGL_OFFSET_INVALID),
    ] {
        let command = with_sgl(write, |sgl| sgl.address = address);
        expect(&mut queue, "SGL address", &command, &data, expected);
    }
    let inside = SglDescriptor::in_capsule(0, ONE);
    let read = with_sgl(io(IoOpcode::READ, 0, 1), |sgl| *sgl = inside);
    expect(&mut queue, "a read into the capsule", &read, &[], FIELD);
}

#[test]
fn every_other_field_of_an_io_command_is_checked() {
    let bed = Bed::new();
    let (_admin, mut queue) = bed.host();
    let known = [
        0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x7f, 0x81, 0x83,
    ];
    for opcode in (0..=255).filter(|opcode| !known.contains(opcode)) {
        let command = with(Command::new(opcode, 0), |command| command.set_nsid(1));
        expect(&mut queue, "opcode", &command, &[], OPCODE);
    }
    for opcode in [IoOpcode::FLUSH] {
        let command = with(Command::new(opcode.0, 0), |command| command.set_nsid(1));
        expect(&mut queue, "nothing", &command, &[], SUCCESS);
        for fuse in 1..=3 {
            let command = with(command, |command| command.set_fuse(fuse));
            expect(&mut queue, "FUSE", &command, &[], FIELD);
        }
        for nsid in [0, 2, 1025, u32::MAX - 1] {
            let command = with(command, |command| command.set_nsid(nsid));
            expect(&mut queue, "NSID", &command, &[], NAMESPACE);
        }
        for dword in 2..=5 {
            let command = with(command, |command| command.set_cdw(dword, u32::MAX));
            expect(&mut queue, "reserved", &command, &[], SUCCESS);
        }
    }
    let all = with(Command::new(IoOpcode::FLUSH.0, 0), |command| {
        command.set_nsid(u32::MAX)
    });
    expect(&mut queue, "a flush of all namespaces", &all, &[], SUCCESS);
    ranges(&mut queue);
}

/// Dataset Management: NR, the ranges, their limits.
fn ranges(queue: &mut Client) {
    let range = |slba: u64, blocks: u32| {
        let mut range = [0; 16];
        range[4..8].copy_from_slice(&blocks.to_le_bytes());
        range[8..].copy_from_slice(&slba.to_le_bytes());
        range.to_vec()
    };
    let dataset = |nr: u32, length: u32| {
        with(Command::new(IoOpcode::DATASET_MANAGEMENT.0, 0), |command| {
            command.set_nsid(1);
            command.set_cdw(10, nr);
            command.set_cdw(11, 4);
            command.set_sgl(SglDescriptor::in_capsule(0, length));
        })
    };
    expect(queue, "a range", &dataset(0, 16), &range(0, 8), SUCCESS);
    expect(
        queue,
        "a range of none",
        &dataset(0, 16),
        &range(0, 0),
        SUCCESS,
    );
    expect(
        queue,
        "NR beyond the data",
        &dataset(1, 16),
        &range(0, 8),
        LENGTH,
    );
    for (slba, blocks) in [
        (CAPACITY, 1),
        (CAPACITY - 1, 2),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
    ] {
        expect(
            queue,
            "a range beyond the end",
            &dataset(0, 16),
            &range(slba, blocks),
            RANGE,
        );
    }
    for nsid in [0, 2, 1025, u32::MAX] {
        let command = with(dataset(0, 16), |command| command.set_nsid(nsid));
        expect(queue, "NSID", &command, &range(0, 8), NAMESPACE);
    }
    let fused = with(dataset(0, 16), |command| command.set_fuse(1));
    expect(queue, "FUSE", &fused, &range(0, 8), FIELD);
    let reserved = with(dataset(0xffff_ff00, 16), |command| {
        command.set_cdw(11, u32::MAX)
    });
    expect(queue, "reserved bits", &reserved, &range(0, 8), SUCCESS);
}

#[test]
fn every_field_of_an_admin_command_is_checked() {
    let bed = Bed::new();
    let mut admin = bed.admin();
    let known = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f, 0xc0];
    for opcode in (0..=255).filter(|opcode| !known.contains(opcode)) {
        expect(&mut admin, "opcode", &Command::new(opcode, 0), &[], OPCODE);
    }
    for opcode in known.into_iter().filter(|&opcode| opcode != 0x7f) {
        let command = with(Command::new(opcode, 0), |command| command.set_fuse(1));
        expect(&mut admin, "FUSE", &command, &[], FIELD);
    }
    let identify = transport(Command::new(AdminOpcode::IDENTIFY.0, 0), 4096);
    let identify = with(identify, |command| command.set_cdw(10, 1));
    for psdt in [0, 2, 3] {
        let command = with(identify, |command| command.set_psdt(psdt));
        expect(&mut admin, "PSDT", &command, &[], FIELD);
    }
    for identifier in (0..=255).filter(|&i| i != SglDescriptor::TRANSPORT) {
        let command = with(identify, |command| {
            let sgl = SglDescriptor {
                identifier,
                ..command.sgl()
            };
            command.set_sgl(sgl);
        });
        let expected = match identifier {
            // Data to the host is never in a capsule, and the length does not fit an empty one.
            SglDescriptor::IN_CAPSULE => continue,
            _ => Status::SGL_DESCRIPTOR_TYPE_INVALID,
        };
        expect(&mut admin, "SGL identifier", &command, &[], expected);
    }
    for length in [4, 4095, 4097, 8192] {
        let command = transport(identify, length);
        expect(&mut admin, "SGL length", &command, &[], LENGTH);
    }
    let beyond = transport(identify, (1 << 20) + 4);
    expect(&mut admin, "more than MDTS", &beyond, &[], FIELD);
    expect(&mut admin, "an event", &abort(0, 99), &[], SUCCESS);
    for _ in 0..4 {
        let event = Command::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, 0);
        let cid = admin.cid();
        let event = with(event, |command| command.set_cid(cid));
        admin.capsule(&event, &[]);
    }
    let event = Command::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, 0);
    let limit = Status::ASYNC_EVENT_LIMIT_EXCEEDED;
    let got = status(&mut admin, &event, &[]);
    assert!(got.is(limit), "a fifth request for events: {got}");
}

fn abort(queue: u32, cid: u32) -> Command {
    with(Command::new(AdminOpcode::ABORT.0, 0), |command| {
        command.set_cdw(10, queue | cid << 16);
    })
}

/// `[NVMe Base 2.0 §5.17]`
#[test]
fn every_field_of_identify_is_checked() {
    let bed = Bed::new();
    let mut admin = bed.admin();
    let identify = |cns: u32, nsid: u32, csi: u32| {
        let command = transport(Command::new(AdminOpcode::IDENTIFY.0, 0), 4096);
        with(command, |command| {
            command.set_nsid(nsid);
            command.set_cdw(10, cns);
            command.set_cdw(11, csi << 24);
        })
    };
    let known = [
        0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x10, 0x11, 0x13, 0x1c,
    ];
    for cns in (0..=255).filter(|cns| !known.contains(cns)) {
        expect(&mut admin, "CNS", &identify(cns, 1, 0), &[], FIELD);
    }
    for cns in [0x00, 0x03, 0x05, 0x08, 0x11] {
        for nsid in [0, 1025, u32::MAX - 1, u32::MAX] {
            expect(&mut admin, "NSID", &identify(cns, nsid, 0), &[], NAMESPACE);
        }
        expect(&mut admin, "NSID", &identify(cns, 1, 0), &[], SUCCESS);
    }
    for cns in [0x02, 0x07, 0x10] {
        for nsid in [u32::MAX - 1, u32::MAX] {
            expect(
                &mut admin,
                "NSID of a list",
                &identify(cns, nsid, 0),
                &[],
                NAMESPACE,
            );
        }
    }
    for csi in [1, 2, 255] {
        expect(&mut admin, "CSI", &identify(0x05, 1, csi), &[], FIELD);
        expect(&mut admin, "CSI", &identify(0x07, 0, csi), &[], FIELD);
    }
    for dword in [2, 3, 12, 13, 14, 15] {
        let command = with(identify(1, 0, 0), |command| {
            command.set_cdw(dword, u32::MAX)
        });
        expect(&mut admin, "reserved", &command, &[], SUCCESS);
    }
}

/// `[NVMe Base 2.0 §5.16]`
#[test]
fn every_field_of_get_log_page_is_checked() {
    let bed = Bed::new();
    let mut admin = bed.admin();
    let get = |page: u32, dwords: u32, length: u32| {
        let command = transport(Command::new(AdminOpcode::GET_LOG_PAGE.0, 0), length);
        with(command, |command| {
            command.set_nsid(u32::MAX);
            command.set_cdw(10, page | (dwords - 1) << 16);
        })
    };
    let known = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0c, 0x12, 0x80];
    for page in (0..=255).filter(|page| !known.contains(page)) {
        let unknown = Status::INVALID_LOG_PAGE;
        expect(&mut admin, "LID", &get(page, 1, 4), &[], unknown);
    }
    for (dwords, length) in [(1, 8), (2, 4), (2, 7), (0x1_0000, 4)] {
        expect(
            &mut admin,
            "NUMD and SGL",
            &get(2, dwords, length),
            &[],
            LENGTH,
        );
    }
    for offset in [1, 2, 3, 512 + 4, 1 << 31] {
        let command = with(get(2, 1, 4), |command| command.set_cdw(12, offset));
        expect(&mut admin, "LPO", &command, &[], FIELD);
    }
    let high = with(get(2, 1, 4), |command| command.set_cdw(13, 1));
    expect(&mut admin, "LPO", &high, &[], FIELD);
    let index = with(get(2, 1, 4), |command| command.set_cdw(14, 1 << 23));
    expect(&mut admin, "OT", &index, &[], FIELD);
    for nsid in [1, 2, u32::MAX - 1] {
        let command = with(get(2, 1, 4), |command| command.set_nsid(nsid));
        expect(&mut admin, "NSID of SMART", &command, &[], FIELD);
    }
}

/// `[NVMe Base 2.0 §5.15, §5.27]`
#[test]
fn every_field_of_features_is_checked() {
    let bed = Bed::new();
    let (mut admin, _queue) = bed.host();
    let feature = |opcode: AdminOpcode, id: u32, value: u32| {
        with(Command::new(opcode.0, 0), |command| {
            command.set_cdw(10, id);
            command.set_cdw(11, value);
        })
    };
    let get = |id, value| feature(AdminOpcode::GET_FEATURES, id, value);
    let set = |id, value| feature(AdminOpcode::SET_FEATURES, id, value);
    let known = [
        0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0a, 0x0b, 0x0e, 0x0f, 0x16, 0x81, 0x82, 0x83,
    ];
    let ours = 0xc0..=0xff;
    for id in (0..=255).filter(|id| !known.contains(id) && !ours.contains(id)) {
        expect(&mut admin, "FID", &get(id, 0), &[], FIELD);
        expect(&mut admin, "FID", &set(id, 0), &[], FIELD);
    }
    for id in [0x82, 0x83] {
        expect(&mut admin, "NSID", &get(id, 0), &[], NAMESPACE);
        expect(&mut admin, "NSID", &set(id, 0), &[], NAMESPACE);
    }
    for select in 4..=7 {
        expect(&mut admin, "SEL", &get(1 | select << 8, 0), &[], FIELD);
    }
    let saved = Status::FEATURE_NOT_SAVEABLE;
    expect(&mut admin, "SV", &set(1 | 1 << 31, 0), &[], saved);
    for value in [1, 31] {
        expect(&mut admin, "power state", &set(2, value), &[], FIELD);
    }
    for value in [1 << 16, 0xe << 16, 2 << 20, 3 << 20] {
        expect(&mut admin, "threshold", &set(4, value), &[], FIELD);
        expect(&mut admin, "threshold", &get(4, value), &[], FIELD);
    }
    expect(&mut admin, "DULBE", &set(5, 1 << 16), &[], FIELD);
    for value in [0xffff, 0xffff << 16, u32::MAX] {
        expect(&mut admin, "number of queues", &set(7, value), &[], FIELD);
    }
    expect(
        &mut admin,
        "number of queues, too late",
        &set(7, 0x3_0003),
        &[],
        SEQUENCE,
    );
    expect(
        &mut admin,
        "host identifier",
        &set(0x81, 1),
        &[0; 16],
        FIELD,
    );
    let identifier = transport(get(0x81, 0), 16);
    expect(&mut admin, "EXHID", &identifier, &[], FIELD);
    for length in [4, 8, 15] {
        let identifier = transport(get(0x81, 1), length);
        expect(&mut admin, "host identifier", &identifier, &[], LENGTH);
    }
    let time = with(set(0x0e, 0), |c| c.set_sgl(SglDescriptor::in_capsule(0, 7)));
    expect(&mut admin, "timestamp", &time, &[0; 7], LENGTH);
    host_behavior(&mut admin);
}

/// Host Behavior Support: its length, and each byte of its data. `[NVMe Base 2.0 §5.27.1.18]`
fn host_behavior(admin: &mut Client) {
    const ID: u32 = 0x16;
    let command = |opcode: AdminOpcode, dword10: u32| {
        with(Command::new(opcode.0, 0), |c| c.set_cdw(10, dword10))
    };
    let set = |data: &[u8]| {
        let inside = SglDescriptor::in_capsule(0, data.len() as u32);
        with(command(AdminOpcode::SET_FEATURES, ID), |c| {
            c.set_sgl(inside)
        })
    };
    let get = |bytes| transport(command(AdminOpcode::GET_FEATURES, ID), bytes);
    for bytes in [4, 256, 508, 511] {
        expect(admin, "length", &get(bytes), &[], LENGTH);
        let data = vec![0; bytes as usize];
        expect(admin, "length", &set(&data), &data, LENGTH);
    }
    let nothing = command(AdminOpcode::GET_FEATURES, ID);
    expect(admin, "no room for data", &nothing, &[], LENGTH);
    let nothing = command(AdminOpcode::SET_FEATURES, ID);
    expect(admin, "no data", &nothing, &[], LENGTH);
    let saved = command(AdminOpcode::SET_FEATURES, ID | 1 << 31);
    let saved = with(saved, |c| c.set_sgl(SglDescriptor::in_capsule(0, 512)));
    expect(admin, "SV", &saved, &[0; 512], Status::FEATURE_NOT_SAVEABLE);
    for (byte, what) in ["ACRE", "ETDAS", "LBAFEE"].into_iter().enumerate() {
        for value in 0..=255 {
            let mut data = [0; 512];
            data[byte] = value;
            let expected = if value > 1 { FIELD } else { SUCCESS };
            expect(admin, what, &set(&data), &data, expected);
        }
    }
    // A refused value changes nothing, and reserved values are not stored.
    let mut data = [0xff; 512];
    data[..3].copy_from_slice(&[1, 0, 1]);
    expect(admin, "reserved", &set(&data), &data, SUCCESS);
    let refused = [2; 512];
    expect(admin, "all of it", &set(&refused), &refused, FIELD);
    for bytes in [512, 4096] {
        let (completion, kept) = admin.fetch(get(bytes), bytes as usize);
        assert!(completion.status.is_success(), "{}", completion.status);
        assert_eq!(kept[..3], [1, 0, 1]);
        assert!(kept[3..].iter().all(|&byte| byte == 0));
    }
}

/// `[NVMe Base 2.0 §6]`
#[test]
fn every_field_of_a_fabrics_command_is_checked() {
    let bed = Bed::new();
    let (mut admin, mut queue) = bed.host();
    let known = [
        FabricsType::PROPERTY_SET,
        FabricsType::CONNECT,
        FabricsType::PROPERTY_GET,
        FabricsType::AUTHENTICATION_SEND,
        FabricsType::AUTHENTICATION_RECEIVE,
        FabricsType::DISCONNECT,
    ];
    for kind in (0..=255)
        .map(FabricsType)
        .filter(|kind| !known.contains(kind))
    {
        expect(&mut admin, "FCTYPE", &fabrics(kind), &[], OPCODE);
    }
    let get = |size, property| PropertyGet { size, property }.encode(0);
    for offset in [
        0x04,
        0x0c,
        0x10,
        0x18,
        0x20,
        0x24,
        0x28,
        0x30,
        0x1000,
        u32::MAX,
    ] {
        let command = get(PropertySize::Four, Property(offset));
        expect(&mut admin, "OFST", &command, &[], FIELD);
    }
    let (four, eight) = (PropertySize::Four, PropertySize::Eight);
    for (size, property) in [
        (four, Property::CAP),
        (eight, Property::VS),
        (eight, Property::CC),
        (eight, Property::CSTS),
    ] {
        expect(&mut admin, "size", &get(size, property), &[], FIELD);
    }
    for attribute in [2, 3, 7] {
        let command = get(four, Property::CC);
        let command = with(command, |command| command.set_cdw(10, attribute));
        expect(&mut admin, "ATTRIB", &command, &[], FIELD);
    }
    let read = get(four, Property::CSTS);
    expect(&mut queue, "a property of an I/O queue", &read, &[], FIELD);
    let set = |property, value| {
        let size = four;
        PropertySet {
            size,
            property,
            value,
        }
        .encode(0)
    };
    for property in [Property::CAP, Property::VS, Property::CSTS, Property(0x40)] {
        expect(&mut admin, "OFST", &set(property, 0), &[], FIELD);
    }
}

/// Disconnect, and a second Connect.
#[test]
fn every_field_of_a_command_of_a_queue_is_checked() {
    let bed = Bed::new();
    let (mut admin, mut queue) = bed.host();
    let leave = fabrics(FabricsType::DISCONNECT);
    let wrong = Status::INVALID_QUEUE_TYPE;
    expect(
        &mut admin,
        "Disconnect of an admin queue",
        &leave,
        &[],
        wrong,
    );
    let format = with(leave, |command| command.set_cdw(10, 1));
    let incompatible = Status::CONNECT_INCOMPATIBLE_FORMAT;
    expect(&mut queue, "RECFMT", &format, &[], incompatible);
    let again = Client::connect_command(0, 31, 0).encode(0);
    let again = with(again, |c| c.set_sgl(SglDescriptor::in_capsule(0, 1024)));
    let data = Client::connect_data(NQN, ConnectData::CNTLID_DYNAMIC).to_bytes();
    expect(&mut admin, "a second Connect", &again, &data, SEQUENCE);
    expect(&mut queue, "a second Connect", &again, &data, SEQUENCE);
}

/// CC; a refused value changes nothing. `[NVMe Base 2.0 §3.1.3.5]`
#[test]
fn every_field_of_the_configuration_is_checked() {
    let bed = Bed::new();
    let mut admin = Client::dial(bed.address(), common::Dialect::default());
    admin.connect_admin(NQN, 0);
    let good = Configuration::ENABLE.0;
    for (what, wrong) in [
        ("CSS", good | 1 << 4),
        ("CSS", good | 7 << 4),
        ("MPS", good | 1 << 7),
        ("MPS", good | 15 << 7),
        ("AMS", good | 1 << 11),
        ("AMS", good | 7 << 11),
        ("IOSQES", good & !(15 << 16)),
        ("IOSQES", good | 15 << 16),
        ("IOCQES", good & !(15 << 20)),
        ("IOCQES", good | 15 << 20),
        // Nor may it begin a shutdown, which would never end.
        ("MPS with SHN", good | 1 << 7 | 1 << 14),
        ("MPS with SHN", good | 1 << 7 | 2 << 14),
    ] {
        let completion = admin.configure(Configuration(wrong));
        assert!(completion.status.is(FIELD), "{what}: {}", completion.status);
        assert!(completion.status.dnr(), "{what}");
        assert_eq!(admin.property(Property::CC), 0, "{what}");
        assert_eq!(admin.property(Property::CSTS), 0, "{what}");
    }
    admin.enable();
    let ready = u64::from(ControllerStatus::READY.0);
    assert_eq!(admin.property(Property::CSTS), ready);
}

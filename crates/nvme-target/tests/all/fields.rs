//! For any values in the fields of a command, the target answers or closes the connection, and
//! continues to run.

use crate::common::{Bed, Client, Dialect, HOST, NQN};
use base::{Nanos, Prng};
use qos::cost::Price;
use qos::curve::Point;
use qos::{CostModel, Curve, Percentile, TokenPoolRules, TokenRate};
use std::io::{Read as _, Write as _};
use std::time::Duration;
use switchyard_target::{AccessGrant, DeviceQos, Limits, Tenancy, TenantGrant, TenantOptions};
use wire::nvme::{Command, SglDescriptor};

/// Boundary values of sums, shifts and ranges.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    7,
    511,
    4096,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

fn number(random: &mut Prng) -> u64 {
    let edge = EDGES[random.below(EDGES.len() as u64) as usize];
    match random.below(4) {
        0 => random.next_u64(),
        1 => edge.wrapping_add(random.below(3)).wrapping_sub(1),
        _ => edge,
    }
}

fn word(random: &mut Prng) -> u32 {
    let number = number(random);
    if random.chance(1, 2) {
        (number >> 32) as u32
    } else {
        number as u32
    }
}

/// Returns a command with random fields, and the length of its data.
fn hostile(random: &mut Prng, opcodes: &[u8], fill: &[u8]) -> (Command, usize) {
    let opcode = opcodes[random.below(opcodes.len() as u64) as usize];
    let mut command = Command::new(opcode, word(random) as u16);
    command.set_nsid(if random.chance(2, 3) { 1 } else { word(random) });
    for dword in 10..=15 {
        if random.chance(2, 3) {
            command.set_cdw(dword, word(random));
        }
    }
    let data = match random.below(3) {
        0 => 0,
        1 => random.below(fill.len() as u64 + 1) as usize,
        _ => fill.len(),
    };
    let descriptor = if data > 0 && random.chance(3, 4) {
        SglDescriptor::in_capsule(0, data as u32)
    } else if random.chance(3, 4) {
        SglDescriptor::transport(word(random))
    } else {
        SglDescriptor::in_capsule(number(random), word(random))
    };
    command.set_sgl(descriptor);
    (command, data)
}

/// No value sent by a client may cause an assertion to fail.
#[test]
fn a_client_field_can_never_reach_an_assertion() {
    const ADMIN: [u8; 12] = [
        0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f,
    ];
    const IO: [u8; 13] = [
        0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x11, 0x15, 0x7f, 0xff,
    ];
    let point = Point {
        rate: TokenRate(qos::limits::RATE_MAX),
        latency: [Nanos::from_micros(100); Percentile::COUNT],
    };
    let curve = Curve::new(vec![point]).expect("a curve");
    let model = CostModel::new(Price::READ, Price::READ);
    let qos = DeviceQos::new("flash", TokenPoolRules::default(), model, curve);
    let bed = Bed::scheduled(Limits::default(), 1, Some(qos));
    let limited = TenantOptions {
        name: "limited".to_owned(),
        hosts: vec![HOST.to_owned()],
        grants: Some(vec![TenantGrant {
            subsystem: None,
            grant: AccessGrant {
                namespace: Some(1),
                range: Some((0, 1024)),
                read: true,
                write: true,
            },
        }]),
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![limited],
        ..Tenancy::default()
    };
    bed.handle().set_tenants(&tenancy).expect("a good tenancy");
    let mut random = Prng::from_seed(2017);
    let mut fill = vec![0; 4096];
    for _ in 0..200 {
        random.fill(&mut fill);
        let mut admin = Client::dial(bed.address(), Dialect::default());
        let cntlid = admin.connect_admin(NQN, 0);
        admin.enable();
        let mut queue = Client::dial(bed.address(), Dialect::default());
        queue.connect_io(NQN, cntlid, 1, 31);
        for (client, opcodes) in [(&mut admin, &ADMIN[..]), (&mut queue, &IO)] {
            let mut bytes = Vec::new();
            for _ in 0..16 {
                let (command, data) = hostile(&mut random, opcodes, &fill);
                bytes.extend(client.session.capsule(&command, &fill[..data]));
            }
            // The target may have closed the connection before all of it was sent.
            let _ = client.stream.write_all(&bytes);
            let some = Some(Duration::from_millis(5));
            client.stream.set_read_timeout(some).expect("a socket");
            let _ = client.stream.read(&mut [0; 4096]);
        }
    }
    // The single core still runs and serves valid requests.
    let (_admin, mut queue) = bed.host();
    assert!(queue.read(0, 8).0.status.is_success());
    drop(queue);
    bed.target.stop().expect("no core panicked");
}

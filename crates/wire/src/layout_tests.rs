//! For every data structure: parsing and encoding returns the same bytes, except reserved ones.

use proptest::prelude::*;

use crate::fabrics::{ConnectData, DiscoveryLogEntry, DiscoveryLogHeader};
use crate::nvme::ana::{AnaGroupDescriptor, AnaLogHeader};
use crate::nvme::feature::HostBehavior;
use crate::nvme::identify_controller::{NvmIdentifyController, PowerState};
use crate::nvme::identify_namespace::{IndependentIdentifyNamespace, NvmIdentifyNamespace};
use crate::nvme::log_page::{
    ChangedNamespaces, EffectsLog, ErrorEntry, FirmwareSlotLog, SmartLog, SupportedFeatures,
    SupportedLogPages,
};
use crate::nvme::reservation::{
    AcquireData, RegisterData, RegisteredController, ReleaseData, ReservationLog, ReservationStatus,
};
use crate::nvme::{IdentifyController, IdentifyNamespace};

/// Random bytes from a seed, so that a case need not store a page.
fn page<const N: usize>(seed: u64) -> [u8; N] {
    let mut state = seed | 1;
    core::array::from_fn(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes()[7]
    })
}

macro_rules! comes_back {
    ($seed:expr, $($name:ident),+) => {$(
        let bytes = page::<{ $name::SIZE }>($seed);
        let value = $name::parse(&bytes);
        let covered = $name::covered();
        let expected: Vec<u8> =
            bytes.iter().zip(covered).map(|(byte, mask)| byte & mask).collect();
        prop_assert_eq!(&value.to_bytes()[..], &expected[..], "encode of parse of bytes");
        prop_assert_eq!($name::parse(&value.to_bytes()), value, "parse of encode of value");
        prop_assert_eq!($name::parse_prefix(&bytes), Some(value));
        prop_assert_eq!($name::parse_prefix(&bytes[1..]), None);
    )+};
}

proptest! {
    // Each takes a minute in an interpreter.
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

    #[test]
    fn structures_come_back(seed in any::<u64>()) {
        comes_back!(
            seed,
            NvmIdentifyController,
            IdentifyNamespace,
            NvmIdentifyNamespace,
            IndependentIdentifyNamespace,
            SupportedFeatures,
            SupportedLogPages,
            ErrorEntry,
            SmartLog,
            FirmwareSlotLog,
            ChangedNamespaces,
            EffectsLog,
            AnaLogHeader,
            AcquireData,
            RegisterData,
            RegisteredController,
            ReleaseData,
            ReservationLog,
            ReservationStatus,
            AnaGroupDescriptor,
            HostBehavior,
            ConnectData,
            DiscoveryLogHeader,
            DiscoveryLogEntry,
            PowerState
        );
    }

    /// A power state has reserved bytes of its own, so its part of the mask has finer granularity.
    #[test]
    fn identify_controller_comes_back(seed in any::<u64>()) {
        let bytes = page::<4096>(seed);
        let mut mask = IdentifyController::covered();
        for state in mask[2048..3072].chunks_exact_mut(PowerState::SIZE) {
            state.copy_from_slice(&PowerState::covered());
        }
        let expected: Vec<u8> = bytes.iter().zip(mask).map(|(byte, mask)| byte & mask).collect();
        let value = IdentifyController::parse(&bytes);
        prop_assert_eq!(&value.to_bytes()[..], &expected[..]);
        prop_assert_eq!(IdentifyController::parse(&value.to_bytes()), value);
    }
}

/// Offsets of the fields that a host's kernel reads first, by their byte in the specification.
#[test]
fn landmarks_are_where_the_specification_has_them() {
    let mut bytes = [0; 4096];
    bytes[77] = 8;
    bytes[78..80].copy_from_slice(&[0x34, 0x12]);
    bytes[128..134].copy_from_slice(&[1, 0, 2, 0, 0, 3]);
    bytes[320] = 10;
    bytes[76] = 0b1000;
    bytes[342..352].copy_from_slice(&[10, 0b1_1111, 2, 0, 0, 0, 1, 1, 0, 0]);
    bytes[514..516].copy_from_slice(&[0x00, 0x04]);
    bytes[516] = 7;
    bytes[525] = 7;
    bytes[538] = 0x30;
    bytes[768..771].copy_from_slice(b"nqn");
    bytes[1792..1796].copy_from_slice(&[0x04, 0x04, 0, 0]);
    bytes[1803] = 1;
    bytes[3072] = 0x53;
    let controller = IdentifyController::parse(&bytes);
    assert_eq!(controller.mdts, 8);
    assert_eq!(controller.max_transfer_bytes(4096), Some(1 << 20));
    assert_eq!(controller.cntlid, 0x1234);
    assert_eq!(controller.crdt, [1, 2, 0x300]);
    assert_eq!(controller.kas, 10);
    assert_eq!(controller.cmic, IdentifyController::CMIC_ANA);
    assert_eq!((controller.anatt, controller.anacap), (10, 0x1f));
    assert_eq!((controller.anagrpmax, controller.nanagrpid), (2, 0x101));
    assert_eq!(controller.maxcmd, 1024);
    assert_eq!(controller.nn, 7);
    assert_eq!(
        controller.vwc,
        IdentifyController::VWC_PRESENT | IdentifyController::VWC_FLUSH_ALL
    );
    assert_eq!(
        controller.sgls,
        IdentifyController::SGLS_OFFSET | IdentifyController::SGLS_TRANSPORT
    );
    assert_eq!(&controller.subnqn[..4], b"nqn\0");
    assert_eq!(controller.in_capsule_data_bytes(), 16_384);
    assert_eq!(controller.msdbd, 1);
    assert_eq!(controller.vendor[0], 0x53);

    let mut bytes = [0; 4096];
    bytes[0] = 0x80;
    bytes[26] = 1;
    bytes[92..96].copy_from_slice(&[2, 1, 0, 0]);
    bytes[104] = 0xaa;
    bytes[120] = 0xbb;
    bytes[132..136].copy_from_slice(&[0, 0, 12, 0]);
    let namespace = IdentifyNamespace::parse(&bytes);
    assert_eq!(namespace.nsze, 0x80);
    assert_eq!(namespace.block_bytes(), Some(4096));
    assert_eq!(namespace.anagrpid, 0x102);
    assert_eq!(namespace.nguid[0], 0xaa);
    assert_eq!(namespace.eui64[0], 0xbb);

    let mut bytes = [0; 512];
    bytes[..3].copy_from_slice(&[1, 2, 3]);
    let behavior = HostBehavior::parse(&bytes);
    assert_eq!((behavior.acre, behavior.etdas, behavior.lbafee), (1, 2, 3));
}

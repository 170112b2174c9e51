//! The table's rules, entry by entry, and arbitrary bytes.

use super::*;
use proptest::prelude::*;

const COMMAND: ExtentsCommand = ExtentsCommand {
    nsid: 7,
    extents: 2,
    blocks: 5,
    fua: true,
    outcomes: false,
};

fn table(entries: &[(u64, u32)]) -> Vec<u8> {
    let entries = entries
        .iter()
        .map(|&(slba, blocks)| ExtentEntry { slba, blocks });
    entries.flat_map(|entry| entry.to_bytes()).collect()
}

fn refused(command: ExtentsCommand, data: &[u8]) -> (u16, Status) {
    let error = command.parse_table(data).map(drop).expect_err("it is bad");
    (error.index, error.status)
}

#[test]
fn fields_are_where_the_layout_says() {
    let command = COMMAND.encode(IoOpcode::WRITE_EXTENTS, 9);
    assert_eq!(
        (command.opcode(), command.cid(), command.nsid()),
        (0x81, 9, 7)
    );
    assert_eq!(command.opcode() & 3, 1, "data goes to the controller");
    assert_eq!(IoOpcode::READ_EXTENTS.0 & 3, 3, "both ways");
    assert_eq!(command.cdw(10), 2);
    assert_eq!(command.cdw(11), 5);
    assert_eq!(command.cdw(12), 1 << 30);
    assert_eq!(ExtentsCommand::parse(&command), COMMAND);
    let bytes = table(&[(0x0123_4567_89AB_CDEF, 0x1122_3344)]);
    assert_eq!(
        bytes,
        [
            0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0
        ]
    );
}

#[test]
fn the_table_is_the_end_of_the_data() {
    let mut data = b"data of five blocks".to_vec();
    data.extend(table(&[(3, 2), (5, 3)]));
    let entries: Vec<_> = COMMAND.parse_table(&data).unwrap().collect();
    let expected = [(3, 2), (5, 3)].map(|(slba, blocks)| ExtentEntry { slba, blocks });
    assert_eq!(entries, expected, "neighbours do not overlap");
}

#[test]
fn the_first_bad_entry_is_named() {
    let invalid = Status::INVALID_FIELD.with_dnr();
    let short = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
    let range = Status::LBA_OUT_OF_RANGE.with_dnr();
    let good = table(&[(3, 2), (9, 3)]);
    assert_eq!(COMMAND.parse_table(&good).map(drop), Ok(()));
    assert_eq!(refused(COMMAND, &good[1..]), (0, short));
    assert_eq!(refused(COMMAND, &[]), (0, short));
    for (extents, blocks) in [(0, 5), (1025, 5), (u16::MAX, 5), (2, 4), (2, 6)] {
        let command = ExtentsCommand {
            extents,
            blocks,
            ..COMMAND
        };
        assert_eq!(refused(command, &good), (0, invalid));
    }
    for (entries, bad) in [
        ([(3, 2), (4, 3)], (1, invalid)),
        ([(3, 2), (3, 3)], (1, invalid)),
        ([(3, 2), (0, 3)], (1, invalid)),
        ([(3, 0), (4, 5)], (0, invalid)),
        ([(3, 5), (9, 0)], (1, invalid)),
        ([(3, 2), (u64::MAX, 3)], (1, range)),
        ([(u64::MAX - 1, 2), (3, 3)], (0, range)),
    ] {
        assert_eq!(refused(COMMAND, &table(&entries)), bad, "{entries:?}");
    }
    for byte in 12..16 {
        for entry in [0, 1] {
            let mut reserved = good.clone();
            reserved[usize::from(entry) * 16 + byte] = 1;
            assert_eq!(refused(COMMAND, &reserved), (entry, invalid));
        }
    }
}

#[test]
fn each_extent_that_was_done_has_a_bit() {
    assert_eq!(done_extents([true, false, true]), 5);
    assert_eq!(done_extents([true; 64]), u64::MAX);
    assert_eq!(done_extents([true; 65]), u64::MAX, "others have none");
    let command = ExtentsCommand {
        outcomes: true,
        ..COMMAND
    };
    let command = command.encode(IoOpcode::WRITE_EXTENTS, 9);
    assert_eq!(command.cdw(12), 3 << 29);
    assert!(ExtentsCommand::parse(&command).outcomes);
}

#[test]
fn terms_of_another_version_are_none() {
    let terms = ExtentTerms {
        extents: 64,
        in_flight: 128,
        bytes: 1 << 20,
        outcomes: true,
    };
    assert_eq!(ExtentTerms::parse(&terms.to_bytes()), Some(terms));
    // As announced by a controller without support of outcomes.
    let before = ExtentTerms {
        outcomes: false,
        ..terms
    };
    assert_eq!(before.to_bytes()[1], 0);
    assert_eq!(ExtentTerms::parse(&before.to_bytes()), Some(before));
    let mut bytes = terms.to_bytes();
    bytes[0] = 2;
    assert_eq!(ExtentTerms::parse(&bytes), None);
    for field in [2..4, 4..6, 8..12] {
        let mut bytes = terms.to_bytes();
        bytes[field].fill(0);
        assert_eq!(ExtentTerms::parse(&bytes), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

    #[test]
    fn ascending_extents_come_back(
        gaps in prop::collection::vec((0_u64..1000, 1_u32..1000), 1..=64),
        before in prop::collection::vec(any::<u8>(), 0..64),
        (fua, outcomes) in any::<(bool, bool)>(),
    ) {
        let mut next = 0;
        let entries: Vec<_> = gaps.iter().map(|&(gap, blocks)| {
            let slba = next + gap;
            next = slba + u64::from(blocks);
            ExtentEntry { slba, blocks }
        }).collect();
        let command = ExtentsCommand {
            nsid: 1,
            extents: u16::try_from(entries.len()).unwrap(),
            blocks: gaps.iter().map(|&(_, blocks)| blocks).sum(),
            fua,
            outcomes,
        };
        prop_assert_eq!(ExtentsCommand::parse(&command.encode(IoOpcode::READ_EXTENTS, 3)), command);
        let mut data = before;
        data.extend(entries.iter().flat_map(ExtentEntry::to_bytes));
        prop_assert!(command.parse_table(&data).unwrap().eq(entries));
    }

    /// Every accepted table ascends, does not overlap and has the total blocks of the command.
    #[test]
    fn what_is_accepted_keeps_the_rules(
        data in prop::collection::vec(0_u8..4, 0..80),
        (extents, blocks) in (0_u16..5, 0_u32..64),
        sparse in any::<bool>(),
    ) {
        let mut data = data;
        if sparse {
            // Random low bytes of addresses and counts only: some tables are valid.
            for (at, byte) in data.iter_mut().rev().enumerate() {
                if !matches!(at % 16, 7 | 15) {
                    *byte = 0;
                }
            }
        }
        let command = ExtentsCommand { nsid: 1, extents, blocks, fua: false, outcomes: false };
        if let Ok(entries) = command.parse_table(&data) {
            prop_assert_eq!(entries.len(), usize::from(extents));
            let (mut end, mut sum) = (0, 0);
            for entry in entries {
                prop_assert!(entry.slba >= end && entry.blocks > 0);
                end = entry.slba.checked_add(u64::from(entry.blocks)).unwrap();
                sum += u64::from(entry.blocks);
            }
            prop_assert_eq!(sum, u64::from(blocks));
        }
    }
}

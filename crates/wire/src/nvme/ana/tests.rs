use super::*;
use proptest::prelude::*;

const STATES: [AnaState; 5] = [
    AnaState::Optimized,
    AnaState::NonOptimized,
    AnaState::Inaccessible,
    AnaState::PersistentLoss,
    AnaState::Change,
];

type Group = (u32, u64, AnaState, Vec<u32>);

fn encode(change_count: u64, groups: &[Group]) -> Vec<u8> {
    let nsids = groups.iter().map(|group| group.3.len()).sum();
    let mut page = vec![0; ana_log_bytes(groups.len(), nsids)];
    let header = AnaLogHeader {
        change_count,
        groups: u16::try_from(groups.len()).unwrap(),
    };
    page[..AnaLogHeader::SIZE].copy_from_slice(&header.to_bytes());
    let mut at = AnaLogHeader::SIZE;
    for (group, changes, state, nsids) in groups {
        let nsids = nsids.iter().copied();
        at += encode_ana_group(*group, *changes, *state, nsids, &mut page[at..]).unwrap();
    }
    assert_eq!(at, page.len());
    page
}

fn decode(page: &[u8]) -> Result<(u64, Vec<Group>), AnaLogError> {
    let (change_count, groups) = parse_ana_log(page)?;
    let groups = groups.map(|it| (it.group, it.change_count, it.state, it.nsids().collect()));
    Ok((change_count, groups.collect()))
}

/// Offsets of the specification's figures.
#[test]
fn a_page_is_as_the_specification_has_it() {
    let groups = [
        (1, 5, AnaState::Optimized, vec![1, 0x0102_0304]),
        (2, 6, AnaState::Inaccessible, vec![]),
    ];
    let page = encode(7, &groups);
    assert_eq!(page.len(), 16 + 32 + 8 + 32);
    assert_eq!(page[..16], [7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        page[16..32],
        [1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(page[32], 0x01);
    assert!(page[33..48].iter().all(|&byte| byte == 0));
    assert_eq!(page[48..56], [1, 0, 0, 0, 4, 3, 2, 1]);
    assert_eq!(page[56], 2);
    assert_eq!(page[72], 0x03);
    assert_eq!(decode(&page), Ok((7, groups.to_vec())));
}

#[test]
fn invalid_pages_are_errors() {
    let page = encode(
        1,
        &[
            (1, 1, AnaState::Change, vec![9]),
            (2, 1, AnaState::Change, vec![]),
        ],
    );
    for length in 0..page.len() {
        assert_eq!(decode(&page[..length]), Err(AnaLogError::Short), "{length}");
    }
    let with = |at: usize, value: u8| {
        let mut page = page.clone();
        page[at] = value;
        decode(&page)
    };
    assert_eq!(with(16, 0), Err(AnaLogError::Group));
    for state in (0..=u8::MAX).filter(|&state| AnaState::parse(state).is_none()) {
        assert_eq!(with(32, state), Err(AnaLogError::State(state)));
    }
    // The upper half of the byte is reserved.
    assert_eq!(with(32, 0xa1).unwrap().1[0].2, AnaState::Optimized);
    assert_eq!(with(23, 0xff), Err(AnaLogError::Short), "2^32 namespaces");
    assert_eq!(with(9, 0xff), Err(AnaLogError::Short), "too many groups");
    let mut longer = page.clone();
    longer.extend([0xff; 9]);
    assert_eq!(decode(&longer), decode(&page));
}

#[test]
fn a_group_that_does_not_fit_is_not_written() {
    let mut out = [0xee; AnaGroupDescriptor::SIZE + 7];
    let written = encode_ana_group(1, 1, AnaState::Optimized, [1, 2].into_iter(), &mut out);
    assert_eq!(written, None);
    assert!(out.iter().all(|&byte| byte == 0xee));
}

proptest! {
    #[test]
    fn pages_come_back(
        change_count in any::<u64>(),
        groups in prop::collection::vec(
            (
                1..=u32::MAX,
                any::<u64>(),
                prop::sample::select(STATES.to_vec()),
                prop::collection::vec(any::<u32>(), 0..6),
            ),
            0..6,
        ),
    ) {
        let page = encode(change_count, &groups);
        prop_assert_eq!(decode(&page), Ok((change_count, groups)));
    }

    #[test]
    fn any_bytes_are_a_page_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((change_count, groups)) = decode(&bytes) {
            let page = encode(change_count, &groups);
            prop_assert_eq!(decode(&page), Ok((change_count, groups)));
        }
    }
}

use super::*;
use crate::nvme::Command;

/// Of all 256 kinds of descriptor, NVMe/TCP has two.
#[test]
fn two_kinds_of_descriptor_are_taken() {
    for identifier in 0..=255 {
        let mut command = Command::new(1, 1);
        command.set_sgl(SglDescriptor {
            identifier,
            ..SglDescriptor::transport(512)
        });
        let taken = command.data_pointer();
        match identifier {
            0x01 => assert_eq!(
                taken,
                Ok(DataPointer::InCapsule {
                    offset: 0,
                    length: 512
                })
            ),
            0x5a => assert_eq!(taken, Ok(DataPointer::Transport { length: 512 })),
            _ => assert_eq!(taken, Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr())),
        }
    }
}

#[test]
fn a_data_pointer_is_an_sgl() {
    for psdt in [0, 2, 3] {
        let mut command = Command::new(1, 1);
        command.set_psdt(psdt);
        assert_eq!(command.psdt(), psdt);
        assert_eq!(
            command.data_pointer(),
            Err(Status::INVALID_FIELD.with_dnr())
        );
    }
}

#[test]
fn in_capsule_data_lies_in_the_capsule() {
    let capsule = [1, 2, 3, 4];
    let part = |offset, length| DataPointer::InCapsule { offset, length }.capsule_data(&capsule);
    assert_eq!(part(0, 4), Ok(&capsule[..]));
    assert_eq!(part(1, 2), Ok(&capsule[1..3]));
    assert_eq!(part(4, 0), Ok(&capsule[4..]));
    assert_eq!(part(5, 0), Err(Status::SGL_OFFSET_INVALID.with_dnr()));
    assert_eq!(
        part(u64::MAX, 1),
        Err(Status::SGL_OFFSET_INVALID.with_dnr())
    );
    assert_eq!(part(1, 4), Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
    assert_eq!(
        part(0, u32::MAX),
        Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
    );
    let elsewhere = DataPointer::Transport { length: 4 }.capsule_data(&capsule);
    assert_eq!(elsewhere, Err(Status::INVALID_FIELD.with_dnr()));
}

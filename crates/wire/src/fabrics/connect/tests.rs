use super::*;

#[test]
fn names_and_numbers_are_where_the_specification_has_them() {
    let subnqn = Nqn::new("nqn.2026-11.io.switchyard:default").unwrap();
    let hostnqn = Nqn::new("nqn.2026-11.io.example:host").unwrap();
    let data = ConnectData::new([7; 16], ConnectData::CNTLID_DYNAMIC, &subnqn, &hostnqn);
    let bytes = data.to_bytes();
    assert_eq!(
        bytes[..18],
        [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0xff, 0xff]
    );
    assert_eq!(&bytes[256..259], b"nqn");
    assert_eq!(&bytes[512..515], b"nqn");
    assert_eq!(data.subnqn(), Ok(subnqn));
    assert_eq!(data.hostnqn(), Ok(hostnqn));
}

/// The attributes' byte follows the offset; its lowest bit is set if the offset is into the data.
#[test]
fn an_invalid_parameter_is_pointed_at() {
    let in_data = InvalidParameter::in_data(ConnectData::SUBNQN_OFFSET);
    assert_eq!(in_data.to_dword(), 0x0001_0100);
    let in_command = InvalidParameter::in_command(Connect::SQSIZE_OFFSET);
    assert_eq!(in_command.to_dword(), 0x2c);
}

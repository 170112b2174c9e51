use super::*;

#[test]
fn bits_are_where_the_specification_has_them() {
    let status = Status::LBA_OUT_OF_RANGE.with_dnr().with_more().with_crd(2);
    assert_eq!(status.0, 0x0080 | 1 << 14 | 1 << 13 | 2 << 11);
    assert!(status.dnr());
    assert!(status.more());
    assert_eq!(status.crd(), 2);
    assert_eq!(status.code(), 0x80);
    assert_eq!(status.status_type(), StatusType::Generic);
    assert!(status.is(Status::LBA_OUT_OF_RANGE));
    assert_ne!(status, Status::LBA_OUT_OF_RANGE);
    assert!(!status.is_success());
    assert!(Status::SUCCESS.with_more().is_success());
}

#[test]
fn names_and_numbers_agree() {
    for (status, number, text) in [
        (Status::SUCCESS, 0x000, "Successful Completion (0x000)"),
        (
            Status::INVALID_FIELD,
            0x002,
            "Invalid Field in Command (0x002)",
        ),
        (
            Status::TRANSIENT_TRANSPORT_ERROR,
            0x022,
            "Transient Transport Error (0x022)",
        ),
        (
            Status::CAPACITY_EXCEEDED,
            0x081,
            "Capacity Exceeded (0x081)",
        ),
        (Status::INVALID_LOG_PAGE, 0x109, "Invalid Log Page (0x109)"),
        (
            Status::CONNECT_INVALID_HOST,
            0x184,
            "Connect Invalid Host (0x184)",
        ),
        (
            Status::UNRECOVERED_READ_ERROR,
            0x281,
            "Unrecovered Read Error (0x281)",
        ),
        (
            Status::ANA_INACCESSIBLE,
            0x302,
            "Asymmetric Access Inaccessible (0x302)",
        ),
        (Status::from_type_and_code(7, 0xc1), 0x7c1, "status 0x7c1"),
    ] {
        assert_eq!(status.type_and_code(), number);
        assert_eq!(status.to_string(), text);
    }
    assert!(Status::CONNECT_INVALID_PARAMETERS.is(Status::from_type_and_code(1, 0x82)));
}

#[test]
fn a_number_that_commands_share_is_named_by_the_command() {
    let status = Status(0x182).with_dnr();
    assert_eq!(
        status.to_string(),
        "Attempted Write to Read Only Range (0x182), do not retry"
    );
    assert_eq!(
        status.of_connect().to_string(),
        "Connect Invalid Parameters (0x182), do not retry"
    );
    assert_eq!(
        Status(0x184).of_connect().to_string(),
        "Connect Invalid Host (0x184)"
    );
}

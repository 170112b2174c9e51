use super::*;

/// CAP as Linux parses it: queue entries in bits 15:0, timeout in 31:24, command sets in 44:37.
#[test]
fn capabilities_are_where_the_specification_has_them() {
    let capabilities = Capabilities {
        max_queue_entries: 1023,
        contiguous_queues: true,
        arbitration: 0,
        timeout: 15,
        subsystem_reset: false,
        command_sets: Capabilities::CSS_NVM | Capabilities::CSS_COMMAND_SETS,
        page_shift_min: 0,
        page_shift_max: 4,
        ready_modes: Capabilities::CRMS_WITH_MEDIA,
    };
    let bits = 1023 | 1 << 16 | 15 << 24 | 1 << 37 | 1 << 43 | 4 << 52 | 1 << 59;
    assert_eq!(capabilities.to_bits(), bits);
    assert_eq!(Capabilities::from_bits(bits), capabilities);
}

/// 00460001h is the value with which a Linux host enables a controller, 00464001h shuts it down.
#[test]
fn configuration_is_what_hosts_write() {
    assert_eq!(Configuration::ENABLE.0, 0x0046_0001);
    let down = Configuration::ENABLE.with_shutdown(1);
    assert_eq!(down.0, 0x0046_4001);
    assert!(down.enabled());
    assert_eq!(down.shutdown(), 1);
    assert_eq!(down.sq_entry_shift(), 6);
    assert_eq!(down.cq_entry_shift(), 4);
    assert_eq!(down.command_set(), 0);
    let status = ControllerStatus::READY.with(ControllerStatus::SHUTDOWN_COMPLETE);
    assert_eq!(status.0, 0b1001);
    assert!(status.ready());
    assert!(!status.fatal());
    assert_eq!(status.shutdown(), 2);
}

#[test]
fn versions_and_names_are_readable() {
    assert_eq!(Version::V2_0.0, 0x0002_0000);
    assert_eq!(Version::new(1, 4, 0).to_string(), "1.4.0");
    assert_eq!(Property(0x14).to_string(), "CC");
    assert_eq!(Property(0x99).to_string(), "property 0x99");
    assert_eq!(Property::CAP.size(), Some(PropertySize::Eight));
    assert_eq!(
        Property(0x24).size(),
        None,
        "the admin queue's attributes are not a property"
    );
}

#[test]
fn a_property_has_four_or_eight_bytes() {
    let get = PropertyGet {
        size: PropertySize::Eight,
        property: Property::CAP,
    };
    let mut command = get.encode(1);
    for attrib in 2..8 {
        command.set_cdw(10, attrib);
        assert_eq!(
            PropertyGet::parse(&command),
            Err(Status::INVALID_FIELD.with_dnr())
        );
        assert_eq!(
            PropertySet::parse(&command),
            Err(Status::INVALID_FIELD.with_dnr())
        );
    }
}

/// A controller with several command sets, but without CSS 000b, must not be enabled with 000b.
#[test]
fn a_host_selects_command_sets_that_the_controller_has() {
    let all = Capabilities::CSS_COMMAND_SETS;
    let started = |sets| Configuration::enable(sets).command_set();
    assert_eq!(
        [Capabilities::CSS_NVM, Capabilities::CSS_NVM | all].map(started),
        [0, 0]
    );
    assert_eq!(started(all), 0b110);
    assert!(Configuration::enable(all).enabled());
}

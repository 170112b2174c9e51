use super::*;

#[test]
fn both_forms_are_names() {
    for text in [
        DISCOVERY_NQN,
        "nqn.2026-11.io.switchyard:default",
        "nqn.2026-11.io.switchyard",
        "nqn.2014-08.com.example:nvme:disk.sn-1",
        "nqn.2014-08.org.nvmexpress:uuid:5f1e9d3c-7a2b-4c6d-8e9f-0a1b2c3d4e5f",
    ] {
        let name: Nqn = text.parse().unwrap();
        assert_eq!(name.as_str(), text);
        assert_eq!(name.to_string(), text);
        assert!(name.is_well_formed());
        assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
    }
    assert!(Nqn::discovery().is_discovery());
}

#[test]
fn other_texts_are_not() {
    assert_eq!(Nqn::new(""), Err(NqnError::Empty));
    assert_eq!(Nqn::new("nqn.2026-11.io.x:a\nb"), Err(NqnError::NotText));
    for text in [
        "iqn.2026-11.io.switchyard:default",
        "nqn.2026-13.io.switchyard:default",
        "nqn.2026-00.io.switchyard:default",
        "nqn.26-11.io.switchyard:default",
        "nqn.2026-11:default",
        "nqn.2026-11..io:default",
        "nqn.2026-11.io.switchyard:",
        "nqn.2026-11.-io:x",
        "nqn.2014-08.org.nvmexpress:uuid:5f1e9d3c",
        "nqn.2014-08.org.nvmexpress:uuid:5f1e9d3c-7a2b-4c6d-8e9f-0a1b2c3d4e5g",
    ] {
        assert_eq!(Nqn::new(text), Err(NqnError::Malformed), "{text}");
    }
}

#[test]
fn a_name_has_at_most_223_bytes() {
    let longest = format!("nqn.2026-11.io.switchyard:{}", "x".repeat(223 - 26));
    assert_eq!(longest.len(), 223);
    assert_eq!(Nqn::new(&longest).unwrap().as_str(), longest);
    assert_eq!(Nqn::new(&format!("{longest}x")), Err(NqnError::TooLong));
    assert_eq!(
        Nqn::from_field(&[b'x'; 256]),
        Err(NqnError::TooLong),
        "no final zero"
    );
    assert_eq!(Nqn::from_field(&[0; 256]), Err(NqnError::Empty));
    let mut field = [0; 256];
    field[0] = 0xff;
    assert_eq!(Nqn::from_field(&field), Err(NqnError::NotText));
}

/// Users may give hosts any name: it only has to be text.
#[test]
fn a_field_may_hold_any_text() {
    let mut field = [0; 256];
    field[..4].copy_from_slice(b"host");
    let name = Nqn::from_field(&field).unwrap();
    assert_eq!(name.as_str(), "host");
    assert!(!name.is_well_formed());
}

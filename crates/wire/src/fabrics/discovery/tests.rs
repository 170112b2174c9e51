use super::*;

#[test]
fn an_address_comes_back() {
    for text in ["127.0.0.1:4420", "[fe80::1]:8009", "255.255.255.255:65535"] {
        let address: core::net::SocketAddr = text.parse().unwrap();
        let mut entry = DiscoveryLogEntry {
            trtype: DiscoveryLogEntry::TRTYPE_TCP,
            ..Default::default()
        };
        entry.set_address(address);
        assert_eq!(entry.socket_address(), Some(address));
        let again = DiscoveryLogEntry::parse(&entry.to_bytes());
        assert_eq!(again.socket_address(), Some(address));
        assert_eq!(again.service_text(), address.port().to_string());
    }
}

#[test]
fn fields_are_padded_with_spaces_and_read_with_either_padding() {
    let mut entry = DiscoveryLogEntry {
        trtype: DiscoveryLogEntry::TRTYPE_TCP,
        ..Default::default()
    };
    entry.set_address(([10, 0, 2, 2], 4420).into());
    let bytes = entry.to_bytes();
    assert_eq!(&bytes[32..38], b"4420  ");
    assert_eq!(&bytes[512..522], b"10.0.2.2  ");
    assert_eq!(bytes[1], DiscoveryLogEntry::ADRFAM_IPV4);
    entry.traddr = text::zero_padded_field("10.0.2.2");
    entry.trsvcid = text::zero_padded_field("4420");
    assert_eq!(entry.socket_address(), Some(([10, 0, 2, 2], 4420).into()));
    entry.traddr = text::ascii_field("not an address");
    assert_eq!(entry.socket_address(), None);
    entry.trtype = 1;
    entry.set_address(([10, 0, 2, 2], 4420).into());
    assert_eq!(
        entry.socket_address(),
        None,
        "an RDMA address is none of ours"
    );
}

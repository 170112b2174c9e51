//! The part of a peer's address that counts for limits.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that a machine chooses by itself: it has all addresses of its /64.
const CHOSEN_BITS: u32 = 64;

/// Returns the first address of the network that counts as one peer: an IPv4 address alone, as such
/// also where a socket for both families shows it mapped, and the /64 of an IPv6 address.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() >> CHOSEN_BITS << CHOSEN_BITS).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_ipv4_address_or_a_64_bit_prefix() {
        let of = |address: &str| network(address.parse().expect("an address")).to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(of("2001:db8:0:1:2:3:4:5"), "2001:db8:0:1::");
        assert_eq!(of("2001:db8:0:2::1"), "2001:db8:0:2::");
    }
}

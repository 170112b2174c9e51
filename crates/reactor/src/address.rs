//! Addresses in text form.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Parses an IP address with a port. An IPv6 address may have a zone, by name or number:
/// `[fe80::1%eth0]:4420`.
///
/// # Errors The text is not such an address, or the zone does not exist.
pub fn parse(text: &str) -> io::Result<SocketAddr> {
    if let Ok(found) = text.parse() {
        return Ok(found);
    }
    let (host, port) = split(text)?;
    let is_zoned = |host: &str| {
        let address = host.split_once('%').map(|(address, _)| address);
        address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
    };
    match port {
        Some(port) if is_zoned(host) => first(&look_up(host, port)?),
        _ => Err(invalid("not an IP address with a port")),
    }
}

/// Resolves `HOST:PORT`, or several separated by commas, to all their addresses, in the order of the
/// system's resolver; without a port, `default_port` is used. May block on a name server.
///
/// # Errors The text is malformed, or the resolver finds no address.
pub fn resolve(text: &str, default_port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut all = Vec::new();
    for one in text.split(',') {
        for address in resolve_one(one, default_port)? {
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    Ok(all)
}

fn resolve_one(text: &str, default_port: u16) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = split(text)?;
    let port = port.unwrap_or(default_port);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let found = look_up(host, port)?;
    first(&found)?;
    Ok(found)
}

/// Returns true if the text contains a name to [`resolve`], not only IP addresses.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.split(',').any(is_one_name)
}

fn is_one_name(text: &str) -> bool {
    let host = split(text).map_or(text, |(host, _)| host);
    let host = host.split_once('%').map_or(host, |(address, _)| address);
    host.parse::<IpAddr>().is_err()
}

/// Bits of an IPv6 address that a machine chooses by itself: it has all addresses of its /64.
const CHOSEN_BITS: u32 = 64;

/// Returns the first address of the network that counts as one peer: an IPv4 address itself, also
/// in its mapped form from a socket for both families, and the /64 of an IPv6 address.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() >> CHOSEN_BITS << CHOSEN_BITS).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // The system's resolver supports zones, too.
    let mut found: Vec<SocketAddr> = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(found)
}

fn first(found: &[SocketAddr]) -> io::Result<SocketAddr> {
    found
        .first()
        .copied()
        .ok_or_else(|| invalid("the name resolves to no address"))
}

/// Splits `HOST:PORT`, `HOST`, or an IPv6 address in brackets with or without a port.
fn split(text: &str) -> io::Result<(&str, Option<u16>)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| invalid("the closing bracket is missing"))?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(invalid("only :PORT may follow the closing bracket")),
        }
    } else {
        match text.split_once(':') {
            // An IPv6 address has more than one colon.
            Some((_, port)) if port.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = port.map(|port| {
        let number = port.parse::<u16>();
        number.map_err(|_| invalid("the port is not a number from 0 to 65535"))
    });
    Ok((host, port.transpose()?))
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_ports_brackets_and_zones() {
        let zoned = |text: &str, port: u16| {
            // The loopback interface has this name on every machine, and index 1.
            let SocketAddr::V6(found) = parse(text).expect(text) else {
                panic!("{text} is an IPv6 address");
            };
            assert_eq!((found.port(), found.scope_id()), (port, 1), "{text}");
        };
        zoned("[fe80::1%lo]:4420", 4420);
        zoned("[fe80::1%1]:4420", 4420);
        let all = ["[fe80::1%lo]", "fe80::1%lo", "[fe80::1%lo]:7"].map(|text| resolve(text, 7));
        for found in all {
            let found = found.expect("an address");
            assert_eq!(found, [parse("[fe80::1%lo]:7").expect("the same")]);
        }
        for (text, port) in [
            ("127.0.0.1", 9),
            ("127.0.0.1:1", 1),
            ("::1", 9),
            ("[::1]", 9),
        ] {
            let found = resolve(text, 9).expect(text);
            assert_eq!((found.len(), found[0].port()), (1, port), "{text}");
            assert!(!is_name(text), "{text}");
        }
        assert!(is_name("localhost:4420") && is_name("host") && !is_name("[fe80::1%lo]:1"));
        let several = resolve("127.0.0.1,[::1]:1,127.0.0.1:9", 9).expect("two");
        assert_eq!(
            several.iter().map(SocketAddr::port).collect::<Vec<_>>(),
            [9, 1]
        );
        assert!(is_name("127.0.0.1,localhost") && !is_name("127.0.0.1,::1"));
        for text in ["", "x:y", "[::1", "[::1]x", "127.0.0.1:65536", "127.0.0.1,"] {
            parse(text).expect_err(text);
            resolve(text, 9).expect_err(text);
        }
        // A name is not an address, and a listen address has a port.
        for text in [
            "localhost:1",
            "127.0.0.1",
            "[fe80::1%lo]",
            "[fe80::1%nowhere]:1",
            "x%lo:1",
        ] {
            parse(text).expect_err(text);
        }
    }
}

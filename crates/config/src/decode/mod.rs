//! Values of the schema that are read from nodes.

mod devices;
mod switch;
mod target;

use crate::node::Value;
use crate::schema::{
    Access, AnaState, ApiAddress, Authentication, Eui64, FaultError, HostTls, Keyword, Listener,
    ListenerError, Network, Nguid, Percentile, PollPolicy, Size, SizeError, SocketMode, TlsMode,
    Uuid,
};
use crate::spot::FoundNode;
use crate::table::{among, explained, from_found, integer, parsed, text};
use block::layer::fault::FaultOperation;
use std::net::IpAddr;
use std::path::PathBuf;
pub(super) use switch::report_knob;

/// Reads words, of which a type has a few.
macro_rules! from_words {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::FromNode for $type {
            fn from_node(found: &$crate::FoundNode<'_>) -> Option<Self> {
                let words: Vec<_> = Self::WORDS.iter().map(|(word, _)| *word).collect();
                let word = among(found, &words)?;
                Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
            }

            fn expected() -> String {
                let words: Vec<_> = Self::WORDS.iter().map(|(word, _)| *word).collect();
                words.join(", ")
            }
        }
    )+};
}

const ADDRESS: &str = "an address with a port, like \"127.0.0.1:4420\" or \"[::1]:4420\"";
const IP_ADDRESS: &str = "an IP address, like \"192.0.2.1\" or \"2001:db8::1\"";
const SIZE: &str = "a size such as \"1G\", \"512M\" or 4096";

from_found! {
    bool: "true, false", |found: &FoundNode<'_>| match *found.value {
        Value::Boolean(value) => Some(value),
        _ => found.wrong_type("true or false"),
    };
    u16: "integer", |found| integer(found, &(0..=Self::MAX));
    u32: "integer", |found| integer(found, &(0..=Self::MAX));
    u64: "integer", |found| integer(found, &(0..=Self::MAX));
    usize: "integer", |found| integer(found, &(0..=Self::MAX));
    String: "text", |found| text(found, "a text in quotes").map(str::to_owned);
    Listener: "ADDRESS:PORT", |found: &FoundNode<'_>| match text(found, ADDRESS)?.parse() {
        Ok(listener) => Some(listener),
        Err(ListenerError::Address) => found.wrong_type(ADDRESS),
        Err(error @ ListenerError::Tls) => found.misplaced(error.to_string()),
    };
    IpAddr: "IP address", |found| parsed(found, IP_ADDRESS);
    PathBuf: "path", |found| parsed(found, "a path in quotes");
    Uuid: "UUID", |found| parsed(found, Uuid::EXPECTED);
    Nguid: "32 hexadecimal digits", |found| parsed(found, Nguid::EXPECTED);
    Eui64: "16 hexadecimal digits", |found| parsed(found, Eui64::EXPECTED);
    ApiAddress: "unix:PATH, loopback ADDRESS:PORT, https://ADDRESS:PORT", |found| {
        explained(found, "\"127.0.0.1:4421\" or \"unix:/run/switchyard/api.sock\"")
    };
    SocketMode: "octal digits", |found| explained(found, "permission bits in quotes, like \"0660\"");
    Network: "network or address", |found| explained(found, "a network like \"192.0.2.0/24\"");
    Size: "size", |found: &FoundNode<'_>| match *found.value {
        Value::Integer(value) if let Ok(bytes) = u64::try_from(value) => Some(Self { bytes }),
        _ => match text(found, SIZE)?.parse() {
            Ok(size) => Some(size),
            Err(error @ SizeError::TooLarge(_)) => found.misplaced(error.to_string()),
            Err(SizeError::Form(_)) => found.wrong_type(SIZE),
        },
    };
}

from_words! {
    PollPolicy, TlsMode, FaultOperation, FaultError, Percentile, Access, HostTls, Authentication, AnaState,
}

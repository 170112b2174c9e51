//! Keys, identities and authentication of NVMe over Fabrics, without I/O: TLS pre-shared keys
//! `[NVMe-TCP 1.1 §3.6.1]` and DH-HMAC-CHAP `[NVMe Base 2.0 §8.13.5]`.
//!
//! A [`KeyRing`] holds the keys of all hosts. [`psk::offers`] derives the TLS PSKs of a key, and
//! [`ClientHello`] finds which of them a host uses. Keys are zeroized when they are dropped, and no
//! `Debug` output or error contains one.

pub mod chap;
pub mod client_hello;
mod hash;
mod interchange;
pub mod keyring;
pub mod psk;
pub mod record;

pub use client_hello::{ClientHello, ClientHelloError};
pub use hash::Hash;
pub use interchange::KeyError;
pub use keyring::{ChapPolicy, HostKeys, KeyRing};
pub use psk::{Psk, TlsKey};

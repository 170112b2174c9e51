//! DH-HMAC-CHAP. `[NVMe Base 2.1 §8.3.5.5]`

mod secret;

pub use secret::Secret;

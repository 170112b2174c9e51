//! Numbers for identifiers of volumes and hosts.

/// The hash of an identifier of a kind (FNV-1a), which is the same in every version.
pub(crate) fn hash(kind: &str, identifier: &[u8]) -> u64 {
    let bytes = kind.bytes().chain([0]).chain(identifier.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_different_kinds_differ() {
        // FNV-1a of a zero byte.
        assert_eq!(hash("", b""), 0xaf63_bd4c_8601_b7df);
        assert_ne!(hash("nguid", &[1; 16]), hash("uuid", &[1; 16]));
        assert_ne!(hash("nguid", &[1; 16]), hash("nguid", &[2; 16]));
    }
}

//! Command capsules that a connection has received and not executed, because another process will
//! execute them.
//!
//! They are kept as the bytes of their PDUs, in the order of arrival. Data of earlier commands that
//! arrives between them is delivered. Invariant: there are at most as many as the queue has entries.

use crate::session::commands::CommandTable;
use wire::nvme::Command;
use wire::tcp::digest::digest_bytes;
use wire::tcp::limits::PREFIX_BYTES_MAX;
use wire::tcp::{CapsuleCmd, DataAlignment, PduFormat};

/// The held capsules of a connection.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    capsules: u32,
    /// Start of the data of a capsule that is not complete.
    data_at: Option<usize>,
}

impl Held {
    /// Returns true if another capsule may be held.
    pub(crate) fn has_room(&self, commands: &CommandTable) -> bool {
        self.capsules + commands.used() < commands.entries()
    }

    /// Returns true if no capsule is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.capsules == 0
    }

    /// Holds a capsule with `data_length` bytes of data, which [`push`](Self::push) adds.
    pub(crate) fn begin(&mut self, command: Command, data_length: u32, format: &PduFormat) {
        let mut header = [0; PREFIX_BYTES_MAX];
        let capsule = CapsuleCmd { command };
        let length = capsule.encode(&received(format), data_length, &mut header);
        self.bytes.extend_from_slice(&header[..length]);
        self.capsules += 1;
        self.data_at = (data_length > 0).then_some(self.bytes.len());
    }

    /// Adds data of the current capsule; returns false if none is incomplete.
    pub(crate) fn push(&mut self, data: &[u8]) -> bool {
        if self.data_at.is_some() {
            self.bytes.extend_from_slice(data);
        }
        self.data_at.is_some()
    }

    /// Ends the data of the current capsule; returns false if none is incomplete. Data with a wrong
    /// digest keeps a wrong one.
    pub(crate) fn end(&mut self, digest_ok: bool, format: &PduFormat) -> bool {
        let Some(start) = self.data_at.take() else {
            return false;
        };
        if format.data_digest {
            let mut digest = digest_bytes(&self.bytes[start..]);
            digest[0] ^= u8::from(!digest_ok);
            self.bytes.extend_from_slice(&digest);
        }
        true
    }

    /// Returns the bytes of all capsules.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns the format of received PDUs: that of sent ones, with the target's own alignment.
fn received(format: &PduFormat) -> PduFormat {
    PduFormat {
        alignment: DataAlignment::DWORD,
        ..*format
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::tcp::PduHeader;
    use wire::tcp::framer::{Event, Framer, FramerLimits, Role};

    /// Reads held capsules as a target would: their data, and true if its digest matches.
    fn read(bytes: &[u8], format: &PduFormat) -> Vec<(Option<Vec<u8>>, bool)> {
        let limits = FramerLimits {
            capsule_data_bytes: 8192,
            data_pdu_bytes: 8192,
        };
        let mut framer = Framer::resumed(Role::Controller, limits);
        framer.set_digests(format.header_digest, format.data_digest);
        let mut input = bytes;
        let mut found = Vec::new();
        while let Some(event) = framer.next(&mut input).expect("valid PDUs") {
            let Event::Pdu {
                header: PduHeader::CapsuleCmd(_),
                data,
                digest_ok,
            } = event
            else {
                panic!("{event:?}");
            };
            found.push((data.map(<[u8]>::to_vec), digest_ok));
        }
        assert_eq!(framer.carried(), Some(&[][..]), "nothing is left over");
        found
    }

    #[test]
    fn held_capsules_are_received_again_as_they_were() {
        for digests in [false, true] {
            let format = PduFormat {
                header_digest: digests,
                data_digest: digests,
                alignment: DataAlignment::from_code(7).expect("32 bytes"),
            };
            let mut held = Held::default();
            assert!(
                !held.push(&[1]) && !held.end(true, &format),
                "nothing began"
            );
            let command = Command::from_bytes([0; 64]);
            held.begin(command, 0, &format);
            held.begin(command, 5, &format);
            assert!(held.push(&[1, 2]) && held.push(&[3, 4, 5]));
            assert!(held.end(true, &format));
            held.begin(command, 3, &format);
            assert!(held.push(&[6, 7, 8]) && held.end(false, &format));
            let expected = [
                (None, true),
                (Some(vec![1, 2, 3, 4, 5]), true),
                (Some(vec![6, 7, 8]), !digests),
            ];
            assert_eq!(read(&held.into_bytes(), &format), expected);
        }
    }
}

//! Checks the records of a connection with TLS: nothing in clear, and no nonce twice.

use std::collections::BTreeSet;

/// First content type of a connection with TLS. `[RFC 8446 §5.1]`
pub(super) const HANDSHAKE: u8 = 22;

/// Content types: ChangeCipherSpec, alert, handshake, application data.
const TYPES: std::ops::RangeInclusive<u8> = 20..=23;

const HEADER_BYTES: usize = 5;

/// Bytes of a record behind its data: content type and tag.
const TAIL_BYTES: usize = 17;

/// Bytes that identify a key stream.
const SAMPLE_BYTES: usize = 8;

/// The records of both directions.
#[derive(Debug, Default)]
pub(super) struct Records {
    streams: [Stream; 2],
    /// The beginning of the key stream of each record: one that occurs twice is of the same key and
    /// nonce.
    key_streams: BTreeSet<[u8; SAMPLE_BYTES]>,
}

#[derive(Debug, Default)]
struct Stream {
    header: Vec<u8>,
    /// Bytes of the current record that are still to come.
    left: usize,
}

impl Records {
    /// Checks bytes that one end sends.
    ///
    /// # Panics
    /// If they are not records.
    pub(super) fn sends(&mut self, by_host: bool, mut bytes: &[u8]) {
        let stream = &mut self.streams[usize::from(by_host)];
        while !bytes.is_empty() {
            if stream.left > 0 {
                let taken = stream.left.min(bytes.len());
                (stream.left, bytes) = (stream.left - taken, &bytes[taken..]);
                continue;
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES - stream.header.len()));
            stream.header.extend_from_slice(taken);
            bytes = rest;
            if let [content, major, _, high, low] = stream.header[..] {
                assert!(
                    TYPES.contains(&content) && major == 3,
                    "something in clear on a connection with TLS: {:?}",
                    stream.header
                );
                stream.left = length(high, low);
                stream.header.clear();
            }
        }
    }

    /// Checks the records that contain these bytes.
    ///
    /// # Panics
    /// If they are not encrypted, or with a nonce that was used before.
    pub(super) fn seals(&mut self, mut bytes: &[u8], mut records: &[u8]) {
        while let Some((&[_, _, _, high, low], rest)) = records.split_first_chunk() {
            let (record, next) = rest.split_at(length(high, low));
            let (data, after) = bytes.split_at(record.len() - TAIL_BYTES);
            (records, bytes) = (next, after);
            let (Some(clear), Some(sealed)) = (data.first_chunk(), record.first_chunk()) else {
                continue;
            };
            let key_stream = std::array::from_fn(|at| {
                let pair: (&[u8; SAMPLE_BYTES], &[u8; SAMPLE_BYTES]) = (clear, sealed);
                pair.0[at] ^ pair.1[at]
            });
            assert_ne!(key_stream, [0; SAMPLE_BYTES], "a record is not encrypted");
            assert!(
                self.key_streams.insert(key_stream),
                "two records are encrypted with the same nonce"
            );
        }
    }
}

fn length(high: u8, low: u8) -> usize {
    usize::from(high) << 8 | usize::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encloses these bytes in records of eight bytes, encrypted with `key`.
    fn records(bytes: &[u8], key: u8) -> Vec<u8> {
        let each = bytes.chunks(8).zip(key..);
        let each = each.flat_map(|(data, key)| {
            let header = [23, 3, 3, 0, 17 + 8];
            let data = data.iter().map(move |byte| byte ^ key);
            header.into_iter().chain(data).chain([9; TAIL_BYTES])
        });
        each.collect()
    }

    fn panics(check: impl FnOnce(&mut Records)) -> bool {
        let mut records = Records::default();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&mut records))).is_err()
    }

    #[test]
    fn records_are_recognised_however_they_are_divided() {
        let bytes = records(&[7; 64], 1);
        assert!(!panics(|it| {
            bytes.chunks(3).for_each(|piece| it.sends(true, piece));
            it.sends(false, &bytes);
            it.seals(&[7; 64], &bytes);
        }));
        let clear = [&bytes[..], &[4, 0, 24, 24, 60]].concat();
        assert!(panics(|it| it.sends(true, &clear)));
    }

    #[test]
    fn clear_data_and_a_nonce_that_is_used_twice_are_noticed() {
        let bytes = [7; 16];
        assert!(panics(|it| it.seals(&bytes, &records(&bytes, 0))));
        assert!(panics(|it| {
            it.seals(&bytes, &records(&bytes, 1));
            it.seals(&[8; 8], &records(&[8; 8], 2));
        }));
    }
}

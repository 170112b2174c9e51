//! Cases of the raw exchange: message sizes, depth, batching, polling.

use super::error::RawError;
use super::limits;
use super::message::{REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};

/// How an end waits for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Polls the socket and never sleeps.
    Always,
    /// Sleeps in the kernel until data arrives.
    Never,
}

/// One raw exchange. Both ends must use the same case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawCase {
    /// Name of the case in reports.
    pub name: &'static str,
    /// Bytes of a request: a header of 72 (an NVMe/TCP command capsule) and the written payload.
    pub request_bytes: usize,
    /// Bytes of a response: a header of 24 and the payload read.
    pub response_bytes: usize,
    /// Requests in flight, in a closed loop.
    pub depth: usize,
    /// Most responses in one `sendmsg`, `1..=64`. The client sends its requests the same way.
    pub messages_per_send: usize,
    /// How both ends wait.
    pub poll: Poll,
    /// Bytes of the memory from which response payloads are taken, at random.
    pub region_bytes: usize,
}

const BLOCK: usize = 4 << 10;
const REGION: usize = 256 << 20;

impl RawCase {
    /// 4 KiB random reads, depth 128, polling.
    #[must_use]
    pub const fn read_4k_qd128() -> Self {
        Self::read("read_4k_qd128", BLOCK, 128, Poll::Always)
    }

    /// 4 KiB random writes, depth 128, polling.
    #[must_use]
    pub const fn write_4k_qd128() -> Self {
        Self::write("write_4k_qd128", BLOCK, 128, Poll::Always)
    }

    /// 128 KiB reads, depth 8, polling.
    #[must_use]
    pub const fn read_128k_qd8() -> Self {
        Self::read("read_128k_qd8", 128 << 10, 8, Poll::Always)
    }

    /// 4 KiB random reads one at a time; both ends poll, each on its own core.
    #[must_use]
    pub const fn read_4k_qd1_polling() -> Self {
        Self::read("read_4k_qd1_polling", BLOCK, 1, Poll::Always)
    }

    /// 4 KiB random reads one at a time; both ends block. Meant for one core that both share.
    #[must_use]
    pub const fn read_4k_qd1_one_core() -> Self {
        Self::read("read_4k_qd1_one_core", BLOCK, 1, Poll::Never)
    }

    /// Reads of `payload` bytes.
    #[must_use]
    pub const fn read(name: &'static str, payload: usize, depth: usize, poll: Poll) -> Self {
        Self {
            name,
            request_bytes: REQUEST_HEADER_BYTES,
            response_bytes: RESPONSE_HEADER_BYTES + payload,
            depth,
            messages_per_send: limits::MESSAGES_PER_SEND_MAX,
            poll,
            region_bytes: REGION,
        }
    }

    /// Writes of `payload` bytes.
    #[must_use]
    pub const fn write(name: &'static str, payload: usize, depth: usize, poll: Poll) -> Self {
        Self {
            request_bytes: REQUEST_HEADER_BYTES + payload,
            response_bytes: RESPONSE_HEADER_BYTES,
            ..Self::read(name, payload, depth, poll)
        }
    }

    /// Bytes of a request after its header.
    pub(super) const fn request_payload(&self) -> usize {
        self.request_bytes - REQUEST_HEADER_BYTES
    }

    /// Bytes of a response after its header.
    pub(super) const fn response_payload(&self) -> usize {
        self.response_bytes - RESPONSE_HEADER_BYTES
    }

    /// Number of different payloads for the responses; at least one.
    pub(super) fn response_blocks(&self) -> usize {
        self.region_bytes
            .checked_div(self.response_payload())
            .unwrap_or(1)
            .max(1)
    }

    /// Rejects an impossible case.
    pub(super) fn check(&self) -> Result<(), RawError> {
        let within = |what: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let what = format!("{what} is {value}, but must be {least} to {most}");
            Err(RawError::Case {
                case: self.name,
                what,
            })
        };
        let largest = limits::MESSAGE_BYTES_MAX;
        within(
            "request_bytes",
            self.request_bytes,
            REQUEST_HEADER_BYTES,
            largest,
        )?;
        within(
            "response_bytes",
            self.response_bytes,
            RESPONSE_HEADER_BYTES,
            largest,
        )?;
        within("depth", self.depth, 1, limits::DEPTH_MAX)?;
        let per_send = limits::MESSAGES_PER_SEND_MAX;
        within("messages_per_send", self.messages_per_send, 1, per_send)?;
        let payload = self.response_payload();
        within(
            "region_bytes",
            self.region_bytes,
            payload,
            limits::REGION_BYTES_MAX,
        )
    }
}

//! The body of a PDU: padding, data and digest, from PDO and PLEN.
//!
//! All length checks of the framer are here.

use super::Framer;
use crate::tcp::header::{CommonHeader, DDGSTF, Role};
use crate::tcp::limits::{DIGEST_BYTES, PADDING_BYTES_MAX, SHORT_HEADER_BYTES, TERM_REQ_BYTES_MAX};
use crate::tcp::{FramingError, H2cData};

/// The body that follows a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) padding: u32,
    pub(super) data: u32,
    pub(super) has_digest: bool,
}

impl Body {
    pub(super) const NONE: Self = Self {
        padding: 0,
        data: 0,
        has_digest: false,
    };

    pub(super) const fn digest_bytes(&self) -> usize {
        if self.has_digest { DIGEST_BYTES } else { 0 }
    }
}

impl Framer {
    /// Returns the data of a command capsule: the remainder of PLEN, or none.
    #[inline]
    pub(super) fn capsule_body(
        &self,
        common: &CommonHeader,
        extent: usize,
    ) -> Result<Body, FramingError> {
        if common.plen as usize == extent {
            return Ok(Body::NONE);
        }
        let body = self.body(common, extent)?;
        if body.data > self.limits.capsule_data_bytes {
            return Err(FramingError::PduLength { plen: common.plen });
        }
        Ok(body)
    }

    /// Returns the data of a data PDU, which has its own length field.
    #[inline]
    pub(super) fn data_body(
        &self,
        common: &CommonHeader,
        extent: usize,
        length: u32,
    ) -> Result<Body, FramingError> {
        // [NVMe-TCP 1.0 §3.6.2.8]: no transfer contains a data PDU without data; such PDUs would
        // make this end work without progress.
        if length == 0 {
            return Err(FramingError::InvalidField {
                offset: H2cData::DATAL,
            });
        }
        let limit = self.limits.data_pdu_bytes;
        if length > limit {
            return Err(match self.role {
                Role::Controller => FramingError::DataLimit { length, limit },
                Role::Host => FramingError::DataOutOfRange { length, limit },
            });
        }
        let body = self.body(common, extent)?;
        if body.data != length {
            return Err(FramingError::PduLength { plen: common.plen });
        }
        Ok(body)
    }

    /// Computes the bytes of padding, data and digest from PDO and PLEN. `[NVMe-TCP 1.0 §3.6.1]`
    #[inline]
    fn body(&self, common: &CommonHeader, extent: usize) -> Result<Body, FramingError> {
        let has_digest = common.flags & DDGSTF != 0;
        if has_digest != self.data_digest {
            return Err(FramingError::DigestFlags {
                flags: common.flags,
            });
        }
        if (common.plen as usize) <= extent {
            return Err(FramingError::PduLength { plen: common.plen });
        }
        let pdo = usize::from(common.pdo);
        let bad_offset = FramingError::DataOffset { pdo: common.pdo };
        let padding = pdo.checked_sub(extent).ok_or(bad_offset)?;
        let aligned = u32::from(common.pdo).is_multiple_of(self.alignment);
        if !aligned || padding > PADDING_BYTES_MAX {
            return Err(bad_offset);
        }
        let trailer = if has_digest { DIGEST_BYTES } else { 0 };
        // All of these are small, so neither the sum nor the conversions overflow.
        let around = u32::from(common.pdo) + if trailer == 0 { 0 } else { 4 };
        let data = common.plen.checked_sub(around).filter(|data| *data > 0);
        let data = data.ok_or(FramingError::PduLength { plen: common.plen })?;
        let padding = u32::try_from(padding).expect("at most 127");
        Ok(Body {
            padding,
            data,
            has_digest,
        })
    }
}

/// Checks a PDU without a body.
#[inline]
pub(super) fn no_body(common: &CommonHeader, extent: usize) -> Result<(), FramingError> {
    if common.plen as usize == extent {
        Ok(())
    } else {
        Err(FramingError::PduLength { plen: common.plen })
    }
}

/// Returns the offending header in a termination request. `[NVMe-TCP 1.0 §3.6.2.4]`
pub(super) fn term_body(common: &CommonHeader) -> Result<Body, FramingError> {
    let plen = common.plen as usize;
    let data = plen
        .checked_sub(SHORT_HEADER_BYTES)
        .filter(|_| plen <= TERM_REQ_BYTES_MAX);
    match data.and_then(|data| u32::try_from(data).ok()) {
        Some(data) => Ok(Body {
            padding: 0,
            data,
            has_digest: false,
        }),
        None => Err(FramingError::PduLength { plen: common.plen }),
    }
}

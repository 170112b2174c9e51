//! Encrypts a device: AES-256-XTS, where the tweak is the number of the block.
//!
//! The first [`CRYPT_HEADER_BYTES`] of the device hold two copies of a [`Header`] with the data key,
//! which the user's key wraps; the volume is smaller by them. Zeroes of the device are zeroes of
//! the volume: blocks that were never written or were deallocated, and Write Zeroes. So whoever
//! has the device sees which blocks these are. Encryption hides content; it does not detect changes.

mod blocking;
mod channel;
mod header;
mod key;
mod xts;

#[cfg(test)]
mod tests;

pub use header::{COPIES_AT, COPY_BYTES, Header, HeaderError, Salt};
pub use key::{CryptKey, DataKey};

use crate::device::{
    CacheLife, Capabilities, Channel, Device, DeviceError, DeviceTime, Geometry, check_within,
};
use crate::limits::{CRYPT_HEADER_BYTES, TRANSFER_MAX_BYTES};
use crate::request::Operation;
use blocking::{Blocking, REQUEST_BYTES};
use channel::CryptChannel;
use reactor::Driver;
use std::sync::Arc;
use xts::Xts;
use zeroize::Zeroizing;

/// An encrypted device, without its header.
#[derive(Debug)]
pub struct Crypt {
    inner: Arc<dyn Device>,
    key: DataKey,
}

impl Crypt {
    /// Opens the encrypted device `inner`. With `create`, a device of zeroes is encrypted with a
    /// new data key first.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a device without a header, with a damaged one, or of another
    /// key, block size or version; [`DeviceError::Io`] for a failed request. Nothing is written
    /// then.
    pub fn open(inner: Arc<dyn Device>, key: &CryptKey, create: bool) -> Result<Self, DeviceError> {
        let block_bytes = inner.geometry().block_bytes;
        let mut io = Blocking::open(&*inner)?;
        let headers = match headers(&mut io, &*inner) {
            Ok(headers) => headers,
            Err(Refused::Header(HeaderError::None)) if create => {
                check_empty(&mut io, &*inner)?;
                let (data_key, salt) = draw()?;
                let header = Header::create(block_bytes, &data_key, key, &salt);
                write(&mut io, &header)?;
                return Self::with_key(inner, data_key);
            }
            Err(Refused::Header(error)) => return Err(refused(error)),
            Err(Refused::Device(error)) => return Err(error),
        };
        let (header, data_key) = Header::open(&headers, key, Some(block_bytes)).map_err(refused)?;
        let is_whole = headers.len() == 2 && headers[0] == headers[1];
        if !is_whole && !inner.capabilities().read_only {
            // A change of the header was interrupted.
            write(&mut io, header)?;
        }
        Self::with_key(inner, data_key)
    }

    /// Returns the encrypted device with this data key, without reading its header.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] if the device has no room for a block after the header.
    pub fn with_key(inner: Arc<dyn Device>, key: DataKey) -> Result<Self, DeviceError> {
        check_size(&*inner)?;
        Ok(Self { inner, key })
    }

    /// Wraps the data key of the device `inner` with another key: the old one no longer opens it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn change_key(
        inner: &dyn Device,
        old: &CryptKey,
        new: &CryptKey,
    ) -> Result<(), DeviceError> {
        let mut io = Blocking::open(inner)?;
        let headers = headers(&mut io, inner)?;
        let (_, data_key) = Header::open(&headers, old, None).map_err(refused)?;
        let changed = headers[0].with_key(&data_key, new, draw()?.1.nonce);
        replace(&mut io, inner, &changed)
    }

    /// Erases the wrapped data key of the device `inner`, so that no key opens it any more, and
    /// reads the header back from it.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a device without a header, or one that still has a key after
    /// the write; [`DeviceError::Io`].
    pub fn erase_key(inner: &dyn Device) -> Result<(), DeviceError> {
        let mut io = Blocking::open(inner)?;
        let headers = headers(&mut io, inner)?;
        replace(&mut io, inner, &headers[0].erased())
    }

    /// Decrypts a block as it is on the device below, for checks of its content.
    ///
    /// # Panics
    /// If it is shorter than 16 bytes.
    pub fn decrypt(&self, lba: u64, block: &mut [u8]) {
        let mut xts = Xts::new(self.key.bytes()).expect("the key of an open device");
        channel::decrypt(&mut xts, lba, block);
    }

    /// Blocks of the device before block 0 of the volume.
    fn first(&self) -> u64 {
        CRYPT_HEADER_BYTES / u64::from(self.inner.geometry().block_bytes)
    }
}

impl Device for Crypt {
    fn geometry(&self) -> Geometry {
        let geometry = self.inner.geometry();
        Geometry {
            blocks: geometry.blocks.saturating_sub(self.first()),
            ..geometry
        }
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = self.inner.capabilities();
        Capabilities {
            // Requests are encrypted one by one.
            extents_max: 0,
            max_transfer_bytes: capabilities.max_transfer_bytes.min(TRANSFER_MAX_BYTES),
            ..capabilities
        }
    }

    fn supports(&self, operation: Operation) -> bool {
        match operation {
            // The channel compares.
            Operation::Compare => self.inner.supports(Operation::Read),
            other => self.inner.supports(other),
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let inner = self.inner.open(driver)?;
        let (geometry, capabilities) = (self.geometry(), self.capabilities());
        let channel = CryptChannel::new(inner, geometry, capabilities, self.first(), &self.key)?;
        Ok(Box::new(channel))
    }

    fn outlives_channels(&self) -> bool {
        self.inner.outlives_channels()
    }

    fn cache_losses(&self) -> u32 {
        self.inner.cache_losses()
    }

    fn cache_life(&self) -> CacheLife {
        self.inner.cache_life()
    }

    fn inherit_writes(&self) {
        self.inner.inherit_writes();
    }

    fn device_time(&self) -> Option<DeviceTime> {
        self.inner.device_time()
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        let all = blocks
            .checked_add(self.first())
            .filter(|_| blocks > 0)
            .ok_or_else(|| {
                DeviceError::Invalid(format!(
                    "invalid size of an encrypted device: {blocks} blocks"
                ))
            })?;
        self.inner.resize(all)
    }

    /// Whole blocks only.
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_within(self.geometry(), offset, len)?;
        let block = u64::from(self.geometry().block_bytes);
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(DeviceError::Invalid(format!(
                "range {offset}+{len} of an encrypted device is not whole blocks of {block} bytes"
            )));
        }
        self.inner.erase(CRYPT_HEADER_BYTES + offset, len)
    }
}

/// Why no header was read.
enum Refused {
    Header(HeaderError),
    Device(DeviceError),
}

impl From<Refused> for DeviceError {
    fn from(error: Refused) -> Self {
        match error {
            Refused::Header(error) => refused(error),
            Refused::Device(error) => error,
        }
    }
}

/// Reads the valid copies of the header, the newest first.
fn headers(io: &mut Blocking, device: &dyn Device) -> Result<Vec<Header>, Refused> {
    check_size(device).map_err(Refused::Device)?;
    let mut copies = [[0; COPY_BYTES]; 2];
    for (at, copy) in COPIES_AT.into_iter().zip(&mut copies) {
        io.read(at, copy).map_err(Refused::Device)?;
    }
    Header::read(&copies).map_err(Refused::Header)
}

/// Writes both copies, one after the other.
fn write(io: &mut Blocking, header: &Header) -> Result<(), DeviceError> {
    COPIES_AT
        .into_iter()
        .try_for_each(|at| io.write(at, header.bytes()))
}

/// Writes both copies, and reads them back.
fn replace(io: &mut Blocking, device: &dyn Device, header: &Header) -> Result<(), DeviceError> {
    write(io, header)?;
    let found = headers(io, device)?;
    if found.len() == 2 && found.iter().all(|copy| copy == header) {
        return Ok(());
    }
    let reason = "the encryption header reads back otherwise than it was written: the old key may \
                  still be on the device; check the device, then repeat the command";
    Err(DeviceError::Invalid(reason.to_owned()))
}

fn refused(error: HeaderError) -> DeviceError {
    let remedy = match error {
        HeaderError::None => "encrypt an empty device with create = true, or remove crypt",
        HeaderError::Damaged => "restore its first MiB from a backup",
        HeaderError::Version(_) | HeaderError::Cipher(_) | HeaderError::Offset(_) => {
            "use a later version"
        }
        HeaderError::BlockBytes(_) => "use this block size",
        HeaderError::WrongKey => "use the key of this device",
        HeaderError::Erased => {
            "to use the device anew, write zeroes to its first 2 MiB and its last MiB"
        }
    };
    DeviceError::Invalid(format!(
        "cannot open the encrypted device: {error}; {remedy}"
    ))
}

fn check_size(device: &dyn Device) -> Result<(), DeviceError> {
    let bytes = device.geometry().bytes();
    if bytes > CRYPT_HEADER_BYTES {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!(
        "a device of {bytes} bytes cannot be encrypted: the header takes {CRYPT_HEADER_BYTES}; use \
         a larger one"
    )))
}

/// Checks that the place of the header, the first data after it, and the last data are zeroes.
fn check_empty(io: &mut Blocking, device: &dyn Device) -> Result<(), DeviceError> {
    let bytes = device.geometry().bytes();
    let samples = [
        0..bytes.min(2 * CRYPT_HEADER_BYTES),
        bytes.saturating_sub(CRYPT_HEADER_BYTES)..bytes,
    ];
    let mut piece = vec![0; REQUEST_BYTES];
    for sample in samples {
        let mut at = sample.start;
        while at < sample.end {
            let left = usize::try_from(sample.end - at).unwrap_or(REQUEST_BYTES);
            let piece = &mut piece[..left.min(REQUEST_BYTES)];
            io.read(at, piece)?;
            if let Some(index) = piece.iter().position(|&byte| byte != 0) {
                let used = at + index as u64;
                return Err(DeviceError::Invalid(format!(
                    "the device has content at byte {used} and no encryption header, and would be \
                     overwritten; if the content is not needed, write zeroes to its first 2 MiB and \
                     its last MiB, or use another device"
                )));
            }
            at += piece.len() as u64;
        }
    }
    Ok(())
}

/// Draws a data key and a salt.
fn draw() -> Result<(DataKey, Salt), DeviceError> {
    let mut key = Zeroizing::new([0; xts::KEY_BYTES]);
    let mut salt = Salt {
        uuid: [0; 16],
        nonce: [0; 12],
    };
    let drawn = [&mut key[..], &mut salt.uuid, &mut salt.nonce]
        .into_iter()
        .try_for_each(aws_lc_rs::rand::fill);
    drawn.map_err(|_| DeviceError::Invalid("the system has no random numbers".to_owned()))?;
    // An RFC 9562 UUID of random bits.
    salt.uuid[6] = salt.uuid[6] & 0x0F | 0x40;
    salt.uuid[8] = salt.uuid[8] & 0x3F | 0x80;
    Ok((DataKey::new(&key), salt))
}

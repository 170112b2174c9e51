//! Structures and numbers of the kernel's ublk driver. `[linux/ublk_cmd.h]`
//!
//! All are in the machine's byte order. Nothing here calls the kernel.
#![expect(
    clippy::host_endian_bytes,
    reason = "the kernel's structures have this machine's order"
)]

use block::{Geometry, Operation};

/// Bytes of a sector, the unit of the driver's ranges.
const SECTOR_BYTES: u32 = 512;

/// Bytes of a control command, without the entry's padding.
const CONTROL_BYTES: u32 = 32;

/// A command to `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// Creates a device; the kernel sets its number and limits.
    AddDevice,
    /// Removes a device once its character device is closed.
    DeleteDevice,
    /// Creates the block device, once all tags of all queues wait for requests.
    StartDevice,
    /// Removes the block device, and then ends the commands of all tags.
    StopDevice,
    SetParameters,
    GetParameters,
    GetDeviceInfo,
    /// Prepares a device whose process has ended for another process.
    StartRecovery,
    /// Passes the requests to that process, once all tags of all queues wait for them.
    EndRecovery,
    /// Reads the kernel's features.
    GetFeatures,
    /// Changes the size of a device that has [`features::UPDATE_SIZE`].
    UpdateSize,
}

impl Control {
    /// Returns the direction, the number and the name of the command.
    const fn row(self) -> (u32, u32, &'static str) {
        const READ: u32 = 2;
        const READ_WRITE: u32 = 3;
        match self {
            Self::GetDeviceInfo => (READ, 0x02, "GET_DEV_INFO"),
            Self::AddDevice => (READ_WRITE, 0x04, "ADD_DEV"),
            Self::DeleteDevice => (READ_WRITE, 0x05, "DEL_DEV"),
            Self::StartDevice => (READ_WRITE, 0x06, "START_DEV"),
            Self::StopDevice => (READ_WRITE, 0x07, "STOP_DEV"),
            Self::SetParameters => (READ_WRITE, 0x08, "SET_PARAMS"),
            Self::GetParameters => (READ, 0x09, "GET_PARAMS"),
            Self::StartRecovery => (READ_WRITE, 0x10, "START_USER_RECOVERY"),
            Self::EndRecovery => (READ_WRITE, 0x11, "END_USER_RECOVERY"),
            Self::GetFeatures => (READ, 0x13, "GET_FEATURES"),
            Self::UpdateSize => (READ_WRITE, 0x15, "UPDATE_SIZE"),
        }
    }

    /// Returns the command's `ioctl` code, in the generic encoding that most architectures use.
    pub(super) const fn code(self) -> u32 {
        let (direction, number, _) = self.row();
        direction << 30 | CONTROL_BYTES << 16 | (b'u' as u32) << 8 | number
    }

    /// Returns the command's name in messages.
    pub(super) const fn name(self) -> &'static str {
        self.row().2
    }
}

/// Returns the bytes of a control command (`struct ublksrv_ctrl_cmd`) that refers to no queue, with
/// the address and length of a buffer and one number.
pub(super) fn control_command(id: u32, (address, len): (u64, u16), data: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &id.to_ne_bytes());
    put(4, &u16::MAX.to_ne_bytes());
    put(6, &len.to_ne_bytes());
    put(8, &address.to_ne_bytes());
    put(16, &data.to_ne_bytes());
    bytes
}

/// Features of a device or of the kernel.
pub(super) mod features {
    /// Requests wait after their server process has ended (`UBLK_F_USER_RECOVERY`).
    pub(in super::super) const USER_RECOVERY: u64 = 1 << 3;
    /// Requests that the ended process had taken are reissued to the next one
    /// (`UBLK_F_USER_RECOVERY_REISSUE`).
    pub(in super::super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Command codes use the `ioctl` encoding (`UBLK_F_CMD_IOCTL_ENCODE`).
    pub(in super::super) const IOCTL_ENCODE: u64 = 1 << 6;
    /// Data is read from and written to the character device (`UBLK_F_USER_COPY`).
    pub(in super::super) const USER_COPY: u64 = 1 << 7;
    /// The size can be changed (`UBLK_F_UPDATE_SIZE`).
    pub(in super::super) const UPDATE_SIZE: u64 = 1 << 10;
    /// Required features.
    pub(in super::super) const NEEDED: u64 =
        USER_RECOVERY | USER_RECOVERY_REISSUE | IOCTL_ENCODE | USER_COPY;
}

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceState {
    /// Without a block device.
    Dead,
    /// The block device is being served.
    Live,
    /// Its server process has ended, and requests wait for another one.
    Quiesced,
    /// Another state, of later kernels.
    Other(u16),
}

/// Bytes of [`DeviceInfo`] (`struct ublksrv_ctrl_dev_info`).
pub(super) const DEVICE_INFO_BYTES: usize = 64;

/// Number and limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    /// Number of tags of each queue.
    pub(super) depth: u16,
    pub(super) state: DeviceState,
    /// Maximum data bytes of a request.
    pub(super) request_bytes: u32,
    /// The N of `/dev/ublkbN`; [`ANY_ID`]: chosen by the kernel.
    pub(super) id: u32,
    /// The process that serves it, or last served it; −1 before the first one.
    pub(super) process: i32,
    /// [`features`] of the device.
    pub(super) flags: u64,
    /// Half of the volume's identity, and the [mark](crate::cache_life::mark) of the device's cache
    /// life at creation. The kernel stores both for servers (`ublksrv_flags`).
    pub(super) identity: u32,
    pub(super) life: u32,
}

/// Device number that makes the kernel choose one.
pub(super) const ANY_ID: u32 = u32::MAX;

impl DeviceInfo {
    pub(super) fn to_bytes(self) -> [u8; DEVICE_INFO_BYTES] {
        let mut bytes = [0; DEVICE_INFO_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.queues.to_ne_bytes());
        put(2, &self.depth.to_ne_bytes());
        put(8, &self.request_bytes.to_ne_bytes());
        put(12, &self.id.to_ne_bytes());
        put(16, &self.process.to_ne_bytes());
        put(24, &self.flags.to_ne_bytes());
        let kept = u64::from(self.life) << u32::BITS | u64::from(self.identity);
        put(32, &kept.to_ne_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; DEVICE_INFO_BYTES]) -> Self {
        let state = match u16_at(bytes, 4) {
            0 => DeviceState::Dead,
            1 => DeviceState::Live,
            2 => DeviceState::Quiesced,
            other => DeviceState::Other(other),
        };
        Self {
            queues: u16_at(bytes, 0),
            depth: u16_at(bytes, 2),
            state,
            request_bytes: u32_at(bytes, 8),
            id: u32_at(bytes, 12),
            process: u32_at(bytes, 16).cast_signed(),
            flags: u64_at(bytes, 24),
            identity: low_half(u64_at(bytes, 32)),
            life: low_half(u64_at(bytes, 32) >> u32::BITS),
        }
    }
}

/// Bytes of [`Parameters`] (`struct ublk_params` up to and including its discard part).
pub(super) const PARAMETER_BYTES: usize = 60;

/// Properties of the block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) geometry: Geometry,
    pub(super) read_only: bool,
    /// Optimal I/O size in bytes, a power of two; less than a block for no preference.
    pub(super) preferred_bytes: u32,
    /// Maximum data bytes of a request.
    pub(super) request_bytes: u32,
    pub(super) takes_discards: bool,
    pub(super) takes_zeroes: bool,
}

const PARAMETER_BASIC: u32 = 1 << 0;
const PARAMETER_DISCARD: u32 = 1 << 1;
const ATTRIBUTE_READ_ONLY: u32 = 1 << 0;
const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
const ATTRIBUTE_FUA: u32 = 1 << 3;

impl Parameters {
    /// Returns the kernel's structure. The physical block size is the logical one; the device has a
    /// write cache and FUA. A read-only device accepts neither discard nor write zeroes.
    pub(super) fn to_bytes(self) -> [u8; PARAMETER_BYTES] {
        let mut bytes = [0; PARAMETER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let block = self.geometry.block_bytes;
        let shift = |bytes: u32| u8::try_from(bytes.ilog2()).expect("less than 32");
        let (types, read_only) = if self.read_only {
            (PARAMETER_BASIC, ATTRIBUTE_READ_ONLY)
        } else {
            (PARAMETER_BASIC | PARAMETER_DISCARD, 0)
        };
        let attributes = read_only | ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA;
        let len = u32::try_from(PARAMETER_BYTES).expect("60");
        put(0, &len.to_ne_bytes());
        put(4, &types.to_ne_bytes());
        put(8, &attributes.to_ne_bytes());
        // Logical block, physical block, optimal and minimum I/O size, as powers of two.
        put(12, &[shift(block), shift(block)]);
        put(14, &[shift(self.preferred_bytes.max(block)), shift(block)]);
        put(16, &(self.request_bytes / SECTOR_BYTES).to_ne_bytes());
        put(24, &sectors(self.geometry).to_ne_bytes());
        if !self.read_only {
            let most = |takes: bool| if takes { RANGE_SECTORS_MAX } else { 0 };
            // Granularity; maximum sectors of a discard and of write zeroes; one range each.
            put(44, &block.to_ne_bytes());
            put(48, &most(self.takes_discards).to_ne_bytes());
            put(52, &most(self.takes_zeroes).to_ne_bytes());
            put(56, &1u16.to_ne_bytes());
        }
        bytes
    }

    /// Parses the parameters of an existing device; `None` if the block size is invalid.
    pub(super) fn from_bytes(bytes: &[u8; PARAMETER_BYTES]) -> Option<Self> {
        let block_bytes = 1u32.checked_shl(bytes[12].into())?;
        let block_sectors = u64::from(block_bytes / SECTOR_BYTES);
        Some(Self {
            geometry: Geometry {
                block_bytes,
                blocks: u64_at(bytes, 24).checked_div(block_sectors)?,
            },
            read_only: u32_at(bytes, 8) & ATTRIBUTE_READ_ONLY != 0,
            preferred_bytes: 1u32.checked_shl(bytes[14].into())?,
            request_bytes: u32_at(bytes, 16).checked_mul(SECTOR_BYTES)?,
            takes_discards: u32_at(bytes, 48) > 0,
            takes_zeroes: u32_at(bytes, 52) > 0,
        })
    }
}

/// Maximum sectors of a discard or write-zeroes request: 2 GiB, in whole blocks of 4 KiB.
const RANGE_SECTORS_MAX: u32 = 1 << 22;

/// Returns the size of a device in sectors.
pub(super) fn sectors(geometry: Geometry) -> u64 {
    geometry.bytes() / u64::from(SECTOR_BYTES)
}

/// Bytes of a request's descriptor (`struct ublksrv_io_desc`).
pub(super) const DESCRIPTOR_BYTES: usize = 24;

/// Distance in bytes between the descriptors of successive queues: the size of the largest queue's
/// descriptors.
pub(super) const DESCRIPTORS_STRIDE: u64 = 4096 * DESCRIPTOR_BYTES as u64;

/// A request from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) operation: Operation,
    /// Start of the range, in bytes.
    pub(super) offset: u64,
    /// Length of the range, in bytes; 0 for a flush.
    pub(super) bytes: u64,
}

impl Request {
    /// Parses a request's descriptor; `None` for an unsupported operation.
    pub(super) fn parse(bytes: &[u8; DESCRIPTOR_BYTES]) -> Option<Self> {
        const FUA: u32 = 1 << 13;
        const NO_UNMAP: u32 = 1 << 15;
        let word = u32_at(bytes, 0);
        let durable = word & FUA != 0;
        let operation = match word & 0xff {
            0 => Operation::Read,
            1 => Operation::Write { durable },
            2 => {
                return Some(Self {
                    operation: Operation::Flush,
                    offset: 0,
                    bytes: 0,
                });
            }
            3 => Operation::Deallocate,
            5 => Operation::WriteZeroes {
                deallocate: word & NO_UNMAP == 0,
                durable,
            },
            _ => return None,
        };
        Some(Self {
            operation,
            offset: u64_at(bytes, 8).checked_mul(SECTOR_BYTES.into())?,
            bytes: u64::from(u32_at(bytes, 4)) * u64::from(SECTOR_BYTES),
        })
    }

    /// Bytes of data transferred with the request.
    pub(super) const fn data_bytes(&self) -> u64 {
        if self.operation.has_data() {
            self.bytes
        } else {
            0
        }
    }
}

/// Returns the offset of a request's data in the character device: `at` bytes from its start, less
/// than 32 MiB.
pub(super) const fn data_offset(queue: u16, tag: u16, at: u64) -> u64 {
    const START: u64 = 0x8000_0000;
    START + ((queue as u64) << 41 | (tag as u64) << 25 | at)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes[at..at + 4].try_into();
    u32::from_ne_bytes(field.expect("four bytes"))
}

/// Returns the lower 32 bits of a number.
pub(super) fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("32 bits")
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes[at..at + 8].try_into();
    u64::from_ne_bytes(field.expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(word: u32, sectors: u32, start: u64) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&word.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&start.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_description_is_a_request() {
        let parse = |word| Request::parse(&descriptor(word, 8, 24)).map(|r| r.operation);
        let (fua, no_unmap, swap) = (1 << 13, 1 << 15, 1 << 16);
        assert_eq!(parse(swap), Some(Operation::Read));
        assert_eq!(parse(1), Some(Operation::Write { durable: false }));
        assert_eq!(parse(1 | fua), Some(Operation::Write { durable: true }));
        assert_eq!(parse(2), Some(Operation::Flush));
        assert_eq!(parse(3), Some(Operation::Deallocate));
        let zeroes = |deallocate, durable| {
            Some(Operation::WriteZeroes {
                deallocate,
                durable,
            })
        };
        assert_eq!(parse(5), zeroes(true, false));
        assert_eq!(parse(5 | no_unmap | fua), zeroes(false, true));
        for other in [4, 6, 13, 15, 18, 255] {
            assert_eq!(parse(other), None);
        }
        let request = Request::parse(&descriptor(0, 8, 24)).expect("a read");
        assert_eq!((request.offset, request.bytes), (24 * 512, 4096));
        assert_eq!(request.data_bytes(), 4096);
        let discard = Request::parse(&descriptor(3, u32::MAX, 0)).expect("a discard");
        assert_eq!(
            (discard.bytes, discard.data_bytes()),
            (u64::from(u32::MAX) * 512, 0)
        );
        assert_eq!(Request::parse(&descriptor(0, 8, u64::MAX / 512 + 1)), None);
    }

    #[test]
    fn parameters_say_what_they_were_made_of() {
        let parameters = |block_bytes, read_only| Parameters {
            geometry: Geometry {
                block_bytes,
                blocks: 1000,
            },
            read_only,
            preferred_bytes: 16 << 10,
            request_bytes: 128 << 10,
            takes_discards: !read_only,
            takes_zeroes: false,
        };
        for (block, shift) in [(512, 9), (4096, 12)] {
            let bytes = parameters(block, false).to_bytes();
            assert_eq!(bytes[12..16], [shift, shift, 14, shift]);
            assert_eq!(u32_at(&bytes, 16), 256);
            assert_eq!(u64_at(&bytes, 24), 1000 * u64::from(block) / 512);
            assert_eq!(u32_at(&bytes, 44), block);
            assert_eq!(
                Parameters::from_bytes(&bytes),
                Some(parameters(block, false))
            );
        }
        let bytes = parameters(4096, true).to_bytes();
        assert_eq!(u32_at(&bytes, 4), 1, "no discards");
        assert_eq!(u32_at(&bytes, 8) & 1, 1);
        assert_eq!(Parameters::from_bytes(&bytes), Some(parameters(4096, true)));
        let mut odd = bytes;
        odd[12] = 255;
        assert_eq!(Parameters::from_bytes(&odd), None);
        odd[12] = 3;
        assert_eq!(Parameters::from_bytes(&odd), None);
    }

    #[test]
    fn numbers_are_where_the_kernel_has_them() {
        // The values of the C library's header files.
        assert_eq!(Control::AddDevice.code(), 0xC020_7504);
        assert_eq!(Control::GetFeatures.code(), 0x8020_7513);
        let info = DeviceInfo {
            queues: 3,
            depth: 128,
            state: DeviceState::Dead,
            request_bytes: 1 << 20,
            id: 7,
            process: -1,
            flags: features::NEEDED,
            identity: 0x89ab_cdef,
            life: 0x0123_4567,
        };
        assert_eq!(DeviceInfo::from_bytes(&info.to_bytes()), info);
        assert_eq!(u64_at(&info.to_bytes(), 32), 0x0123_4567_89ab_cdef);
        assert_eq!(data_offset(0, 0, 0), 0x8000_0000);
        assert_eq!(
            data_offset(2, 5, 512),
            0x8000_0000 + (2 << 41) + (5 << 25) + 512
        );
        let command = control_command(9, (0x1234, 64), 77);
        assert_eq!(u32_at(&command, 0), 9);
        assert_eq!(u16_at(&command, 4), u16::MAX);
        assert_eq!(u16_at(&command, 6), 64);
        assert_eq!((u64_at(&command, 8), u64_at(&command, 16)), (0x1234, 77));
    }
}

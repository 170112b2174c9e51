//! Commands to `/dev/ublk-control`, on a small separate ring: the kernel accepts them only in
//! entries of 128 bytes.
#![allow(unsafe_code)] // The kernel reads and writes a buffer that an entry names.

use super::abi::{self, DEVICE_INFO_BYTES, DeviceInfo, PARAMETER_BYTES, Parameters};
use super::error::UblkError;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

/// The character device that creates and removes devices.
const CONTROL: &str = "/dev/ublk-control";

/// Bytes of the largest command buffer.
const BUFFER_BYTES: usize = 64;

/// The kernel's ublk driver.
pub(super) struct Driver {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    control: File,
    /// The command that has begun and not completed.
    pending: Option<abi::Control>,
    /// Buffer of the commands. The kernel holds its address while a command is pending.
    buffer: Box<[u8; BUFFER_BYTES]>,
}

impl Driver {
    pub(super) fn open() -> Result<Self, UblkError> {
        let control = File::options().read(true).write(true).open(CONTROL);
        let control = control.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UblkError::NoDriver,
            io::ErrorKind::PermissionDenied => UblkError::NotPermitted,
            _ => UblkError::Control(error),
        })?;
        let ring = IoUring::builder().build(4).map_err(UblkError::Ring)?;
        Ok(Self {
            ring,
            control,
            pending: None,
            buffer: Box::new([0; BUFFER_BYTES]),
        })
    }

    /// Returns true if no command is pending.
    pub(super) const fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// Returns the kernel's features.
    pub(super) fn features(&mut self) -> Result<u64, UblkError> {
        let bytes = self.exchange::<8>(abi::Control::GetFeatures, 0, &[0; 8]);
        match bytes {
            #[expect(clippy::host_endian_bytes, reason = "a number of this machine's")]
            Ok(bytes) => Ok(u64::from_ne_bytes(bytes)),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) => {
                Err(UblkError::NotPermitted)
            }
            Err(_) => Err(UblkError::TooOld),
        }
    }

    /// Creates a device; returns it with the number and limits assigned by the kernel.
    pub(super) fn add(&mut self, info: DeviceInfo) -> io::Result<DeviceInfo> {
        let bytes = self.exchange(abi::Control::AddDevice, info.id, &info.to_bytes())?;
        Ok(DeviceInfo::from_bytes(&bytes))
    }

    /// Returns a device; `None` if no device has this number.
    pub(super) fn info(&mut self, id: u32) -> io::Result<Option<DeviceInfo>> {
        let empty = [0; DEVICE_INFO_BYTES];
        match self.exchange(abi::Control::GetDeviceInfo, id, &empty) {
            Ok(bytes) => Ok(Some(DeviceInfo::from_bytes(&bytes))),
            Err(error) if is_no_device(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn set_parameters(&mut self, id: u32, parameters: Parameters) -> io::Result<()> {
        self.exchange(abi::Control::SetParameters, id, &parameters.to_bytes())?;
        Ok(())
    }

    pub(super) fn parameters(&mut self, id: u32) -> io::Result<Parameters> {
        // The kernel requires the structure's length in its first field.
        let mut bytes = [0; PARAMETER_BYTES];
        bytes[0] = u8::try_from(PARAMETER_BYTES).expect("less than 256");
        #[cfg(target_endian = "big")]
        bytes[..4].reverse();
        let bytes = self.exchange(abi::Control::GetParameters, id, &bytes)?;
        let parameters = Parameters::from_bytes(&bytes);
        parameters.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Executes a command with a buffer of `N` bytes, and returns the buffer's content afterwards.
    fn exchange<const N: usize>(
        &mut self,
        command: abi::Control,
        id: u32,
        bytes: &[u8; N],
    ) -> io::Result<[u8; N]> {
        const { assert!(N <= BUFFER_BYTES) };
        self.buffer[..N].copy_from_slice(bytes);
        let address = self.buffer.as_mut_ptr().expose_provenance() as u64;
        let len = u16::try_from(N).expect("it is bounded");
        self.push(command, abi::control_command(id, (address, len), 0))?;
        self.wait()?;
        let mut answer = [0; N];
        answer.copy_from_slice(&self.buffer[..N]);
        Ok(answer)
    }

    /// Executes a command without a buffer.
    pub(super) fn execute(&mut self, command: abi::Control, id: u32, data: u64) -> io::Result<()> {
        self.begin(command, id, data)?;
        self.wait()
    }

    /// Begins a command without a buffer; the next call must be [`wait_until`](Self::wait_until).
    pub(super) fn begin(&mut self, command: abi::Control, id: u32, data: u64) -> io::Result<()> {
        self.push(command, abi::control_command(id, (0, 0), data))
    }

    /// Begins a command without a buffer, unless the same command is already pending. A different
    /// pending command is abandoned together with its ring and buffer.
    pub(super) fn begin_anew(&mut self, command: abi::Control, id: u32) -> io::Result<()> {
        match self.pending {
            Some(pending) if pending == command => return Ok(()),
            Some(_) => {
                let ring = IoUring::builder().build(4)?;
                self.leave_buffer();
                self.ring = ring;
            }
            None => {}
        }
        self.begin(command, id, 0)
    }

    /// Abandons the buffer to the pending command.
    fn leave_buffer(&mut self) {
        if self.pending.take().is_some() {
            let buffer = Box::new([0; BUFFER_BYTES]);
            // The kernel may still hold its address.
            Box::leak(std::mem::replace(&mut self.buffer, buffer));
        }
    }

    fn push(&mut self, command: abi::Control, bytes: [u8; 80]) -> io::Result<()> {
        assert!(self.pending.is_none(), "one command at a time");
        let fd = types::Fd(self.control.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, command.code()).cmd(bytes);
        self.pending = Some(command);
        // SAFETY: the command names at most the first bytes of `buffer`, which is neither moved nor
        // touched before the command has completed; it stays for ever if that is never seen.
        let pushed = unsafe { self.ring.submission().push(&entry.build()) };
        pushed.expect("the ring has room for one entry");
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        loop {
            if let Some(result) = self.wait_until(Instant::now() + Duration::from_secs(60))? {
                return result;
            }
        }
    }

    /// Waits for the pending command; `None` if it has not completed by `end`.
    ///
    /// # Errors The outer error is the ring's, the inner one the command's.
    pub(super) fn wait_until(&mut self, end: Instant) -> io::Result<Option<io::Result<()>>> {
        loop {
            if let Some(entry) = self.ring.completion().next() {
                self.pending = None;
                let result = entry.result();
                return Ok(Some(if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok(())
                }));
            }
            let left = end.saturating_duration_since(Instant::now());
            let timeout = types::Timespec::from(left);
            let arguments = types::SubmitArgs::new().timespec(&timeout);
            match self.ring.submitter().submit_with_args(1, &arguments) {
                Ok(_) => {}
                Err(error) if is_interruption(&error) => {}
                Err(error) => return Err(error),
            }
            if left.is_zero() && self.ring.completion().is_empty() {
                return Ok(None);
            }
        }
    }
}

/// Returns true if the error means that no device has the number.
pub(super) fn is_no_device(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Returns true if a wait was interrupted or timed out, and may be repeated.
fn is_interruption(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error();
    [Errno::INTR, Errno::TIME, Errno::AGAIN, Errno::BUSY]
        .iter()
        .any(|errno| number == Some(errno.raw_os_error()))
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.leave_buffer();
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

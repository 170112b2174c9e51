//! From what a configuration or a flag says to a device.

use super::crypt_key;
use base::Nanos;
use block::device::{FileDevice, FileOptions, Flash, Null, Ram};
use block::layer::{Crypt, Delay, Fault, Verify};
use block::limits::CRYPT_HEADER_BYTES;
use block::{Cache, CacheOptions, Device, DeviceError, PathDevice};
use config::files::folder_above;
use config::schema::{Device as Model, DeviceKind, IoPath, Size};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Requests of one core that a device with an I/O path takes at a time.
const PATH_DEPTH: u32 = 256;

/// Opens a device with its layers: encryption lies at the bottom, faults lie below the delay, and verification above both, so
/// that it sees what a user would of them. A path lies above these, and a cache above all.
///
/// # Errors
/// What the device or a layer refuses.
pub fn open(model: &Model) -> Result<Arc<dyn Device>, DeviceError> {
    open_identified(model, None, None).map(|identified| identified.device)
}

/// Returns the options of a cache of this size.
///
/// # Errors
/// A size that a cache cannot have, or for which this machine has too little memory.
pub fn cache_options(size: Size) -> Result<CacheOptions, DeviceError> {
    let options = CacheOptions::of_bytes(size.bytes)?;
    let memory = memory_bytes();
    if size.bytes > memory {
        return Err(DeviceError::Invalid(format!(
            "a cache of {size} does not fit the memory of this machine, which has {} MiB; choose a \
             smaller size",
            memory >> 20
        )));
    }
    Ok(options)
}

/// Returns the bytes of memory that this machine has.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// An open device.
#[derive(Debug)]
pub struct Identified {
    /// The device with its layers.
    pub device: Arc<dyn Device>,
    /// A text that names its content: a file's identity, and a new one for memory each time,
    /// because it begins empty.
    pub content: String,
    /// The cache among its layers.
    pub cache: Option<Cache>,
    /// The device below its layers: the lock of a file goes with it.
    pub innermost: Weak<dyn Device>,
}

/// A device of a target that is taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedDevice {
    /// Its name.
    pub name: String,
    /// The text that names its content.
    pub content: String,
    /// It has a file with its content or its lock.
    pub has_file: bool,
}

/// What the process before gives of a device.
#[derive(Debug)]
pub struct TakenOver {
    /// The file with its content or its lock; `None` for a device that needs none.
    pub file: Option<File>,
    /// The text that names its content.
    pub content: String,
}

/// The same, with what is known beside the device. Its file lies below one of `folders` where there
/// are such, or comes from the process before.
///
/// # Errors
/// As [`open`].
pub fn open_identified(
    model: &Model,
    folders: Option<&[PathBuf]>,
    taken_over: Option<TakenOver>,
) -> Result<Identified, DeviceError> {
    let cache_options = model.cache.map(cache_options).transpose()?;
    let mut kind = model.kind.clone();
    let key = model
        .crypt
        .as_ref()
        .map(|crypt| crypt_key::read(crypt, folders));
    let key = key.transpose()?;
    if let (Some(_), Some(size)) = (&key, kind.size()) {
        // The size is that of the volume.
        kind.set_size(Size::from_bytes(
            size.bytes.saturating_add(CRYPT_HEADER_BYTES),
        ));
    }
    let (mut device, content) = match taken_over {
        Some(taken_over) => take_over_kind(&kind, taken_over)?,
        None => open_kind(&kind, folders)?,
    };
    let innermost = Arc::downgrade(&device);
    if let (Some(key), Some(crypt)) = (key, &model.crypt) {
        device = Arc::new(Crypt::open(device, &key, crypt.create)?);
    }
    if let Some(fault) = &model.fault {
        let options = fault.options().ok_or_else(|| {
            let needs = "a fault rule needs one of error, delay_us, hang and torn_blocks";
            DeviceError::Invalid(needs.to_owned())
        })?;
        device = Arc::new(Fault::new(device, &options)?);
    }
    if let Some(delay) = model.delay {
        device = Arc::new(Delay::new(device, delay.options()));
    }
    if model.verify {
        device = Arc::new(Verify::new(device)?);
    }
    let mut path = None;
    if let Some(IoPath(spec)) = model.io_path {
        let started = PathDevice::start(device, spec.path, spec.rules)?;
        let started = path.insert(started.with_requests(PATH_DEPTH, u32::MAX));
        device = Arc::new(started.clone());
    }
    let mut cache = None;
    if let Some(mut options) = cache_options {
        if let Some(age) = model.cache_dirty_expire_ms {
            options.dirty_expire = Nanos::from_millis(age);
        }
        let cached = match path {
            Some(path) => Cache::over_path(path, options)?,
            None => Cache::new(device, options)?,
        };
        device = Arc::new(cache.insert(cached).clone());
    }
    Ok(Identified {
        device,
        content,
        cache,
        innermost,
    })
}

fn open_kind(
    kind: &DeviceKind,
    folders: Option<&[PathBuf]>,
) -> Result<(Arc<dyn Device>, String), DeviceError> {
    let block_bytes = block_bytes(kind);
    Ok(match kind {
        DeviceKind::Ram { size, .. } => {
            if size.bytes > memory_bytes() {
                tracing::warn!(
                    "a device of {size} is larger than the memory of this machine: it runs out as the \
                     device is written"
                );
            }
            (Arc::new(Ram::new(size.bytes, block_bytes)?), new_content())
        }
        // It has no content that could be another.
        DeviceKind::Null { size, .. } => {
            (Arc::new(Null::new(size.bytes, block_bytes)?), String::new())
        }
        DeviceKind::Flash { profile, size, .. } => {
            let flash = Flash::new(profile.0, size.bytes, block_bytes)?;
            (Arc::new(flash), new_content())
        }
        DeviceKind::File { path, size, .. } => {
            let options = file_options(kind, path);
            let file = match folders {
                None => FileDevice::open(options)?,
                Some(folders) => FileDevice::open_beneath(folder_above(path, folders), options)?,
            };
            let shown = path.display();
            tracing::info!(path = %shown, "opened: {}", file.mode());
            let tail =
                std::fs::metadata(path).map_or(0, |found| found.len() % kind.block_size().bytes());
            if size.is_none() && tail > 0 {
                tracing::warn!(
                    "the last {tail} bytes of {shown} are no whole block of {block_bytes} bytes, and \
                     not reached through the device"
                );
            }
            let identity = file.identity()?;
            (Arc::new(file), identity)
        }
    })
}

/// Returns the options of a file device.
fn file_options(kind: &DeviceKind, path: &Path) -> FileOptions {
    let (size, create, read_only) = match kind {
        DeviceKind::File {
            size,
            create,
            read_only,
            ..
        } => (*size, *create, *read_only),
        _ => (None, false, false),
    };
    FileOptions {
        path: path.to_owned(),
        block_bytes: block_bytes(kind),
        size: size.map(|size| size.bytes),
        create,
        read_only,
        direct: true,
    }
}

fn block_bytes(kind: &DeviceKind) -> u32 {
    u32::try_from(kind.block_size().bytes()).expect("512 or 4096")
}

/// Opens a device with what the process before gives of it.
fn take_over_kind(
    kind: &DeviceKind,
    taken_over: TakenOver,
) -> Result<(Arc<dyn Device>, String), DeviceError> {
    let TakenOver { file, content } = taken_over;
    let block_bytes = block_bytes(kind);
    let Some(file) = file else {
        return open_kind(kind, None);
    };
    let device: Arc<dyn Device> = match kind {
        DeviceKind::Ram { size, .. } => Arc::new(Ram::taken_over(file, size.bytes, block_bytes)?),
        DeviceKind::Flash { profile, size, .. } => {
            let ram = Ram::taken_over(file, size.bytes, block_bytes)?;
            Arc::new(Flash::over(ram, profile.0))
        }
        DeviceKind::File { path, .. } => {
            Arc::new(FileDevice::taken_over(file, file_options(kind, path))?)
        }
        DeviceKind::Null { .. } => return open_kind(kind, None),
    };
    Ok((device, content))
}

/// Returns a name for content that is new.
fn new_content() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::schema::BlockSize;

    /// A cache that could not fit filled the memory until the process was killed.
    #[test]
    fn a_cache_larger_than_the_memory_is_refused() {
        let block_size = BlockSize::B4096;
        let size = Size::from_bytes(1 << 20);
        let mut model = Model::new(DeviceKind::Null { size, block_size });
        model.cache = Some(size);
        open(&model).expect("a small one");
        let size = Size::from_bytes(memory_bytes() + 1);
        model.cache = Some(size);
        open(&model).expect_err("too large");
    }
}

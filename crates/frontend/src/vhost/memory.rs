//! The guest memory that the front end shares.

use super::guest_memory::Regions;
use crate::limits::GUEST_REGIONS_MAX;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use vhost::vhost_user::Error;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::mmap::MmapRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// Alignment of regions, in bytes: the smallest page size.
const ALIGNMENT: u64 = 4096;

/// One region, with its address in the front end's address space.
#[derive(Debug)]
struct Region {
    guest: u64,
    bytes: u64,
    user: u64,
    mapped: Arc<GuestRegionMmap>,
}

/// All regions.
#[derive(Debug, Default)]
pub(super) struct GuestRegions {
    regions: Vec<Region>,
    memory: Arc<Regions>,
}

impl GuestRegions {
    /// The current memory; a ring keeps the memory that it started with.
    pub(super) fn memory(&self) -> Arc<Regions> {
        Arc::clone(&self.memory)
    }

    /// Devices and inodes of the memory's files, sorted and without duplicates. They distinguish it
    /// from all other memory.
    pub(super) fn files(&self) -> Vec<(u64, u64)> {
        let files = self.regions.iter().filter_map(|region| {
            let file = region.mapped.file_offset()?.file().metadata().ok()?;
            Some((file.dev(), file.ino()))
        });
        let files: BTreeSet<_> = files.collect();
        files.into_iter().collect()
    }

    /// Replaces all regions.
    pub(super) fn set(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<(), Error> {
        if regions.len() != files.len() || regions.len() > GUEST_REGIONS_MAX {
            return Err(Error::InvalidParam);
        }
        let mapped = regions.iter().zip(files);
        let mapped = mapped.map(|(region, file)| map(region, file));
        let regions = mapped.collect::<Result<Vec<_>, _>>()?;
        self.replace(regions)
    }

    /// Adds a region.
    pub(super) fn add(&mut self, region: &VhostUserMemoryRegion, file: File) -> Result<(), Error> {
        if self.regions.len() >= GUEST_REGIONS_MAX {
            return Err(Error::InvalidParam);
        }
        let mut regions = std::mem::take(&mut self.regions);
        regions.push(map(region, file)?);
        self.replace(regions)
    }

    /// Removes a region.
    pub(super) fn remove(&mut self, region: &VhostUserMemoryRegion) -> Result<(), Error> {
        let mut regions = std::mem::take(&mut self.regions);
        let before = regions.len();
        let (guest, bytes, user) = (region.guest_phys_addr, region.memory_size, region.user_addr);
        regions.retain(|known| (known.guest, known.bytes, known.user) != (guest, bytes, user));
        let found = regions.len() < before;
        self.replace(regions)?;
        found.then_some(()).ok_or(Error::InvalidParam)
    }

    fn replace(&mut self, mut regions: Vec<Region>) -> Result<(), Error> {
        regions.sort_by_key(|region| region.guest);
        let mapped = regions.iter().map(|region| Arc::clone(&region.mapped));
        let memory = if regions.is_empty() {
            GuestMemoryMmap::new()
        } else {
            let memory = GuestMemoryMmap::from_arc_regions(mapped.collect());
            memory.map_err(|_| Error::InvalidParam)?
        };
        self.memory = Arc::new(Regions(memory));
        self.regions = regions;
        Ok(())
    }

    /// Translates an address of the front end to the guest's address.
    pub(super) fn guest_address(&self, user: u64) -> Result<GuestAddress, Error> {
        let found = self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user)?;
            (offset < region.bytes).then(|| GuestAddress(region.guest + offset))
        });
        found.ok_or(Error::InvalidParam)
    }
}

fn map(region: &VhostUserMemoryRegion, file: File) -> Result<Region, Error> {
    let (guest, bytes, user) = (region.guest_phys_addr, region.memory_size, region.user_addr);
    let (guest_end, user_end) = (guest.checked_add(bytes), user.checked_add(bytes));
    let size = usize::try_from(bytes).map_err(|_| Error::InvalidParam)?;
    // Ring fields that are aligned for the guest must be aligned here, too.
    let aligned = guest.is_multiple_of(ALIGNMENT) && bytes.is_multiple_of(ALIGNMENT);
    if guest_end.is_none() || user_end.is_none() || !aligned {
        return Err(Error::InvalidParam);
    }
    let mapped = MmapRegion::from_file(FileOffset::new(file, region.mmap_offset), size);
    let mapped = mapped.map_err(|error| Error::ReqHandlerError(std::io::Error::other(error)))?;
    let mapped = GuestRegionMmap::new(mapped, GuestAddress(guest)).ok_or(Error::InvalidParam)?;
    Ok(Region {
        guest,
        bytes,
        user,
        mapped: Arc::new(mapped),
    })
}

//! Accesses to a guest's memory.

use vm_memory::guest_memory::{Error, GuestMemoryBackendSliceIterator, GuestMemorySliceIterator};
use vm_memory::{
    GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryMmap, Permissions, VolatileSlice,
};

/// The regions of a guest's memory. An access looks up a range within one region only once. The
/// iterators of [`GuestMemoryMmap`] are moved before the look-up is done, which stalls on the
/// processor's stores: that took two fifths of a back end's time with 4 KiB reads.
#[derive(Debug, Default)]
pub(super) struct Regions(pub(super) GuestMemoryMmap);

impl GuestMemory for Regions {
    type PhysicalMemory = GuestMemoryMmap;
    type Bitmap = ();

    fn check_range(&self, at: GuestAddress, len: usize, _: Permissions) -> bool {
        self.0.get_slice(at, len).is_ok() || GuestMemoryBackend::check_range(&self.0, at, len)
    }

    #[inline]
    fn get_slices<'a>(
        &'a self,
        at: GuestAddress,
        len: usize,
        _: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'a, ()>, Error> {
        let whole = self.0.get_slice(at, len).ok().filter(|_| len > 0);
        let left = if whole.is_some() { 0 } else { len };
        let others = GuestMemoryBackend::get_slices(&self.0, at, left);
        Ok(Slices { whole, others })
    }
}

/// The parts of a range: the whole range, or one part per region.
struct Slices<'a> {
    whole: Option<VolatileSlice<'a>>,
    others: GuestMemoryBackendSliceIterator<'a, GuestMemoryMmap>,
}

impl<'a> Iterator for Slices<'a> {
    type Item = Result<VolatileSlice<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let whole = self.whole.take().map(Ok);
        whole.or_else(|| self.others.next())
    }
}

impl std::iter::FusedIterator for Slices<'_> {}

impl<'a> GuestMemorySliceIterator<'a, ()> for Slices<'a> {
    #[inline]
    fn stop_on_error(mut self) -> Result<impl Iterator<Item = VolatileSlice<'a>>, Error> {
        let first = self.next().transpose()?;
        let others = self.others.map_while(Result::ok);
        Ok(first.into_iter().chain(others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes as _;

    #[test]
    fn every_range_is_what_it_is_for_the_regions_themselves() {
        // Two adjacent regions, and one after a gap.
        let places = [(0, 16), (16, 16), (40, 8)].map(|(at, len)| (GuestAddress(at), len));
        let regions = || GuestMemoryMmap::from_ranges(&places).expect("a small memory");
        let (short, plain) = (Regions(regions()), regions());
        for at in 0..56 {
            for len in 0..56 {
                let place = GuestAddress(at);
                let inside = GuestMemory::check_range(&plain, place, len, Permissions::Write);
                assert_eq!(short.check_range(place, len, Permissions::Write), inside);
                let data: Vec<u8> = (1..).take(len).collect();
                let written = short.write(&data, place).ok();
                assert_eq!(written, plain.write(&data, place).ok(), "{at} {len}");
                let read = |memory: &dyn Fn(&mut [u8]) -> Option<usize>| {
                    let mut bytes = vec![0; len];
                    (memory(&mut bytes), bytes)
                };
                let by_short = read(&|bytes| short.read(bytes, place).ok());
                assert_eq!(by_short, read(&|bytes| plain.read(bytes, place).ok()));
            }
        }
    }
}

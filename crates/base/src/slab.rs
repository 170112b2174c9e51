//! A fixed-capacity pool with generation keys: a key becomes stale when its slot is freed.
//!
//! Memory is reserved at construction and touched at the first use of a slot. A full slab returns
//! the value instead of growing.

use std::fmt;

/// Key of an occupied slot of a [`Slab`]; stale after `remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabKey {
    /// Index of the slot.
    pub index: u32,
    /// Generation of the slot; wraps.
    pub generation: u8,
}

impl SlabKey {
    /// Bits of a [`tag`](Self::tag); higher bits are free for its user.
    pub const TAG_BITS: u32 = 40;

    /// Returns the key as one number.
    #[inline]
    #[must_use]
    pub const fn tag(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the key of a [`tag`](Self::tag), ignoring the upper bits.
    #[inline]
    #[must_use]
    pub const fn from_tag(tag: u64) -> Self {
        let [i0, i1, i2, i3, generation, ..] = tag.to_le_bytes();
        let index = u32::from_le_bytes([i0, i1, i2, i3]);
        Self { index, generation }
    }
}

struct Slot<T> {
    generation: u8,
    value: Option<T>,
}

/// A pool with a fixed number of slots.
pub struct Slab<T> {
    /// Slots used so far.
    slots: Vec<Slot<T>>,
    /// Indices of freed slots.
    free: Vec<u32>,
    capacity: usize,
}

impl<T> Slab<T> {
    /// A slab of `capacity` empty slots.
    ///
    /// # Panics
    /// If `capacity` does not fit in 32 bits.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(u32::try_from(capacity).is_ok(), "fewer than 2^32 slots");
        Self {
            slots: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity,
        }
    }

    /// Stores `value` in a free slot.
    ///
    /// # Errors
    /// The value, if all slots are in use.
    pub fn insert(&mut self, value: T) -> Result<SlabKey, T> {
        let index = if let Some(index) = self.free.pop() {
            index
        } else if self.slots.len() < self.capacity {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 slots")
        } else {
            return Err(value);
        };
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.value.is_none(), "a free slot is empty");
        slot.value = Some(value);
        Ok(SlabKey {
            index,
            generation: slot.generation,
        })
    }

    /// Removes the value and frees its slot; `None` for a stale key.
    pub fn remove(&mut self, key: SlabKey) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        debug_assert!(self.free.len() <= self.slots.len(), "a slot is freed once");
        Some(value)
    }

    /// The value under `key`; `None` for a stale key.
    #[must_use]
    pub fn get(&self, key: SlabKey) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_ref()
        } else {
            None
        }
    }

    /// The value under `key`, mutable; `None` for a stale key.
    pub fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    /// The key of slot `index`, if occupied.
    #[must_use]
    pub fn key_at(&self, index: u32) -> Option<SlabKey> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref()?;
        Some(SlabKey {
            index,
            generation: slot.generation,
        })
    }

    /// All occupied slots by index.
    pub fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        let occupied = (0u32..).zip(&self.slots).filter_map(|(index, slot)| {
            let value = slot.value.as_ref()?;
            Some((
                SlabKey {
                    index,
                    generation: slot.generation,
                },
                value,
            ))
        });
        occupied.take(self.len())
    }

    /// All occupied slots by index, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SlabKey, &mut T)> {
        let len = self.len();
        let occupied = (0u32..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let generation = slot.generation;
            let value = slot.value.as_mut()?;
            Some((SlabKey { index, generation }, value))
        });
        occupied.take(len)
    }

    /// Returns the number of slots in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if no slot is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if every slot is in use.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// Returns the number of slots, free or in use.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::with_capacity(1);
        let first = slab.insert('a').expect("a free slot");
        assert_eq!(slab.insert('b'), Err('b'));
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('c').expect("a free slot");
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'c'));
        assert_eq!(slab.key_at(0), Some(second));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_key_is_found_again_by_its_tag() {
        for (index, generation) in [(0, 0), (70_000, 255), (u32::MAX, 1)] {
            let key = SlabKey { index, generation };
            assert_eq!(SlabKey::from_tag(key.tag()), key);
            assert_eq!(SlabKey::from_tag(key.tag() | 7 << SlabKey::TAG_BITS), key);
        }
    }
}

//! One table of offsets per data structure, for both parsing and encoding.
//!
//! The large structures (identify data, log pages) have dozens of fields. Separate parse and encode
//! code would state every offset twice, and the two could diverge; the `layout!` macro states it
//! once, and proves at compile time that fields do not overlap and stay inside the structure.

/// A value with a fixed layout on the wire, little-endian.
pub(crate) trait Field: Sized {
    /// Bytes on the wire.
    const SIZE: usize;
    /// Reads the value from the first `SIZE` bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the value to the first `SIZE` bytes.
    fn put(&self, bytes: &mut [u8]);
    /// Reads `N` consecutive values.
    fn get_array<const N: usize>(bytes: &[u8]) -> [Self; N] {
        core::array::from_fn(|index| Self::get(&bytes[index * Self::SIZE..]))
    }
    /// Writes consecutive values.
    fn put_array(values: &[Self], bytes: &mut [u8]) {
        for (index, value) in values.iter().enumerate() {
            value.put(&mut bytes[index * Self::SIZE..]);
        }
    }
}

/// Byte arrays are long, and copied as a whole.
impl Field for u8 {
    const SIZE: usize = 1;
    #[inline]
    fn get(bytes: &[u8]) -> Self {
        bytes[0]
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        bytes[0] = *self;
    }
    #[inline]
    fn get_array<const N: usize>(bytes: &[u8]) -> [Self; N] {
        let mut raw = [0; N];
        raw.copy_from_slice(&bytes[..N]);
        raw
    }
    #[inline]
    fn put_array(values: &[Self], bytes: &mut [u8]) {
        bytes[..values.len()].copy_from_slice(values);
    }
}

macro_rules! integer_field {
    ($($ty:ty),+) => {$(
        impl Field for $ty {
            const SIZE: usize = size_of::<$ty>();
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$ty>()];
                raw.copy_from_slice(&bytes[..size_of::<$ty>()]);
                <$ty>::from_le_bytes(raw)
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                bytes[..size_of::<$ty>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )+};
}

integer_field!(u16, u32, u64, u128);

impl<T: Field, const N: usize> Field for [T; N] {
    const SIZE: usize = T::SIZE * N;
    #[inline]
    fn get(bytes: &[u8]) -> Self {
        T::get_array(bytes)
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        T::put_array(self, bytes);
    }
}

/// Declares a structure of fixed size: its fields with their offsets, in ascending order.
///
/// Bytes without a field are reserved: ignored when read, written as zero.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident : $size:literal {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty = $offset:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $ty, )+
        }

        const _: () = {
            let mut end = 0;
            $(
                assert!($offset >= end, "fields overlap or are out of order");
                end = $offset + <$ty as crate::layout::Field>::SIZE;
            )+
            assert!(end <= $size, "a field lies outside the structure");
        };

        impl $name {
            /// Bytes on the wire.
            pub const SIZE: usize = $size;

            /// Parses the structure. Every byte pattern is valid; reserved bytes are ignored.
            pub fn parse(bytes: &[u8; $size]) -> Self {
                Self { $( $field: <$ty as crate::layout::Field>::get(&bytes[$offset..]), )+ }
            }

            /// Parses the structure from the start of `bytes`; `None` if there are too few bytes.
            pub fn parse_prefix(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(Self::parse)
            }

            /// Writes the structure; reserved bytes become zero.
            pub fn encode(&self, out: &mut [u8; $size]) {
                out.fill(0);
                $( crate::layout::Field::put(&self.$field, &mut out[$offset..]); )+
            }

            /// Returns the structure as bytes.
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut out = [0; $size];
                self.encode(&mut out);
                out
            }

            /// Returns a mask: one for each bit of a field, zero for each reserved bit.
            #[cfg(test)]
            pub(crate) fn covered() -> [u8; $size] {
                let mut mask = [0; $size];
                $( mask[$offset..$offset + <$ty as crate::layout::Field>::SIZE].fill(0xff); )+
                mask
            }
        }

        impl Default for $name {
            /// All fields are zero.
            fn default() -> Self {
                Self::parse(&[0; $size])
            }
        }

        impl crate::layout::Field for $name {
            const SIZE: usize = $size;
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; $size];
                raw.copy_from_slice(&bytes[..$size]);
                Self::parse(&raw)
            }
            fn put(&self, bytes: &mut [u8]) {
                bytes[..$size].copy_from_slice(&self.to_bytes());
            }
        }
    };
}

pub(crate) use layout;

//! Enums with a name for each variant.

/// Declares an enum with a name for each variant, and `ALL`, which lists them in order.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $( $(#[$variant_meta:meta])* $variant:ident = $text:literal, )+
    }) => {
        $(#[$meta])*
        $vis enum $name {
            $( $(#[$variant_meta])* $variant, )+
        }

        #[allow(dead_code, reason = "a type may need the list alone, or the names")]
        impl $name {
            /// Number of variants.
            $vis const COUNT: usize = [$($text),+].len();

            /// All variants, in order.
            $vis const ALL: [Self; Self::COUNT] = [$(Self::$variant),+];

            /// Returns the variant's place in [`ALL`](Self::ALL).
            #[inline]
            #[must_use]
            $vis const fn index(self) -> usize {
                self as usize
            }

            /// Returns the variant's name.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $( Self::$variant => $text, )+ }
            }
        }
    };
}

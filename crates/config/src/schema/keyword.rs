//! Choices that are written as a word.

/// A choice among words.
pub trait Keyword: Sized + Copy + 'static {
    /// Every word with what it means, the usual one first.
    const WORDS: &'static [(&'static str, Self)];
}

/// Declares an enum with values that are written as words, and its conversions.
macro_rules! keyword {
    ($(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$value_doc:meta])* $value:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        $vis enum $name {
            $($(#[$value_doc])* #[serde(rename = $word)] $value,)+
        }

        impl $crate::schema::Keyword for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$value => $word,)+ })
            }
        }
    };
}

pub(crate) use keyword;

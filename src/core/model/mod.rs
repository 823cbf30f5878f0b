//! The vocabulary every room speaks. No I/O, no async, no clock, no randomness, no globals.

pub mod batch;
pub mod confidential;
pub mod counting;
pub mod domain;
pub mod event;
pub mod hierarchy;
pub mod lattice;
pub mod policy;
pub mod recoding;
pub mod record;
pub mod release;
pub mod schedule;
pub mod schema;

/// Declares an enum whose variants are words: each word is written once, for configurations, reports and metrics alike. Of the
/// enum there are `ALL` its variants in order, and `as_str`.
#[macro_export]
macro_rules! words {
    ($(#[$of:meta])* pub enum $name:ident { $($(#[$meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word that stands for it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}
pub use words;

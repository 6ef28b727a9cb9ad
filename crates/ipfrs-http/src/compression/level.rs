//! The compression level.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};

/// `compression.level`: a word, or the numeric level of each algorithm, capped at the highest level that the
/// algorithm has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionLevel {
    /// Least work.
    Fastest,
    /// Most of the achievable savings at a fraction of the work.
    #[default]
    Balanced,
    /// Small responses at a tenth of the speed, for content that is fetched through a cache.
    Best,
    /// Levels 1 to 19, capped at 9 for gzip and deflate and at 11 for br.
    Number(u8),
}

impl<'de> Deserialize<'de> for CompressionLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LevelVisitor)
    }
}

struct LevelVisitor;

impl Visitor<'_> for LevelVisitor {
    type Value = CompressionLevel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#""fastest", "balanced", "best" or a number from 1 to 19"#)
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<CompressionLevel, E> {
        match word {
            "fastest" => Ok(CompressionLevel::Fastest),
            "balanced" => Ok(CompressionLevel::Balanced),
            "best" => Ok(CompressionLevel::Best),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<CompressionLevel, E> {
        match u8::try_from(number) {
            Ok(number @ 1..=19) => Ok(CompressionLevel::Number(number)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<CompressionLevel, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

//! The `[compression]` section.

use std::fmt;

use ipfrs_core::{Error, Result};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use super::Coding;

/// `[compression]`: compression of responses for clients that send `Accept-Encoding`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressionConfig {
    /// Whether responses are compressed.
    pub enabled: bool,
    /// Compression level: the amount of work spent on smaller responses.
    pub level: CompressionLevel,
    /// Content codings to offer. If the client weighs several equally, the first in this list is used.
    pub algorithms: Vec<Coding>,
    /// Minimum body size in bytes. Compressing shorter bodies would not save a packet.
    pub min_bytes: u64,
    /// Maximum number of bytes of compressed bodies kept for later requests; 0 for none. One body may take an eighth
    /// of it.
    pub cache_bytes: u64,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            level: CompressionLevel::default(),
            algorithms: Coding::ALL.to_vec(),
            min_bytes: 1_024,
            cache_bytes: 64 * 1024 * 1024,
        }
    }
}

impl CompressionConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted values.
    pub fn validate(&self) -> Result<()> {
        let twice = |coding: &Coding| self.algorithms.iter().filter(|other| *other == coding).count() > 1;
        if self.algorithms.is_empty() {
            return Err(Error::invalid("compression.algorithms = []: name one, or write enabled = false"));
        }
        if let Some(coding) = self.algorithms.iter().find(|coding| twice(coding)) {
            return Err(Error::invalid(format!("compression.algorithms = [...]: {coding} is there twice")));
        }
        if self.min_bytes > 1 << 30 {
            let given = self.min_bytes;
            return Err(Error::invalid(format!("compression.min_bytes = {given}: accepted are 0 to 1073741824")));
        }
        if self.cache_bytes > 1 << 40 {
            let given = self.cache_bytes;
            return Err(Error::invalid(format!("compression.cache_bytes = {given}: accepted are 0 to 1099511627776")));
        }
        Ok(())
    }
}

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

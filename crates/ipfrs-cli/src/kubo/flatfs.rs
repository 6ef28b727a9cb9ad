//! The flatfs datastore: one file per block, in directories named by a part of its key (go-ds-flatfs).

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Cid, Multihash, codec};

/// Beginning of the file SHARDING.
const SHARDING_PREFIX: &str = "/repo/flatfs/shard/v1/";
/// Extension of the files of blocks.
const EXTENSION: &str = "data";
/// Characters of base32 in keys, in the order of their values.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// How directories are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharding {
    Prefix(usize),
    Suffix(usize),
    NextToLast(usize),
}

/// A flatfs datastore.
#[derive(Debug, Clone)]
pub(crate) struct Flatfs {
    path: PathBuf,
    sharding: Sharding,
}

impl Flatfs {
    /// Opens the datastore in a directory.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = path.join("SHARDING");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let sharding = Sharding::parse(text.trim()).with_context(|| format!("in {}", file.display()))?;
        Ok(Self { path: path.to_owned(), sharding })
    }

    /// Counts the blocks, from the directories alone.
    pub(crate) fn count(&self) -> Result<u64> {
        let mut count = 0;
        for shard in self.shards()? {
            count += blocks_in(&shard)?.len() as u64;
        }
        Ok(count)
    }

    /// Calls `found` with the content IDs of each directory: raw ones, because keys have no codec. Stops when it
    /// returns false. Returns the names of files that have no valid key.
    pub(crate) fn list(&self, mut found: impl FnMut(Vec<Cid>) -> bool) -> Result<Vec<String>> {
        let mut invalid = Vec::new();
        for shard in self.shards()? {
            let mut cids = Vec::new();
            for name in blocks_in(&shard)? {
                match cid_of(&name) {
                    Some(cid) => cids.push(cid),
                    None => invalid.push(name),
                }
            }
            if !found(cids) {
                break;
            }
        }
        Ok(invalid)
    }

    /// Reads a block, which is not verified. `None` if it does not exist.
    pub(crate) fn read(&self, cid: &Cid) -> Result<Option<Vec<u8>>> {
        let key = base32(&cid.hash().to_bytes());
        let path = self.path.join(self.sharding.directory(&key)).join(format!("{key}.{EXTENSION}"));
        let cannot = || format!("cannot read {}", path.display());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(cannot),
        };
        let mut block = Vec::new();
        file.take(MAX_BIG_BLOCK_BYTES as u64 + 1).read_to_end(&mut block).with_context(cannot)?;
        if block.len() > MAX_BIG_BLOCK_BYTES {
            bail!("{} is over the limit of {MAX_BIG_BLOCK_BYTES} bytes for blocks", path.display());
        }
        Ok(Some(block))
    }

    fn shards(&self) -> Result<Vec<PathBuf>> {
        let cannot = || format!("cannot list {}", self.path.display());
        let mut shards = Vec::new();
        for entry in fs::read_dir(&self.path).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            if entry.file_type().with_context(cannot)?.is_dir()
                && !entry.file_name().as_encoded_bytes().starts_with(b".")
            {
                shards.push(entry.path());
            }
        }
        shards.sort();
        Ok(shards)
    }
}

/// Returns the keys of the blocks in a directory. Temporary files are left out.
fn blocks_in(shard: &Path) -> Result<Vec<String>> {
    let cannot = || format!("cannot list {}", shard.display());
    let mut keys = Vec::new();
    for entry in fs::read_dir(shard).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        if let Some(key) = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.strip_suffix('.')) {
            keys.push(key.to_owned());
        }
    }
    Ok(keys)
}

impl Sharding {
    fn parse(text: &str) -> Result<Self> {
        let unknown = || anyhow!("unknown sharding function {text:?}: there are prefix/N, suffix/N and next-to-last/N");
        let (function, length) =
            text.strip_prefix(SHARDING_PREFIX).and_then(|rest| rest.split_once('/')).ok_or_else(unknown)?;
        let length: usize = length.parse().ok().filter(|length| (1..=64).contains(length)).ok_or_else(unknown)?;
        match function {
            "prefix" => Ok(Self::Prefix(length)),
            "suffix" => Ok(Self::Suffix(length)),
            "next-to-last" => Ok(Self::NextToLast(length)),
            _ => Err(unknown()),
        }
    }

    /// Returns the directory of a key, which is padded with underscores.
    fn directory(self, key: &str) -> String {
        let padded = |length: usize| format!("{}{key}", "_".repeat(length));
        match self {
            Self::Prefix(length) => format!("{key}{}", "_".repeat(length))[..length].to_owned(),
            Self::Suffix(length) => {
                let padded = padded(length);
                padded[padded.len() - length..].to_owned()
            }
            Self::NextToLast(length) => {
                let padded = padded(length + 1);
                padded[padded.len() - length - 1..padded.len() - 1].to_owned()
            }
        }
    }
}

fn cid_of(key: &str) -> Option<Cid> {
    let bytes = from_base32(key)?;
    let hash = Multihash::from_bytes(&bytes).ok()?;
    Some(Cid::new_v1(codec::RAW, hash))
}

/// Encodes bytes in base32 without padding (RFC 4648).
pub(super) fn base32(bytes: &[u8]) -> String {
    let (mut text, mut buffer, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(BASE32[(buffer >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(BASE32[(buffer << (5 - bits) & 31) as usize]));
    }
    text
}

/// Decodes base32 without padding, in upper case.
pub(super) fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut buffer, mut bits) = (Vec::new(), 0_u32, 0);
    for character in text.bytes() {
        let value = BASE32.iter().position(|known| *known == character)?;
        buffer = buffer << 5 | value as u32;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits & 255) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_those_of_flatfs() {
        let directory =
            |text: &str, key: &str| Sharding::parse(&format!("{SHARDING_PREFIX}{text}")).unwrap().directory(key);
        assert_eq!(directory("next-to-last/2", "CIQABCX3Q"), "X3");
        assert_eq!(directory("next-to-last/2", "A"), "__");
        assert_eq!(directory("prefix/3", "CIQABC"), "CIQ");
        assert_eq!(directory("prefix/3", "A"), "A__");
        assert_eq!(directory("suffix/3", "CIQABC"), "ABC");
        assert!(Sharding::parse("/repo/flatfs/shard/v1/middle/2").is_err());
        assert!(Sharding::parse("/repo/flatfs/shard/v2/prefix/2").is_err());
    }

    #[test]
    fn keys_are_base32_of_the_multihash() {
        assert_eq!(base32(b"foobar"), "MZXW6YTBOI");
        for text in [&b""[..], b"f", b"fo", b"foo", b"foob", b"fooba"] {
            assert_eq!(from_base32(&base32(text)).unwrap(), text);
        }
        assert_eq!(from_base32("a"), None);
    }
}

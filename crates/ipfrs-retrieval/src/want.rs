//! The content that a request needs: a path, and a part of the DAG below its target.

use std::fmt::{self, Write};
use std::sync::Arc;

use ipfrs_core::Cid;
use ipfrs_stream::{Part, Span};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Characters of a segment that need no escape in a URL (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Last byte of a part that ends with its file.
const FILE_END: u64 = u64::MAX - 1;

/// A part of a DAG, as trustless gateways serve it in one response
/// (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Want {
    pub(crate) root: Cid,
    /// Names below the root, each percent-encoded and with a slash before it.
    pub(crate) path: Arc<str>,
    pub(crate) part: WantedPart,
    /// Value of the `Via` header of the request that needs the content (RFC 9110, 7.6.3); empty without one.
    pub(crate) via: Arc<str>,
}

/// Part of the DAG below the target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WantedPart {
    /// All blocks.
    All,
    /// The target's root block alone.
    Block,
    /// The blocks of a file, or of a directory without its entries.
    Entity,
    /// The blocks of a file that contain these bytes, from the first to the last.
    Bytes(u64, u64),
}

impl Want {
    /// Returns the want for `part` of the DAG below the target of a path.
    #[must_use]
    pub fn new<'a>(root: Cid, segments: impl IntoIterator<Item = &'a [u8]>, part: Part) -> Self {
        let (mut path, mut part) = (String::new(), part);
        for segment in segments {
            // URLs cannot express these names: clients and servers would remove them.
            if matches!(segment, b"." | b"..") {
                part = Part::Block;
                break;
            }
            let _written = write!(path, "/{}", percent_encode(segment, SEGMENT));
        }
        let part = match part {
            Part::All | Part::Levels(_) => WantedPart::All,
            Part::Block => WantedPart::Block,
            Part::Entity => WantedPart::Entity,
            Part::Bytes(Span { len: 0, .. }) => WantedPart::Block,
            Part::Bytes(Span { start: 0, len: u64::MAX }) => WantedPart::Entity,
            Part::Bytes(span) => WantedPart::Bytes(span.start, span.end() - 1),
        };
        Self { root, path: path.into(), part, via: "".into() }
    }

    /// Sets the `Via` header of the request, so that gateways which ask each other do not do so forever.
    #[must_use]
    pub fn via(self, via: Arc<str>) -> Self {
        Self { via, ..self }
    }

    /// Returns the want for the part of the DAG below `cid`, a block of this want, that a stream may bring.
    pub(crate) fn below(&self, cid: Cid) -> Self {
        let part = match self.part {
            WantedPart::All => WantedPart::All,
            // A stream from a block within the file would also bring what is outside of the part.
            WantedPart::Block | WantedPart::Bytes(..) => WantedPart::Block,
            WantedPart::Entity => WantedPart::Entity,
        };
        Self { root: cid, path: "".into(), part, via: Arc::clone(&self.via) }
    }

    /// Whether everything that `other` needs is a part of this want.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.root != other.root || self.via != other.via {
            return false;
        }
        let is_below =
            other.path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match (self.part, other.part) {
            (WantedPart::All, _) => is_below,
            _ if self.path != other.path => false,
            (WantedPart::Entity, part) => part != WantedPart::All,
            (WantedPart::Bytes(from, to), WantedPart::Bytes(first, last)) => from <= first && last <= to,
            (_, WantedPart::Block) => true,
            (WantedPart::Block | WantedPart::Bytes(..), _) => false,
        }
    }

    /// Whether the want is a single block, for which no CAR is needed.
    pub(crate) fn is_one_block(&self) -> bool {
        self.part == WantedPart::Block && self.path.is_empty()
    }

    /// Returns the path and query of the request for the CAR, relative to the URL of a gateway.
    pub(crate) fn car_target(&self) -> String {
        let scope = match self.part {
            WantedPart::All => "all".to_owned(),
            WantedPart::Block => "block".to_owned(),
            WantedPart::Entity => "entity".to_owned(),
            WantedPart::Bytes(first, FILE_END) => format!("entity&entity-bytes={first}:*"),
            WantedPart::Bytes(first, last) => format!("entity&entity-bytes={first}:{last}"),
        };
        format!("ipfs/{}{}?format=car&dag-scope={scope}", self.root, self.path)
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            WantedPart::All => "DAG",
            WantedPart::Block => "block",
            WantedPart::Entity => "file or directory",
            WantedPart::Bytes(first, FILE_END) => {
                return write!(f, "bytes from {first} of {}{}", self.root, self.path);
            }
            WantedPart::Bytes(first, last) => {
                return write!(f, "bytes {first} to {last} of {}{}", self.root, self.path);
            }
        };
        write!(f, "{part} {}{}", self.root, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_cover_smaller_parts_of_the_same_path() {
        let root = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku".parse().unwrap();
        let want = |path: &str, part| {
            Want::new(root, path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes), part)
        };
        let bytes = |start, len| Part::Bytes(Span { start, len });
        for (wider, narrower) in [
            (want("", Part::All), want("a/b", Part::Entity)),
            (want("a", Part::All), want("a", Part::All)),
            (want("a", Part::Entity), want("a", bytes(5, 5))),
            (want("a", Part::Entity), want("a", Part::Block)),
            (want("a", bytes(0, 10)), want("a", bytes(5, 5))),
        ] {
            assert!(wider.covers(&narrower), "{wider} {narrower}");
        }
        for (narrower, wider) in [
            (want("a", Part::All), want("ab", Part::Block)),
            (want("a", Part::Entity), want("a", Part::All)),
            (want("a", Part::Entity), want("a/b", Part::Block)),
            (want("a", bytes(0, 10)), want("a", bytes(5, 6))),
            (want("a", Part::Block), want("a", Part::Entity)),
        ] {
            assert!(!narrower.covers(&wider), "{narrower} {wider}");
        }
    }

    #[test]
    fn streams_from_blocks_within_a_part_bring_nothing_else() {
        let root = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku".parse().unwrap();
        let below = |part| Want::new(root, [&b"a"[..]], part).below(root);
        for (part, expected) in [
            (Part::All, Part::All),
            (Part::Entity, Part::Entity),
            (Part::Block, Part::Block),
            (Part::Bytes(Span { start: 5, len: 1 << 40 }), Part::Block),
        ] {
            assert_eq!(below(part), Want::new(root, [], expected), "{part:?}");
        }
    }

    #[test]
    fn names_are_escaped_and_dots_end_the_path() {
        let root = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku".parse().unwrap();
        let target = |names: &[&[u8]], part| Want::new(root, names.iter().copied(), part).car_target();
        let entity = target(&[b"a b?", b"\xff"], Part::Entity);
        assert_eq!(entity, format!("ipfs/{root}/a%20b%3F/%FF?format=car&dag-scope=entity"));
        let range = target(&[], Part::Bytes(Span { start: 5, len: 2 }));
        assert_eq!(range, format!("ipfs/{root}?format=car&dag-scope=entity&entity-bytes=5:6"));
        let rest = target(&[], Part::Bytes(Span { start: 5, len: u64::MAX - 5 }));
        assert_eq!(rest, format!("ipfs/{root}?format=car&dag-scope=entity&entity-bytes=5:*"));
        assert_eq!(target(&[b"a", b"..", b"b"], Part::All), format!("ipfs/{root}/a?format=car&dag-scope=block"));
    }
}

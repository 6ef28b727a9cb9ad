//! Entry points for fuzzing the decoders of index files. The input is sealed with a valid checksum first: otherwise
//! it would never get past the checksum.

use std::collections::BTreeMap;
use std::io::Write;
use std::iter;
use std::path::Path;

use super::decode::seal;
use super::layout::Layout;
use super::manifest::{self, Manifest};
use super::run::Run;
use crate::Mappings;

/// Maximum size of a generated run without its header, in bytes.
const MAX_CONTENT_BYTES: usize = 1024 * 1024;

/// Decodes `content` as a manifest. What was decoded must be the same after encoding and decoding it again.
pub(crate) fn manifest(content: &[u8]) {
    let Ok(first) = Manifest::decode(&seal(content.to_vec())) else { return };
    let runs = first.runs.iter().copied();
    let encoded = manifest::encode(first.totals, &first.packs, runs, &first.memory, first.unfinished.as_deref());
    let second = Manifest::decode(&encoded).expect("an encoded manifest can be decoded");
    assert_eq!((first.totals, &first.packs, &first.runs), (second.totals, &second.packs, &second.runs));
    assert_eq!(first.unfinished, second.unfinished);
    // The entries have no order.
    let entries =
        |manifest: &Manifest| BTreeMap::from_iter(manifest.memory.iter().map(|(key, said)| (key.clone(), *said)));
    assert_eq!(entries(&first), entries(&second));
}

/// Opens a run with this header and these entries, and looks up every entry and `key`. Damage results in errors, never
/// in a panic or in reads outside of the file.
pub(crate) fn run(header: &[u8], content: &[u8], key: &[u8]) {
    let mut bytes = seal(header.to_vec());
    let Ok(layout) = Layout::decode(&bytes) else { return };
    let content_bytes = layout.file_bytes() - layout.header_bytes();
    if content_bytes > MAX_CONTENT_BYTES {
        return;
    }
    bytes.extend(content.iter().copied().chain(iter::repeat(0)).take(content_bytes));
    let mut file = tempfile::tempfile().expect("a temporary file can be created");
    file.write_all(&bytes).expect("a temporary file can be written");
    let Ok(run) = Run::open(file, 1, Path::new("run"), &Mappings::default()) else { return };
    // Lookups do not verify the checksums, so damage must not panic there either.
    let _ = run.verify();
    for family in &run.layout().families {
        for place in 0..family.count {
            let _ = run.said(family, place);
        }
        let digest: Vec<u8> = key.iter().copied().chain(iter::repeat(0)).take(family.digest_bytes).collect();
        let _ = run.find(&family.prefix, &digest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::super::layout::Plan;
    use super::super::memory::Memory;
    use super::super::totals::Totals;
    use super::*;

    /// Changes bytes of `sealed`, without its checksum.
    fn damaged(mut sealed: Vec<u8>, changes: &[(Index, u8)]) -> Vec<u8> {
        sealed.truncate(sealed.len() - 4);
        for (at, byte) in changes {
            let at = at.index(sealed.len());
            sealed[at] = *byte;
        }
        sealed
    }

    /// Returns the key of a SHA-256 multihash.
    fn key(digest: [u8; 32]) -> Vec<u8> {
        [&[0x12, 0x20][..], &digest].concat()
    }

    #[test]
    fn family_with_an_impossible_digest_length_is_damage() {
        // SHA-256, and a digest of 2^63 - 1 bytes.
        let prefix = [&[0x12][..], &[0xff; 8], &[0x7f]].concat();
        let fields = [&[0; 8][..], &[1, 0, 0, 0], &[0; 4], &[1, 0, 0, 0], &[10], &prefix, &[0], &[0; 4]].concat();
        let header_bytes = 12 + 4 + fields.len() + 4;
        let header = [&b"ipfrsrun"[..], &[1, 0, 0, 0], &(header_bytes as u32).to_le_bytes(), &fields].concat();
        assert!(Layout::decode(&seal(header)).is_err());
    }

    proptest! {
        #[test]
        fn damaged_manifest_is_an_error_or_consistent(
            digests in vec(any::<[u8; 32]>(), 0..4),
            notes in proptest::option::of(vec(any::<u8>(), 0..20)),
            changes in vec((any::<Index>(), any::<u8>()), 0..4),
        ) {
            let mut memory = Memory::default();
            digests.into_iter().for_each(|digest| memory.insert(key(digest).into(), None));
            let (totals, packs, notes) = (Totals::default(), Default::default(), notes.as_deref());
            let sealed = manifest::encode(totals, &packs, [].into_iter(), &memory, notes);
            manifest(&damaged(sealed, &changes));
        }

        #[test]
        fn damaged_run_is_an_error_and_never_a_panic(
            digests in vec(any::<[u8; 32]>(), 1..20),
            changes in vec((any::<Index>(), any::<u8>()), 0..4),
            content in vec(any::<u8>(), 0..2_000),
        ) {
            let mut plan = Plan::default();
            digests.iter().for_each(|digest| plan.note(&key(*digest), None));
            run(&damaged(Layout::new(plan).encode(), &changes), &content, &digests[0]);
        }
    }
}

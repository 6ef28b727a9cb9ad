//! Entry point for fuzzing the file with the root.

use std::fs;

use ipfrs_core::{Multihash, codec};

use super::{Cid, FILE, MAX_BYTES, RootFile, SLOT_BYTES, page};

/// Reads a file with these lines, which get valid checksums, in its slots and its note, or else a file of `bytes`. If
/// it can be read, another root can be written, which is then the latest one and was not confirmed before.
pub(crate) fn read(lines: Option<[&str; 3]>, bytes: &[u8]) {
    let content: Vec<u8> = match lines {
        Some(lines) => lines.iter().flat_map(|line| sealed(line)).take(MAX_BYTES as usize).collect(),
        None => bytes.to_vec(),
    };
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("a temporary directory can be created");
    fs::write(directory.path().join(FILE), content).expect("a temporary file can be written");
    let mut file = RootFile::new(directory.path());
    let Ok(saved) = file.read() else { return };
    assert!(saved.len() <= 2 && saved.is_sorted_by(|a, b| a.sequence >= b.sequence), "{saved:?}");
    for saved in &saved {
        assert!(saved.storing.len() <= SLOT_BYTES);
    }
    let root = Cid::new_v1(codec::DAG_PB, Multihash::wrap(0, b"another").expect("the digest is short"));
    file.keep(saved.first(), &saved);
    file.write(&root, &[], saved.first().map(|latest| &latest.root)).expect("a temporary file can be written");
    file.confirm();
    file.note();
    let again = RootFile::new(directory.path()).read().expect("what was written is read");
    assert!(again.first().is_some_and(|latest| latest.root == root && latest.is_confirmed), "{again:?}");
    if let Some(before) = saved.first() {
        assert!(again.iter().any(|saved| saved.root == before.root), "{before:?} is lost");
    }
}

/// Returns a slot or a note with the beginning of a line.
fn sealed(line: &str) -> [u8; SLOT_BYTES] {
    let line: String = line.chars().filter(|c| c.is_ascii() && *c != '\n').take(SLOT_BYTES - 10).collect();
    if line.is_empty() { [b' '; SLOT_BYTES] } else { page(&line) }
}

#[cfg(test)]
mod tests {
    use super::super::NOTE_AT;
    use super::*;

    #[test]
    fn files_of_all_kinds_are_followed_by_another_root() {
        let root = "bafkqaaik";
        let (first, second) = (format!("1 {root}"), format!("2 {root} {root}"));
        let (first, second) = (first.as_str(), second.as_str());
        for lines in [["", "", ""], [first, "", ""], [first, second, "2"], [second, first, "1"], [first, "x", ""]] {
            read(Some(lines), &[]);
        }
        for bytes in [&b""[..], root.as_bytes(), &[b' '; NOTE_AT + SLOT_BYTES]] {
            read(None, bytes);
        }
    }

    #[test]
    fn a_root_with_the_last_number_is_unreadable() {
        let last = format!("{} bafkqaaik", u64::MAX);
        read(Some([last.as_str(), "1 bafkqaaik", ""]), &[]);
    }
}

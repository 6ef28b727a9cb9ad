//! Index files that are damaged, foreign, truncated or unreadable.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};

use super::*;

#[test]
fn index_open_detects_damage_at_any_byte() {
    let (dir, index, model) = several_runs();
    drop(index);
    for (path, whole) in files(dir.path()) {
        // The header is in the first bytes, so each of them is tested.
        for place in (0..200.min(whole.len())).chain((200..whole.len()).step_by(13)) {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << (place % 8);
            fs::write(&path, &damaged).unwrap();
            assert!(is_unusable(dir.path()), "byte {place} of {}", path.display());
        }
        for len in (0..whole.len()).step_by(37).chain([whole.len() - 1]) {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(is_unusable(dir.path()), "{len} bytes of {}", path.display());
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert!(is_unusable(dir.path()), "{} with one byte more", path.display());
        fs::write(&path, &whole).unwrap();
        assert_same(&open(dir.path()), &model, 100);
        // An index without a manifest is a new one.
        if path.extension().is_some() {
            fs::remove_file(&path).unwrap();
            assert!(is_unusable(dir.path()), "without {}", path.display());
            fs::write(&path, &whole).unwrap();
        }
    }
}

#[test]
fn run_of_other_index_is_rejected() {
    let ((dir, index, _), (other, other_index, mut model)) = (several_runs(), several_runs());
    change(&other_index, &mut model, &[(0, None)]);
    let more: Vec<_> = (345..400).map(|name| (name, Some(at(0)))).collect();
    change(&other_index, &mut model, &more);
    settle(&other_index);
    drop((index, other_index));
    let foreign = files(other.path()).into_iter().rfind(|(path, _)| path.extension().is_some()).unwrap();
    let own = files(dir.path()).into_keys().find(|path| path.extension().is_some()).unwrap();
    fs::write(own, foreign.1).unwrap();
    assert!(is_unusable(dir.path()));
}

#[test]
fn truncated_open_run_returns_error() {
    let (dir, index, _) = several_runs();
    for path in files(dir.path()).into_keys().filter(|path| path.extension().is_some()) {
        OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    let keys: Vec<_> = (0..400).map(key).collect();
    let error = index.locate(&keys).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("rebuilt from the packs"), "{error}");
    assert_eq!(index.page(None, 1_000).unwrap_err().kind(), ErrorKind::Corrupt);
    drop(index);
    assert!(is_unusable(dir.path()));
}

#[test]
fn run_that_can_be_read_again_is_used_again() {
    let (dir, index, model) = several_runs();
    let runs: Vec<_> = files(dir.path()).into_iter().filter(|(path, _)| path.extension().is_some()).collect();
    // Pages of a file that is too short are missing, as those of a disk that fails.
    for (path, _) in &runs {
        OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    let keys: Vec<_> = (0..400).map(key).collect();
    assert_eq!(index.locate(&keys).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(keys.iter().any(|key| index.locate_resident(key).unwrap().is_none()));
    for (path, whole) in &runs {
        fs::write(path, whole).unwrap();
    }
    assert_same(&index, &model, 100);
    index.verify().unwrap();
    // Another file is not used.
    let (path, whole) = &runs[0];
    OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    assert!(index.verify().is_err());
    fs::write(path, [&whole[..], b"x"].concat()).unwrap();
    assert!(index.check().is_err() && index.check_again().is_err());
    fs::write(path, whole).unwrap();
    assert!(index.check().is_err());
    index.check_again().unwrap();
    index.check().unwrap();
    index.verify().unwrap();
}

#[test]
fn merge_rejects_damaged_run() {
    let (dir, index, mut model) = several_runs();
    let newest = files(dir.path()).into_keys().rfind(|path| path.extension().is_some()).unwrap();
    let file = OpenOptions::new().write(true).open(newest).unwrap();
    file.write_all_at(&[0xa5; 3], file.metadata().unwrap().len() - 3).unwrap();
    let more: Vec<_> = (345..400).map(|name| (name, Some(at(0)))).collect();
    change(&index, &mut model, &more);
    index.commit().unwrap();
    assert!(index.is_merging());
    while !index.has_merged() {
        std::thread::yield_now();
    }
    let runs = index.state.read().runs.len();
    settle(&index);
    assert_eq!(index.state.read().runs.len(), runs);
    index.commit().unwrap();
    assert!(!index.is_merging(), "it is not tried again and again");
    drop(index);
    assert!(is_unusable(dir.path()));
}

#[test]
fn merge_is_tried_again_once_its_runs_can_be_read() {
    let (dir, index, mut model) = several_runs();
    let (path, whole) = files(dir.path()).into_iter().rfind(|(path, _)| path.extension().is_some()).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let more: Vec<_> = (345..400).map(|name| (name, Some(at(0)))).collect();
    change(&index, &mut model, &more);
    index.commit().unwrap();
    assert!(index.is_merging());
    while !index.has_merged() {
        std::thread::yield_now();
    }
    fs::write(&path, whole).unwrap();
    let runs = || index.state.read().runs.len();
    let before = runs();
    settle(&index);
    assert_eq!(runs(), before, "the run shows zeros still");
    // A lookup opens the run again.
    assert_same(&index, &model, 100);
    settle(&index);
    assert!(runs() < before);
    assert_same(&index, &model, 100);
}

#[test]
fn unreadable_index_file_counts_as_damaged() {
    let (dir, index, model) = several_runs();
    drop(index);
    for (path, whole) in files(dir.path()) {
        fs::remove_file(&path).unwrap();
        // Reading the first page of this file fails with EIO.
        symlink("/proc/self/mem", &path).unwrap();
        assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(libc::EIO));
        for is_read_only in [false, true] {
            let why = Index::open(dir.path(), is_read_only).unwrap().unwrap_err();
            assert!(why.contains(path.to_str().unwrap()), "{why}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(is_unusable(dir.path()), "a directory instead of {}", path.display());
        fs::remove_dir(&path).unwrap();
        fs::write(&path, &whole).unwrap();
        assert_same(&open(dir.path()), &model, 100);
    }
    // An unreadable manifest does not prevent the creation of a new index.
    let manifest = dir.path().join("manifest");
    fs::remove_file(&manifest).unwrap();
    symlink("/proc/self/mem", &manifest).unwrap();
    drop(Index::begin(dir.path(), false).unwrap());
    assert_same(&open(dir.path()), &BTreeMap::new(), 100);
}

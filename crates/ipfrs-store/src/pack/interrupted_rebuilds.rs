//! Rebuilds of the index of a damaged store that a crash interrupts at any point. The next start must find all damage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::crash_recorder::{Files, Recorder, restore};
use super::crashes::{block, directory, options};
use super::file::path_of;
use super::index::{INDEX, Index};
use super::record::CAR_HEADER;
use super::scan::Scanner;
use super::{PackOptions, PackStore};
use crate::store::{BlockStore, PutMode};

/// Number of blocks of the store.
const BLOCKS: u32 = 400;

/// Damages the data of the third block of a pack.
fn damage(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut scanner = Scanner::new(CAR_HEADER.len() as u64, file.metadata().unwrap().len());
    let chunk = scanner.next_chunk(&file, path).unwrap().unwrap();
    let ends: Vec<_> = chunk.sections().map(|section| section.end).collect();
    assert!(ends.len() > 3);
    file.write_all_at(&[0xff], ends[2] - 1).unwrap();
}

/// Returns the files of a store without an index whose first pack and last pack are damaged, and the beginnings of
/// these losses.
async fn damaged_store() -> (Files, BTreeSet<String>) {
    let dir = directory();
    let store = PackStore::open(dir.path(), options()).unwrap();
    for number in 0..BLOCKS {
        assert!(store.put_many(vec![block(number)], PutMode::Atomic).await.iter().all(Result::is_ok));
    }
    let packs: Vec<_> = store.shared.packs().iter().map(|pack| pack.number()).collect();
    store.close().await.unwrap();
    assert!(packs.len() > 3);
    let damaged = [packs[0], packs[packs.len() - 1]];
    damaged.iter().for_each(|number| damage(&path_of(&dir.path().join("packs"), *number)));
    fs::remove_dir_all(dir.path().join(INDEX)).unwrap();
    let losses = damaged.map(|number| format!("pack {number} is damaged: 1 of its sections do not match"));
    let recorder = Recorder::start(dir.path());
    let files = recorder.now();
    recorder.end();
    (files, losses.into())
}

async fn assert_finds(dir: &Path, losses: &BTreeSet<String>, options: PackOptions) {
    let store = PackStore::open(dir, options).unwrap();
    let beginning = |loss: String| loss.split(" their content IDs").next().unwrap().to_owned();
    let found: BTreeSet<_> = store.losses().unwrap().into_iter().map(beginning).collect();
    assert_eq!(found, *losses);
    assert_eq!(store.stats().await.unwrap().blocks, u64::from(BLOCKS) - 2);
    store.close().await.unwrap();
}

#[tokio::test]
async fn damage_is_found_after_interrupted_rebuild() {
    let (files, losses) = damaged_store().await;
    let dir = directory();
    restore(dir.path(), &files);
    let recorder = Recorder::start(dir.path());
    assert_finds(dir.path(), &losses, options()).await;
    let (mut unfinished, mut later) = (0, 0);
    for (files, _) in recorder.end() {
        let dir = directory();
        restore(dir.path(), &files);
        let index = Index::open(&dir.path().join(INDEX), true).unwrap().unwrap();
        if index.unfinished().is_some() {
            unfinished += 1;
            later += u32::from(index.packs().len() > 2);
        }
        drop(index);
        assert_finds(dir.path(), &losses, PackOptions { read_only: true, ..options() }).await;
        assert_finds(dir.path(), &losses, options()).await;
        // The complete index does not find the damage again.
        fs::remove_file(dir.path().join("lost-blocks")).unwrap();
        let store = PackStore::open(dir.path(), options()).unwrap();
        assert_eq!(store.losses().unwrap(), Vec::<String>::new());
        store.close().await.unwrap();
    }
    assert!(unfinished > 10 && later > 3, "{unfinished} crashes within the rebuild, {later} of them after two packs");
}

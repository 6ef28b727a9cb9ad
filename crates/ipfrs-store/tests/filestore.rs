//! Blocks in packs and in files, as one store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::{Block, Cid, ErrorKind, FileOffset, Multihash};
use ipfrs_store::testing::{block, cids, numbered, random_block};
use ipfrs_store::{
    BlockStore, BlockStoreExt, FileState, Filestore, PackOptions, PackStore, PutMode, ReferenceOrder, Scrubbed, Stored,
};
use rand::Rng;
use tempfile::TempDir;

/// A filestore, the directory of its files, and a file of blocks in it.
struct Fixture {
    store: TempDir,
    files: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { store: tempfile::tempdir().unwrap(), files: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Filestore {
        self.open_with(PackOptions::default())
    }

    /// Closes the store and opens it again.
    async fn reopened(&self, filestore: Filestore) -> Filestore {
        close(filestore).await;
        self.open()
    }

    fn open_with(&self, options: PackOptions) -> Filestore {
        let read_only = options.read_only;
        let packs = PackStore::open(self.store.path(), options).unwrap();
        Filestore::open(packs, self.files.path(), read_only).unwrap()
    }

    /// Writes a file that consists of `blocks`, and returns them with their places.
    fn file(&self, name: &str, blocks: &[Block]) -> Vec<(Block, FileOffset)> {
        let path: Arc<Path> = self.files.path().join(name).into();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, blocks.iter().flat_map(|block| block.data().to_vec()).collect::<Vec<_>>()).unwrap();
        let mut offset = 0;
        let place = |block: &Block| {
            let place = FileOffset { path: path.clone(), offset };
            offset += block.data().len() as u64;
            (block.clone(), place)
        };
        blocks.iter().map(place).collect()
    }
}

/// Closes the store, which releases its locks.
async fn close(filestore: Filestore) {
    filestore.close().await.unwrap();
    filestore.packs().close().await.unwrap();
}

async fn listing(filestore: &Filestore, order: ReferenceOrder) -> Vec<(String, u64)> {
    let references: Vec<_> = filestore.list(order).try_collect().await.unwrap();
    references.into_iter().map(|found| (found.path.display().to_string(), found.offset)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_of_blocks_and_references_is_that_of_a_map() {
    let (fixture, mut rng) = (Fixture::new(), rand::rng());
    let blocks = numbered(0..60);
    let parts = fixture.file("d/blocks", &blocks);
    // Which blocks are in the packs, and which in files.
    let mut model: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
    let mut filestore = fixture.open();
    for step in 0..150 {
        let some: Vec<usize> = (0..rng.random_range(1..8)).map(|_| rng.random_range(0..blocks.len())).collect();
        match rng.random_range(0..4) {
            0 => {
                let put = some.iter().map(|index| blocks[*index].clone()).collect();
                filestore.put_many(put, PutMode::Atomic).await.into_iter().for_each(|outcome| assert!(outcome.is_ok()));
                some.iter().for_each(|index| model.entry(*index).or_default().0 = true);
            }
            1 | 2 => {
                let put = some.iter().map(|index| parts[*index].clone()).collect();
                filestore.put_references(put).await.unwrap();
                for index in &some {
                    let known = model.entry(*index).or_default();
                    known.1 |= !known.0;
                }
            }
            _ => {
                let spared: Multihash = *blocks[0].cid().hash();
                let removed: Vec<Cid> = some.iter().map(|index| *blocks[*index].cid()).collect();
                filestore.delete_unless(&removed, Arc::new(move |hash| *hash == spared)).await.unwrap();
                model.retain(|index, _| *index == 0 || !some.contains(index));
            }
        }
        if step % 50 == 49 {
            filestore = fixture.reopened(filestore).await;
        }
        check(&filestore, &blocks, &model).await;
    }
}

/// Compares everything that a store returns with the model.
async fn check(filestore: &Filestore, blocks: &[Block], model: &BTreeMap<usize, (bool, bool)>) {
    let all = cids(blocks);
    let expected: Vec<Option<Bytes>> =
        blocks.iter().zip(0..).map(|(block, index)| model.get(&index).map(|_| block.data().clone())).collect();
    let found: Vec<_> = filestore.get_many(all.clone()).map_ok(|(_, data)| data).try_collect().await.unwrap();
    assert_eq!(found, expected);
    let batches: Vec<_> = filestore.get_batches(all.clone().into()).collect().await;
    let found: Vec<_> = batches.into_iter().flat_map(|batch| batch.into_answers().collect::<Vec<_>>()).collect();
    assert_eq!(found.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
    let sizes: Vec<_> = expected.iter().map(|data| data.as_ref().map(|data| data.len() as u64)).collect();
    assert_eq!(filestore.has_many(&all).await.unwrap(), sizes);
    let mut keys: Vec<_> = model.keys().map(|index| blocks[*index].cid().hash().to_bytes()).collect();
    keys.sort();
    let listed = async |cids: futures::stream::BoxStream<'static, ipfrs_core::Result<Cid>>| -> Vec<Vec<u8>> {
        cids.map_ok(|cid| cid.hash().to_bytes()).try_collect().await.unwrap()
    };
    assert_eq!(listed(filestore.iterate()).await, keys);
    let after = blocks[7].cid();
    let rest: Vec<_> = keys.iter().filter(|key| **key > after.hash().to_bytes()).cloned().collect();
    assert_eq!(listed(filestore.iterate_after(after)).await, rest);
    let (packed, referenced) = model.values().fold((0, 0), |(packed, referenced), (in_packs, in_file)| {
        (packed + u64::from(*in_packs), referenced + u64::from(*in_file))
    });
    assert_eq!(filestore.stats().await.unwrap().blocks, packed + referenced);
    assert_eq!(listing(filestore, ReferenceOrder::Hash).await.len() as u64, referenced);
    let by_file = listing(filestore, ReferenceOrder::File).await;
    assert!(by_file.is_sorted() && by_file.len() as u64 == referenced, "{by_file:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_is_an_error_of_its_blocks_only() {
    let fixture = Fixture::new();
    let filestore = fixture.open();
    let (a, b, packed) = (random_block(3_000), random_block(2_000), random_block(100));
    filestore.put(packed.clone()).await.unwrap();
    assert_eq!(
        filestore.put_references(fixture.file("file", &[a.clone(), b.clone()])).await.unwrap(),
        [Stored::New; 2]
    );
    let path = fixture.files.path().join("file");
    let (content, all) = (fs::read(&path).unwrap(), vec![*a.cid(), *packed.cid(), *b.cid()]);
    let states = async || {
        let references: Vec<_> = filestore.list(ReferenceOrder::File).try_collect().await.unwrap();
        let mut states = String::new();
        for reference in &references {
            states.push(match filestore.verify(reference).await.unwrap() {
                FileState::Intact => 'i',
                FileState::Changed(_) => 'c',
                FileState::NoFile(_) => 'n',
                FileState::Unreadable(_) => 'u',
            });
        }
        states
    };
    let reads = async || {
        let batches: Vec<_> = filestore.get_batches(all.clone().into()).collect().await;
        let batched: Vec<_> = batches.into_iter().flat_map(|batch| batch.into_answers().collect::<Vec<_>>()).collect();
        let each: Vec<_> = filestore.get_many(all.clone()).collect().await;
        let mut readable = String::new();
        for ((cid, batched), each) in all.iter().zip(batched).zip(each) {
            let alone = filestore.get(cid).await;
            assert_eq!((batched.is_ok(), each.is_ok()), (alone.is_ok(), alone.is_ok()));
            readable.push(match alone {
                Ok(Some(_)) => 'y',
                Ok(None) => '0',
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    assert!(error.message().contains("file"), "{error}");
                    'n'
                }
            });
        }
        readable
    };
    assert_eq!((states().await, reads().await), ("ii".into(), "yyy".into()));
    fs::write(&path, [&content[..3_500], &[0; 1_500]].concat()).unwrap();
    assert_eq!((states().await, reads().await), ("ic".into(), "yyn".into()));
    fs::write(&path, &content[..4_999]).unwrap();
    assert_eq!((states().await, reads().await), ("ic".into(), "yyn".into()));
    fs::remove_file(&path).unwrap();
    assert_eq!((states().await, reads().await), ("nn".into(), "nyn".into()));
    // Opening a pipe would wait for a writer.
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    assert_eq!((states().await, reads().await), ("uu".into(), "nyn".into()));
    let scrubbed: Vec<_> = filestore.scrub().try_collect().await.unwrap();
    let corrupt = scrubbed.iter().map(|scrubbed| match scrubbed {
        Scrubbed::Read { corrupt, .. } => corrupt.len(),
        Scrubbed::Unread(_) => 0,
    });
    assert_eq!(corrupt.sum::<usize>(), 2);
    fs::remove_file(&path).unwrap();
    fs::write(&path, &content).unwrap();
    assert_eq!((states().await, reads().await), ("ii".into(), "yyy".into()));
    // The file has moved, and is added again.
    fs::remove_file(&path).unwrap();
    let moved = fixture.file("elsewhere/file", &[a.clone(), b.clone()]);
    assert_eq!(filestore.put_references(moved).await.unwrap(), [Stored::Present; 2]);
    assert_eq!(reads().await, "yyy");
    assert_eq!(
        listing(&filestore, ReferenceOrder::File).await,
        [("elsewhere/file".into(), 0), ("elsewhere/file".into(), 3_000)]
    );
    // References that were read before they were replaced stay.
    let old: Vec<_> = filestore.references(&[*a.cid(), *b.cid()]).await.unwrap().into_iter().flatten().collect();
    filestore.put_references(fixture.file("again", std::slice::from_ref(&a))).await.unwrap();
    let epoch = filestore.epoch();
    assert_eq!(filestore.remove_references(&old).await.unwrap(), [false, true]);
    assert_ne!(filestore.epoch(), epoch);
    assert_eq!(reads().await, "yy0");
    // A file that has changed is no damage of a block that the packs have too.
    filestore.put(a.clone()).await.unwrap();
    fs::write(fixture.files.path().join("again"), "").unwrap();
    let scrubbed: Vec<_> = filestore.scrub().try_collect().await.unwrap();
    assert!(scrubbed.iter().all(|scrubbed| matches!(scrubbed, Scrubbed::Read { corrupt, .. } if corrupt.is_empty())));
    filestore.close().await.unwrap();
    assert_eq!(filestore.references(&all).await.unwrap_err().kind(), ErrorKind::Unavailable);
    filestore.packs().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn references_lead_to_the_content_below_the_root_or_are_refused() {
    let fixture = Fixture::new();
    let filestore = fixture.open();
    let outside = tempfile::tempdir().unwrap();
    let (kept, other) = (random_block(500), block("other"));
    let good = fixture.file("good", std::slice::from_ref(&kept));
    fs::write(outside.path().join("file"), kept.data()).unwrap();
    std::os::unix::fs::symlink(outside.path(), fixture.files.path().join("link")).unwrap();
    std::os::unix::fs::symlink(fixture.files.path().join("good"), outside.path().join("back")).unwrap();
    let at = |path: &Path, offset| FileOffset { path: path.into(), offset };
    let root = fixture.files.path();
    for (part, why) in [
        (at(&outside.path().join("file"), 0), "outside ipfs root"),
        (at(&outside.path().join("absent"), 0), "outside ipfs root"),
        (at(&root.join("link/file"), 0), "outside ipfs root"),
        (at(&root.join("..").join(outside.path().file_name().unwrap()).join("file"), 0), "outside ipfs root"),
        (at(&root.join("absent"), 0), "No such file"),
        (at(root, 0), "not a regular file"),
        (at(&root.join("good"), 1), "does not contain"),
        (at(&root.join("good"), 1 << 40), "does not contain"),
        (at(Path::new("good"), 0), "outside ipfs root"),
    ] {
        // The whole batch is refused.
        let batch = vec![good[0].clone(), (kept.clone(), part.clone())];
        let error = filestore.put_references(batch).await.unwrap_err();
        assert!(error.message().contains(why), "{part:?}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{part:?}: {error}");
        assert_eq!(filestore.get(kept.cid()).await.unwrap(), None);
    }
    let error = filestore.put_references(vec![(other, good[0].1.clone())]).await.unwrap_err();
    assert!(error.message().contains("does not contain"), "{error}");
    // A link into the root is stored as what it leads to.
    let linked = vec![(kept.clone(), at(&outside.path().join("back"), 0))];
    assert_eq!(filestore.put_references(linked).await.unwrap(), [Stored::New]);
    assert_eq!(listing(&filestore, ReferenceOrder::Hash).await, [("good".to_owned(), 0)]);
    // Blocks in the packs and identity blocks need no reference.
    let packed = random_block(10);
    filestore.put(packed.clone()).await.unwrap();
    let inline = Block::trusted("bafkqaaik".parse().unwrap(), Bytes::from_static(b"\n"));
    let both = fixture.file("both", &[packed, inline]);
    assert_eq!(filestore.put_references(both).await.unwrap(), [Stored::Present; 2]);
    assert_eq!(listing(&filestore, ReferenceOrder::Hash).await.len(), 1);
    close(filestore).await;
    let filestore = fixture.open_with(PackOptions { read_only: true, ..PackOptions::default() });
    assert_eq!(filestore.get(kept.cid()).await.unwrap().as_ref(), Some(kept.data()));
    let reference = filestore.references(&[*kept.cid()]).await.unwrap().remove(0).unwrap();
    assert!(filestore.remove_references(&[reference]).await.unwrap_err().is_read_only());
    let moment = filestore.moment().unwrap();
    let copy = Fixture { store: tempfile::tempdir().unwrap(), files: fixture.files };
    tokio::task::spawn_blocking({
        let path = copy.store.path().to_owned();
        move || moment(&path)
    })
    .await
    .unwrap()
    .unwrap();
    close(filestore).await;
    let copied = copy.open();
    assert_eq!(copied.get(kept.cid()).await.unwrap().as_ref(), Some(kept.data()));
    close(copied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_references_are_reported() {
    let fixture = Fixture::new();
    close(fixture.open()).await;
    let path = fixture.store.path().join("filestore.redb");
    for damage in [&b""[..], b"not a database", &[0; 10_000]] {
        fs::write(&path, damage).unwrap();
        let packs = PackStore::open(fixture.store.path(), PackOptions::default()).unwrap();
        let error = Filestore::open(packs.clone(), fixture.files.path(), false).unwrap_err();
        packs.close().await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("filestore.redb"), "{error}");
    }
}

//! Scrubbing a whole store: every block is visited once, and damaged blocks are reported.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use futures::TryStreamExt;
use ipfrs_core::{Cid, ErrorKind};
use ipfrs_store::{BlockStore, MemoryStore, PackOptions, PackStore, Scrubbed};

use crate::fixture::{
    USUAL, block, cids, index_files, numbered, open_small, put_all, random_block, random_blocks, sorted,
};
use crate::layout::sections;

/// Accumulated results of a scrub.
#[derive(Debug, Default)]
struct Report {
    blocks: u64,
    bytes: u64,
    corrupt: Vec<Cid>,
    unread: Vec<Cid>,
}

async fn scrub(store: &dyn BlockStore) -> Report {
    let mut report = Report::default();
    let mut parts = store.scrub();
    while let Some(part) = parts.try_next().await.unwrap() {
        match part {
            Scrubbed::Read { blocks, bytes, corrupt } => {
                report.blocks += blocks;
                report.bytes += bytes;
                report.corrupt.extend(corrupt.into_iter().map(|(cid, _)| cid));
            }
            Scrubbed::Unread(cids) => report.unread.extend(cids),
        }
    }
    report
}

/// Creates a store with one pack of 20 blocks of a thousand bytes. Also returns the file, and the offset of each
/// block's data.
async fn one_pack(dir: &Path) -> (PackStore, Vec<Cid>, File, Vec<u64>) {
    let store = open_small(dir);
    let blocks: Vec<_> = (0..20).map(|_| random_block(1_000)).collect();
    put_all(&store, &blocks).await;
    let path = dir.join("packs/00000001.car");
    let car = std::fs::read(&path).unwrap();
    let offset = |data: &[u8]| (data.as_ptr().addr() - car.as_ptr().addr()) as u64;
    let offsets = sections(&car).into_iter().map(|(_, data)| offset(data)).collect();
    (store, cids(&blocks), OpenOptions::new().read(true).write(true).open(path).unwrap(), offsets)
}

fn flip(file: &File, offset: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

#[tokio::test]
async fn scrub_reads_every_live_block_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    assert_eq!(scrub(&store).await.blocks, 0);
    // Several packs, the last of which contains a section that fills it.
    let blocks = random_blocks(200, 5_000);
    for part in blocks.chunks(10) {
        put_all(&store, part).await;
    }
    store.delete_many(&cids(&blocks[..90])).await.unwrap();
    store.compact(USUAL).await.unwrap();
    store.delete_many(&cids(&blocks[90..100])).await.unwrap();
    put_all(&store, &blocks[40..60]).await;
    put_all(&store, &[block(""), random_block(300_000)]).await;

    let (report, stats) = (scrub(&store).await, store.stats().await.unwrap());
    assert_eq!((report.blocks, report.bytes), (stats.blocks, stats.payload_bytes));
    assert!(report.corrupt.is_empty() && report.unread.is_empty(), "{report:?}");
    store.close().await.unwrap();
    let closed = store.scrub().try_next().await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn scrub_reports_corrupt_and_unread_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let (store, cids, file, offsets) = one_pack(dir.path()).await;
    flip(&file, offsets[3] + 500);
    // The digest in the content ID, which ends where the data begins.
    flip(&file, offsets[5] - 1);
    let report = scrub(&store).await;
    assert_eq!((report.blocks, report.corrupt, report.unread), (19, vec![cids[3]], vec![cids[5]]));
    assert_eq!(store.get(&cids[5]).await.unwrap_err().kind(), ErrorKind::Corrupt);

    // Damages the framing, so that later sections are not visited. Before the data are two bytes of length and the
    // content ID.
    file.write_all_at(&[0], offsets[10] - 36 - 2).unwrap();
    let report = scrub(&store).await;
    assert_eq!((report.blocks, report.corrupt), (9, vec![cids[3]]));
    let behind = [&cids[5..6], &cids[10..]].concat();
    assert_eq!(sorted(report.unread), sorted(behind));
    store.close().await.unwrap();
}

#[tokio::test]
async fn scrub_leaves_blocks_of_truncated_pack_unread() {
    let dir = tempfile::tempdir().unwrap();
    let (store, cids, file, offsets) = one_pack(dir.path()).await;
    file.set_len(offsets[10]).unwrap();
    let report = scrub(&store).await;
    assert_eq!(report.blocks as usize + report.unread.len(), cids.len());
    assert!(report.corrupt.is_empty() && cids[10..].iter().all(|cid| report.unread.contains(cid)), "{report:?}");
    store.close().await.unwrap();
}

#[tokio::test]
async fn scrub_of_memory_store_returns_all_cids_as_unread() {
    let store = MemoryStore::default();
    let blocks = random_blocks(1_500, 100);
    put_all(&store, &blocks).await;
    let report = scrub(&store).await;
    assert_eq!((report.blocks, sorted(report.unread)), (0, sorted(cids(&blocks))));
}

#[tokio::test]
async fn scrub_ignores_blocks_put_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    let first = random_blocks(5_000, 1_000);
    put_all(&store, &first).await;
    let mut parts = store.scrub();
    let mut seen = Vec::new();
    let mut blocks = 0;
    while let Some(part) = parts.try_next().await.unwrap() {
        match part {
            Scrubbed::Read { blocks: more, corrupt, .. } => {
                assert!(corrupt.is_empty());
                blocks += more;
            }
            Scrubbed::Unread(cids) => seen.extend(cids),
        }
        put_all(&store, &[random_block(1_000)]).await;
    }
    assert!(blocks >= 5_000 && cids(&first).iter().all(|cid| !seen.contains(cid)), "{blocks} {}", seen.len());
    store.close().await.unwrap();
}

#[tokio::test]
async fn scrub_reports_damaged_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    put_all(&store, &numbered(0..3_000)).await;
    store.close().await.unwrap();
    let store = open_small(dir.path());
    let run = index_files(dir.path()).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(run).unwrap();
    let end = file.metadata().unwrap().len();
    for offset in end - 64..end {
        flip(&file, offset);
        let error = store.scrub().try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("the index is damaged"), "{error}");
        flip(&file, offset);
    }
    assert_eq!(scrub(&store).await.blocks, 3_000);
    store.close().await.unwrap();
}

//! Writes that a crash has cut short at the end of the newest pack.

use std::fs::{self, OpenOptions};
use std::path::Path;

use ipfrs_core::Block;
use ipfrs_store::{PackOptions, PackStore, Stored};

use crate::fixture::{assert_holds, assert_lacks, block, open_small, put_all, random_block, random_blocks};
use crate::recovery::{Hurt, PREFIX, copy_index, len, lose_index, newest, overwrite, store_of};

#[tokio::test]
async fn incomplete_write_at_pack_end_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (kept, torn) = (random_block(9_000), random_block(9_000));
    let saved = tempfile::tempdir().unwrap();
    fs::create_dir(saved.path().join("index")).unwrap();
    store_of(dir.path(), std::slice::from_ref(&kept)).await;
    copy_index(dir.path(), saved.path());
    let pack = newest(dir.path());
    let whole = len(&pack);

    let cut_at =
        |bytes: u64| move |pack: &Path| OpenOptions::new().write(true).open(pack).unwrap().set_len(bytes).unwrap();
    let hurts: Vec<Hurt> = vec![
        Box::new(cut_at(whole + 1)),
        Box::new(cut_at(whole + PREFIX)),
        Box::new(cut_at(whole + PREFIX + 8_999)),
        Box::new(move |pack| overwrite(pack, whole + PREFIX + 8_999, &[0; 4])),
        Box::new(move |pack| overwrite(pack, whole + PREFIX, &[0; 9_000])),
        Box::new(move |pack| overwrite(pack, whole, &[0; PREFIX as usize])),
        Box::new(move |pack| overwrite(pack, whole, &[0xff; 9_000])),
    ];
    for (number, hurt) in hurts.iter().enumerate() {
        // Restores the index from before the torn write, as after a crash.
        store_of(dir.path(), std::slice::from_ref(&torn)).await;
        hurt(&pack);
        copy_index(saved.path(), dir.path());
        let store = open_small(dir.path());
        assert_eq!(len(&pack), whole, "hurt {number}");
        assert_holds(&store, std::slice::from_ref(&kept)).await;
        assert_lacks(&store, std::slice::from_ref(&torn)).await;
        assert_eq!(put_all(&store, std::slice::from_ref(&torn)).await, [Stored::New]);
        assert_holds(&store, &[kept.clone(), torn.clone()]).await;
        store.close().await.unwrap();
        copy_index(saved.path(), dir.path());
        cut_at(whole)(&pack);
    }
}

/// Returns a block whose data are blocks as they are in a pack.
fn block_of_sections() -> Block {
    let sections = random_blocks(1_000, 1_000).into_iter().flat_map(|inner| {
        let cid = inner.cid().to_bytes();
        let length = cid.len() + inner.data().len();
        [vec![length as u8 | 0x80, (length >> 7) as u8], cid, inner.data().to_vec()].concat()
    });
    block(sections.collect::<Vec<_>>())
}

#[tokio::test]
async fn incomplete_write_of_block_with_blocks_is_no_loss() {
    let (kept, torn) = (random_block(9_000), block_of_sections());
    let hurts: [fn(&Path, u64); 2] = [
        |pack, at| OpenOptions::new().write(true).open(pack).unwrap().set_len(at + 500_000).unwrap(),
        |pack, at| overwrite(pack, at + PREFIX + 1, &[0; 4_096]),
    ];
    for hurt in hurts {
        let (dir, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(saved.path().join("index")).unwrap();
        let put = async |block: &Block| {
            let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
            put_all(&store, std::slice::from_ref(block)).await;
            store.close().await.unwrap();
        };
        put(&kept).await;
        copy_index(dir.path(), saved.path());
        let pack = newest(dir.path());
        put(&torn).await;
        // Padding precedes the large block.
        let start = len(&pack) - PREFIX - 1 - torn.data().len() as u64;
        hurt(&pack, start);
        copy_index(saved.path(), dir.path());
        for is_read_only in [true, false] {
            let store = PackStore::open(dir.path(), PackOptions { read_only: is_read_only, ..PackOptions::default() });
            let store = store.unwrap();
            assert_eq!(store.losses().unwrap(), Vec::<String>::new());
            assert_holds(&store, std::slice::from_ref(&kept)).await;
            assert_lacks(&store, std::slice::from_ref(&torn)).await;
            store.close().await.unwrap();
        }
        put(&torn).await;
        let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
        assert_holds(&store, &[kept.clone(), torn.clone()]).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn too_large_length_in_newest_pack_loses_no_other_block() {
    for has_index in [false, true] {
        let (dir, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(saved.path().join("index")).unwrap();
        let blocks: Vec<_> = (0..5).map(|_| random_block(200_000)).collect();
        for part in [&blocks[..1], &blocks[1..]] {
            if dir.path().join("index").exists() {
                copy_index(dir.path(), saved.path());
            }
            let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
            put_all(&store, part).await;
            store.close().await.unwrap();
        }
        // The last of the three bytes of the length of the third block, which then seems to end behind the pack.
        let pack = newest(dir.path());
        overwrite(&pack, len(&pack) - (PREFIX + 1 + 200_000) * 3 + 2, &[0x7f]);
        if has_index {
            copy_index(saved.path(), dir.path())
        } else {
            lose_index(dir.path())
        };
        let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
        assert_holds(&store, &[&blocks[..2], &blocks[3..]].concat()).await;
        // Only an index tells what was acknowledged.
        assert_eq!(store.losses().unwrap().is_empty(), has_index);
        store.close().await.unwrap();
    }
}

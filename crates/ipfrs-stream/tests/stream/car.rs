//! Encoding and decoding of CARs: whole, truncated, split and hostile ones.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, Error, ErrorKind, codec};
use ipfrs_store::{BlockStore, PackOptions, PackStore, PutMode};
use ipfrs_stream::car::{CarLimits, CarReader, encode_batches, encode_walk, frame, header};
use ipfrs_stream::{DagWalk, StreamingConfig};
use proptest::prelude::*;

use crate::dag::{flat_file, pattern, raw};
use crate::runtime;

fn car(roots: &[Cid], blocks: &[Block]) -> Vec<u8> {
    let frames = blocks.iter().flat_map(|block| frame(block.cid(), block.data().clone()));
    std::iter::once(header(roots)).chain(frames).collect::<Vec<_>>().concat()
}

/// Splits `car` into pieces of these sizes and a last piece with the rest. If `slow` is true, the reader has to wait
/// before each piece.
fn pieces(car: &[u8], cuts: &[usize], slow: bool) -> BoxStream<'static, ipfrs_core::Result<Bytes>> {
    let mut rest = Bytes::copy_from_slice(car);
    let mut pieces: Vec<_> = cuts.iter().map(|cut| rest.split_to(*cut.min(&rest.len()))).collect();
    pieces.push(rest);
    let pieces = stream::iter(pieces).map(Ok);
    if !slow {
        return pieces.boxed();
    }
    let wait = |piece| async {
        tokio::task::yield_now().await;
        piece
    };
    pieces.then(wait).boxed()
}

/// Reads every block up to the end or the error.
async fn read<S>(reader: &mut CarReader<S>) -> (Vec<Block>, Option<Error>)
where
    S: futures::Stream<Item = ipfrs_core::Result<Bytes>> + Unpin,
{
    let mut blocks = Vec::new();
    while let Some(block) = reader.next().await {
        match block {
            Ok(block) => blocks.push(block),
            Err(error) => {
                assert!(reader.next().await.is_none(), "nothing follows an error");
                return (blocks, Some(error));
            }
        }
    }
    (blocks, None)
}

/// Converts a CARv1 into a CARv2 with a gap before it and an index after it.
fn v2(v1: &[u8], gap: usize) -> Vec<u8> {
    let mut car = b"\x0a\xa1gversion\x02".to_vec();
    car.extend([0; 16]);
    for number in [51 + gap, v1.len(), 51 + gap + v1.len()] {
        car.extend((number as u64).to_le_bytes());
    }
    car.extend(vec![0xee; gap]);
    car.extend(v1);
    car.extend([0xff; 100]);
    car
}

/// Uses a pack store with adjacent small blocks, large blocks, a block under another codec, and missing blocks.
#[tokio::test]
async fn car_from_sections_equals_car_from_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    let small: Vec<Block> = (0..200).map(|n| raw(pattern(n, 1_000))).collect();
    let large: Vec<Block> = (0..3).map(|n| raw(pattern(n, 300_000))).collect();
    for blocks in [&small, &large] {
        assert!(store.put_many(blocks.clone(), PutMode::Atomic).await.iter().all(Result::is_ok));
    }
    let absent = raw(pattern(9, 10));
    let recoded = Cid::new_v1(codec::DAG_PB, *small[5].cid().hash());
    let recoded = Block::trusted(recoded, small[5].data().clone());
    let inline = Block::hash(1, codec::RAW, HashFunction::Identity, Bytes::from_static(b"inline")).unwrap();
    let scattered: Vec<Block> = (0..200).map(|n| small[n * 77 % 200].clone()).collect();
    for asked in [vec![], small.clone(), large, scattered, vec![small[0].clone(), recoded, inline, small[1].clone()]] {
        let expected = car(&[], &asked);
        let mut cids: Vec<Cid> = asked.iter().map(|block| *block.cid()).collect();
        cids.insert(cids.len() / 2, *absent.cid());
        let cids: Arc<[Cid]> = cids.into();
        // The first round finds the blocks in the index and on disk, the second in memory.
        for _ in 0..2 {
            let pieces: Vec<Bytes> =
                encode_batches(cids.clone(), store.get_batches(cids.clone())).try_collect().await.unwrap();
            assert!(pieces.concat() == expected);
            assert!(pieces.len() < 10, "{} pieces for {} blocks", pieces.len(), asked.len());
        }
    }
    let cids: Arc<[Cid]> = small.iter().map(|block| *block.cid()).collect();
    store.close().await.unwrap();
    let failed: Vec<_> = encode_batches(cids.clone(), store.get_batches(cids)).collect().await;
    assert_eq!(failed.last().unwrap().as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(failed.iter().filter(|piece| piece.is_err()).count(), 1);
}

/// The leaves are adjacent in the pack, once in the order of the DAG and once in another order.
#[tokio::test]
async fn car_of_walk_joins_adjacent_sections() {
    let blocks = flat_file(1_000, 1_000);
    let (root, leaves) = blocks.split_last().unwrap();
    let expected = car(&[*root.cid()], &[std::slice::from_ref(root), leaves].concat());
    let scattered: Vec<Block> = (0..leaves.len()).map(|at| leaves[at * 77 % leaves.len()].clone()).collect();
    for (stored, longest) in [(leaves.to_vec(), 100_000), (scattered, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
        assert!(store.put_many([stored, vec![root.clone()]].concat(), PutMode::Atomic).await.iter().all(Result::is_ok));
        let packs = store.clone();
        let store: Arc<dyn BlockStore> = Arc::new(store);
        for _ in 0..2 {
            let (mut count, mut bytes) = (0, 0);
            let walk = DagWalk::new(Arc::clone(&store), vec![*root.cid()], &StreamingConfig::default());
            let note = |block: ipfrs_core::Result<usize, &Error>| (count, bytes) = (count + 1, bytes + block.unwrap());
            let pieces: Vec<Bytes> = encode_walk(&[*root.cid()], walk, note).try_collect().await.unwrap();
            assert!(pieces.concat() == expected);
            assert_eq!((count, bytes), (blocks.len(), blocks.iter().map(|block| block.data().len()).sum::<usize>()));
            assert!(pieces.len() < 60 && pieces.iter().any(|piece| piece.len() > longest), "{} pieces", pieces.len());
        }
        packs.close().await.unwrap();
    }
}

#[tokio::test]
async fn car_of_walk_ends_with_the_error() {
    let blocks = flat_file(100, 10_000);
    let (root, leaves) = blocks.split_last().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    let stored = leaves[..50].iter().chain([root]).cloned().collect();
    assert!(store.put_many(stored, PutMode::Atomic).await.iter().all(Result::is_ok));
    let walk = DagWalk::new(Arc::new(store.clone()), vec![*root.cid()], &StreamingConfig::default());
    let mut pieces: Vec<_> = encode_walk(&[*root.cid()], walk, |_| {}).collect().await;
    assert_eq!(pieces.pop().unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    let sent: Vec<Bytes> = pieces.into_iter().map(Result::unwrap).collect();
    assert!(sent.concat() == car(&[*root.cid()], &[std::slice::from_ref(root), &leaves[..50]].concat()));
    store.close().await.unwrap();
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let block = prop_oneof![
        (0..5_000_usize, any::<u64>()).prop_map(|(len, seed)| raw(pattern(seed, len))),
        prop::collection::vec(any::<u8>(), 0..=128).prop_map(|data| Block::hash(
            1,
            codec::RAW,
            HashFunction::Identity,
            data.into()
        )
        .unwrap()),
        (1..900_usize)
            .prop_map(|len| { Block::hash(0, codec::DAG_PB, HashFunction::Sha2_256, pattern(0, len).into()).unwrap() }),
    ];
    prop::collection::vec(block, 0..20).prop_map(|mut blocks| {
        blocks.extend(blocks.first().cloned());
        blocks
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn car_round_trips_for_any_split(
        blocks in blocks(), cuts in prop::collection::vec(0..2_000_usize, 0..60), gap in 0..50_usize, as_v2: bool,
        slow: bool,
    ) {
        let roots: Vec<_> = blocks.iter().take(3).map(|block| *block.cid()).collect();
        let mut car = car(&roots, &blocks);
        if as_v2 {
            car = v2(&car, gap);
        }
        runtime().block_on(async {
            let mut reader = CarReader::new(pieces(&car, &cuts, slow), CarLimits::default());
            assert_eq!(reader.header().await.unwrap(), roots);
            let (read, error) = read(&mut reader).await;
            assert!(error.is_none(), "{error:?}");
            assert_eq!(read, blocks);
        });
    }

    #[test]
    fn car_reader_never_panics(
        blocks in blocks(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        noise in prop::collection::vec(any::<u8>(), 0..300), cuts in prop::collection::vec(0..50_usize, 0..5),
    ) {
        let mut damaged = car(&[], &blocks);
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        runtime().block_on(async {
            for car in [damaged.clone(), v2(&damaged, 3), noise.clone(), [header(&[]).to_vec(), noise.clone()].concat()] {
                let mut reader = CarReader::new(pieces(&car, &cuts, false), CarLimits::default());
                let (read, _) = read(&mut reader).await;
                assert!(read.into_iter().all(|block| Block::new(*block.cid(), block.data().clone()).is_ok()));
            }
        });
    }
}

#[tokio::test]
async fn car_fixture_of_specification_round_trips() {
    // The header and the first section of https://ipld.io/specs/transport/car/fixture/carv1-basic/.
    let hex = "63a265726f6f747382d82a58250001711220f88bc853804cf294fe417e4fa83028689fcdb1b1592c5102e1474dbc200fab8bd82a58\
               25000171122069ea0740f9807a28f4d932c62e7c1c83be055e55072c90266ab3e79df63a365b6776657273696f6e0128015512\
               2061be55a8e2f6b4e172338bddf184d6dbee29c98853e0a0485ecee7f27b9af0b461616161";
    let fixture: Vec<_> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let mut reader = CarReader::new(pieces(&fixture, &[], false), CarLimits::default());
    let roots = reader.header().await.unwrap().to_vec();
    assert_eq!(roots.iter().map(Cid::codec).collect::<Vec<_>>(), [codec::DAG_CBOR; 2]);
    let (blocks, error) = read(&mut reader).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(blocks, [raw(&b"aaaa"[..])]);
    assert_eq!(car(&roots, &blocks), fixture);
}

#[tokio::test]
async fn payloads_are_shared_on_the_way_out_and_in() {
    let block = raw(pattern(1, 100_000));
    let [_, payload] = frame(block.cid(), block.data().clone());
    assert_eq!(payload.as_ptr(), block.data().as_ptr());

    let car = Bytes::from(car(&[], &[block]));
    let range = car.as_ptr_range();
    let mut reader = CarReader::new(stream::iter([Ok(car)]), CarLimits::default());
    let read = reader.next().await.unwrap().unwrap();
    assert!(range.contains(&read.data().as_ptr()));
}

#[tokio::test]
async fn car_wrong_hash_fails_after_preceding_blocks() {
    let mut blocks: Vec<_> = (0..80).map(|seed| raw(pattern(seed, 100_000))).collect();
    let offset = car(&[], &blocks[..57]).len();
    blocks[57] = Block::trusted(*blocks[57].cid(), pattern(1000, 100_000).into());
    let car = car(&[], &blocks);
    let mut reader = CarReader::new(pieces(&car, &[64 * 1024; 130], false), CarLimits::default());
    let (read, error) = read(&mut reader).await;
    assert_eq!(read, blocks[..57]);
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().starts_with(&format!("section at byte {offset} of the CAR: ")), "{error}");
    assert!(error.message().contains(&blocks[57].cid().to_string()), "{error}");
}

#[tokio::test]
async fn a_failure_of_the_stream_itself_keeps_its_kind() {
    let first = raw(&b"first"[..]);
    let start = Bytes::from(car(&[], std::slice::from_ref(&first)));
    let broken = stream::iter([Ok(start), Err(Error::new(ErrorKind::Timeout, "the client went away"))]);
    let (blocks, error) = read(&mut CarReader::new(broken, CarLimits::default())).await;
    assert_eq!(blocks, [first]);
    assert_eq!(error.unwrap().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn hostile_input_is_refused_with_the_offset_of_its_section() {
    let good = raw(&b"good"[..]);
    let start = car(&[], std::slice::from_ref(&good));
    let at = start.len();
    let section = |bytes: &[u8]| [&start[..], bytes].concat();
    let at_section = format!("section at byte {at} of the CAR: ");
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    let over = frame(good.cid(), vec![0; 2 * 1024 * 1024 + 1].into()).concat();
    let cid = good.cid().to_bytes();
    let unknown_hash = [&[0x06][..], &[0x01, 0x55, 0x99, 0x01, 0x00, b'x']].concat();
    let v2_early = [&v2(&start, 0)[..27], &10_u64.to_le_bytes(), &[0; 16]].concat();
    let in_v2 = v2(&v2(&start, 0), 0);
    // Truncated between two sections.
    let v2_short = v2(&[&start[..], &start[..]].concat(), 0)[..51 + start.len()].to_vec();
    let v2_short_at = format!("section at byte {} of the CAR: the CAR is truncated", 51 + start.len());
    let cases: [(&str, Vec<u8>, ErrorKind, &str); 21] = [
        ("nothing", vec![], ErrorKind::InvalidInput, "header at byte 0 of the CAR: it has no bytes"),
        ("not a CAR", b"\x05hello".to_vec(), ErrorKind::InvalidInput, "header at byte 0 of the CAR: not a CAR"),
        (
            "header cut off",
            start[..10].to_vec(),
            ErrorKind::InvalidInput,
            "header at byte 0 of the CAR: the CAR is truncated",
        ),
        ("header too large", vec![0xff, 0xff, 0x7f], ErrorKind::TooLarge, "over the limit of 1048576 bytes"),
        ("other version", b"\x0a\xa1gversion\x03".to_vec(), ErrorKind::Unsupported, "CAR version 3"),
        ("no roots", b"\x0a\xa1gversion\x01".to_vec(), ErrorKind::InvalidInput, "no list of roots"),
        ("v2 cut off", v2(&start, 0)[..40].to_vec(), ErrorKind::InvalidInput, "CARv2 header at byte 0"),
        ("v2 data in its header", v2_early, ErrorKind::InvalidInput, "begins at byte 10"),
        ("v2 shorter than it says", v2_short, ErrorKind::InvalidInput, &v2_short_at),
        ("v2 in v2", in_v2, ErrorKind::InvalidInput, "header at byte 51 of the CAR: not a CAR"),
        ("v2 with nothing in it", v2(&[], 0), ErrorKind::InvalidInput, "header at byte 51 of the CAR: it has no bytes"),
        ("huge varint", section(&huge), ErrorKind::InvalidInput, "a varint has more than 9 bytes"),
        ("varint that is not minimal", section(&[0x85, 0x00]), ErrorKind::InvalidInput, "not minimal"),
        ("varint cut off", section(&[0x85]), ErrorKind::InvalidInput, "the CAR is truncated"),
        ("empty section", section(&[0]), ErrorKind::InvalidInput, "it has no bytes"),
        ("section over the limit", section(&[0xff, 0xff, 0xff, 0x7f]), ErrorKind::TooLarge, "over the limit of"),
        ("block over the limit", section(&over), ErrorKind::TooLarge, "2097153 bytes is over the limit"),
        ("section cut off", section(&[0x28, 1, 2, 3]), ErrorKind::InvalidInput, "the CAR is truncated"),
        ("bad CID", section(&[3, 9, 9, 9]), ErrorKind::InvalidInput, "invalid binary CID"),
        ("CID cut off", section(&[&[5], &cid[..5]].concat()), ErrorKind::InvalidInput, "invalid binary CID"),
        ("unknown hash", section(&unknown_hash), ErrorKind::Unsupported, "hash function 0x99"),
    ];
    for (name, bytes, kind, message) in cases {
        for (cuts, slow) in [(vec![], false), (vec![1; bytes.len().min(300)], true)] {
            let (blocks, error) = read(&mut CarReader::new(pieces(&bytes, &cuts, slow), CarLimits::default())).await;
            let error = error.unwrap_or_else(|| panic!("{name}: accepted"));
            assert_eq!(error.kind(), kind, "{name}: {error}");
            assert!(error.message().contains(message), "{name}: {error}");
            if bytes.starts_with(&start) {
                assert_eq!(blocks, std::slice::from_ref(&good), "{name}");
                assert!(error.message().starts_with(&at_section), "{name}: {error}");
            }
        }
    }
}

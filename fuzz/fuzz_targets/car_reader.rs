//! Reads arbitrary bytes as a CAR, whole and in small pieces. Both must return the same blocks, each of which matches
//! its content ID, and fail at the same place.
#![no_main]

use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::hash;
use ipfrs_stream::car::{CarLimits, CarReader};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;

/// Result of reading: content ID and data of each block, and the error that ended the reading, if any.
type Read = (Vec<(Vec<u8>, Bytes)>, Option<String>);

async fn read(car: &[u8], piece_bytes: usize) -> Read {
    let pieces: Vec<_> = car.chunks(piece_bytes).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let mut reader = CarReader::new(stream::iter(pieces), CarLimits::default());
    let mut blocks = Vec::new();
    while let Some(block) = reader.next().await {
        match block {
            Ok(block) => {
                hash::verify(block.cid(), block.data()).expect("blocks that come through are verified");
                blocks.push((block.cid().to_bytes(), block.data().clone()));
            }
            Err(error) => return (blocks, Some(error.to_string())),
        }
    }
    (blocks, None)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_bytes, car) = input;
    let runtime = Builder::new_current_thread().build().expect("a runtime starts");
    let whole = runtime.block_on(read(car, usize::MAX));
    assert_eq!(runtime.block_on(read(car, usize::from(piece_bytes).max(1))), whole);
});

//! Lists of pins.

use std::future::poll_fn;
use std::sync::Arc;

use futures::StreamExt;
use ipfrs_core::codec;
use ipfrs_node::{BlockFormat, ContentPath, MemoryStore, Node, NodeConfig, PinFilter, PinOptions, PutBlock};

#[tokio::test]
async fn list_that_selects_no_pin_lets_other_tasks_run() {
    /// Fewer than a page.
    const PINS: usize = 900;
    /// Number of pins that a task examines at once, by the budget of tokio.
    const STEP: usize = 128;
    let repo = tempfile::tempdir().unwrap();
    let (store, config) = (Arc::new(MemoryStore::default()), NodeConfig::default());
    let node = Node::builder(repo.path()).engine(store).config(config).open().await.unwrap();
    let mut paths = Vec::new();
    for number in 0..PINS {
        let format = BlockFormat { codec: codec::RAW, ..BlockFormat::default() };
        let block = PutBlock { data: number.to_string().into(), cid: None, format };
        let (cid, _) = node.put_block(block).await.unwrap();
        paths.push(ContentPath::new(cid, Vec::new()).unwrap());
    }
    node.pin(&paths, &PinOptions { recursive: false, ..PinOptions::default() }, |_| {}).await.unwrap();
    let (mut pins, mut polls) = (node.pins(PinFilter::Recursive), 0);
    let pin = poll_fn(|cx| {
        polls += 1;
        pins.poll_next_unpin(cx)
    });
    assert!(pin.await.is_none());
    // Without steps it would be polled three times, because it waits twice for a page.
    assert!(polls >= PINS / STEP, "{polls}");
    node.close().await.unwrap();
}

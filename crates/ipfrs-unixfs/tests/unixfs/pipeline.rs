//! The import pipeline with slow and failing sinks and sources.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::{Block, Error, ErrorKind, Result};
use ipfrs_unixfs::{Attributes, BlockSink, ImportOptions, Importer};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::yield_now;

use crate::harness::{Memory, import, random_bytes};

const MIB: usize = 1 << 20;

/// A sink that acknowledges one batch for each semaphore permit and counts its batches.
struct Gate {
    open: Semaphore,
    batches: AtomicUsize,
}

impl Gate {
    fn closed() -> Arc<Self> {
        Arc::new(Self { open: Semaphore::new(0), batches: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl BlockSink for Gate {
    async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
        self.batches.fetch_add(1, Ordering::SeqCst);
        self.open.acquire().await.unwrap().forget();
        Ok(())
    }
}

/// Runs `work` until it completes or no task can make progress. The clock is paused, so the timeout fires as soon as
/// the runtime is idle.
async fn until_idle<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_secs(3600), work).await.ok()
}

#[tokio::test(start_paused = true)]
async fn import_with_stalled_sink_stays_within_memory_bound() {
    let sink = Gate::closed();
    let mut importer = Importer::new(ImportOptions::default(), Arc::clone(&sink) as _);
    let piece = random_bytes(MIB / 4);
    let mut read = 0;
    let endless = stream::repeat_with(|| Ok(piece.clone()));
    {
        let mut progress = |bytes| read = bytes;
        let mut file = pin!(importer.file(endless, Attributes::default(), &mut progress));
        // Threads that hash are not part of the runtime, which may be idle before they are.
        let full = async {
            while sink.batches.load(Ordering::SeqCst) < 4 {
                yield_now().await;
            }
        };
        tokio::select! {
            ended = &mut file => panic!("{ended:?}"),
            () = full => {}
        }
        assert!(until_idle(file).await.is_none());
    }
    let cores = ipfrs_core::cores();
    assert!(read <= ((cores + 6) * 4 * MIB) as u64, "{read} bytes were read");
    assert_eq!(sink.batches.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn marks_become_durable_in_order_and_flush_waits_for_all() {
    let sink = Gate::closed();
    let mut importer = Importer::new(ImportOptions::default(), Arc::clone(&sink) as _);
    let mut marks = vec![importer.mark()];
    for _ in 0..3 {
        import(&mut importer, &random_bytes(5 * MIB), MIB).await;
        marks.push(importer.mark());
    }
    assert!(marks.is_sorted() && marks[0] < marks[3]);
    assert_eq!(importer.durable(), marks[0]);
    assert!(until_idle(importer.flush()).await.is_none(), "nothing is acknowledged yet");
    sink.open.add_permits(2);
    assert!(until_idle(importer.flush()).await.is_none(), "two of four batches are acknowledged");
    assert!(importer.durable() >= marks[1] && importer.durable() < marks[3]);
    sink.open.add_permits(2);
    importer.flush().await.unwrap();
    assert_eq!(importer.durable(), marks[3]);
}

#[tokio::test]
async fn many_small_files_share_batches() {
    let sink = Gate::closed();
    sink.open.add_permits(1000);
    let mut importer = Importer::new(ImportOptions::default(), Arc::clone(&sink) as _);
    for i in 0..3000 {
        import(&mut importer, &Bytes::from(format!("file {i}")), 100).await;
    }
    importer.flush().await.unwrap();
    assert_eq!(sink.batches.load(Ordering::SeqCst), 3, "1,024 blocks a batch");
}

/// A sink that fails from the second batch on.
#[derive(Default)]
struct FullDisk(AtomicU64);

#[async_trait]
impl BlockSink for FullDisk {
    async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(Error::new(ErrorKind::NoSpace, "the disk is full")),
        }
    }
}

#[tokio::test]
async fn an_error_of_the_sink_ends_the_import() {
    let mut importer = Importer::new(ImportOptions::default(), Arc::new(FullDisk::default()));
    let piece = random_bytes(MIB);
    let endless = stream::repeat_with(|| Ok(piece.clone()));
    let error = importer.file(endless, Attributes::default(), &mut |_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    let durable = importer.durable();
    // After the error, the importer must refuse further work.
    assert_eq!(importer.symlink("x", Attributes::default()).await.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(importer.flush().await.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(importer.durable(), durable);
    assert!(durable < importer.mark());
}

#[tokio::test]
async fn an_error_of_the_content_ends_the_file() {
    let mut importer = Importer::new(ImportOptions::default(), Arc::new(Memory::default()));
    let broken = stream::iter([Ok(random_bytes(MIB))]).chain(stream::iter([Err(Error::invalid("cut off"))]));
    let error = importer.file(broken, Attributes::default(), &mut |_| {}).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidInput, "cut off"));
}

/// A sink that never finishes its first batch, and reports when that batch is dropped.
struct Abandoned {
    dropped: Mutex<Option<oneshot::Sender<()>>>,
    started: Semaphore,
}

#[async_trait]
impl BlockSink for Abandoned {
    async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
        let _dropped_with_the_future = self.dropped.lock().unwrap().take();
        self.started.add_permits(1);
        std::future::pending().await
    }
}

#[tokio::test]
async fn dropping_the_importer_ends_its_tasks() {
    let (dropped, was_dropped) = oneshot::channel();
    let sink = Arc::new(Abandoned { dropped: Mutex::new(Some(dropped)), started: Semaphore::new(0) });
    let mut importer = Importer::new(ImportOptions::default(), Arc::clone(&sink) as _);
    import(&mut importer, &random_bytes(5 * MIB), MIB).await;
    sink.started.acquire().await.unwrap().forget();
    drop(importer);
    assert!(was_dropped.await.is_err(), "the sender was dropped, not used");
}

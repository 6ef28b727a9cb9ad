//! The handle of a pack store: opening and closing.

use std::path::Path;
use std::sync::Arc;

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::options::{MIN_PACK_BYTES, PackOptions};
use super::queue::Queue;
use super::readahead::Worker;
use super::shared::Shared;
use super::writer::Writer;
use super::{read_only, recovery};

/// A store that keeps blocks in pack files. Clones share the store.
///
/// If the last handle is dropped without [`close`](Self::close), the writer thread ends shortly afterwards and then
/// releases the store for other processes. Nothing that was acknowledged is lost.
///
/// Futures and streams may be dropped at any time, and need a Tokio runtime of either flavor. Opening a store installs
/// a handler for SIGBUS in the process, because another program may truncate a mapped file; other faults go to the
/// previous handler. If the length of files is limited (`RLIMIT_FSIZE`), the process must ignore SIGXFSZ: a write that
/// exceeds the limit is then [`ErrorKind::NoSpace`].
#[derive(Debug, Clone)]
pub struct PackStore {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<Queue>,
}

impl PackStore {
    /// Opens the store in `dir`, creating it if it does not exist. Waits for the disk: content that the index does
    /// not cover yet is read and verified. Asynchronous code calls this on a thread that may block
    /// (`tokio::task::spawn_blocking`).
    ///
    /// # Errors
    /// [`Conflict`](ipfrs_core::ErrorKind), with the process that has the store open; [`Unsupported`] for a store
    /// with a newer format; [`InvalidInput`] for an option that is out of range; otherwise an error with the path and
    /// the cause.
    ///
    /// [`Unsupported`]: ipfrs_core::ErrorKind
    /// [`InvalidInput`]: ipfrs_core::ErrorKind
    pub fn open(dir: &Path, options: PackOptions) -> Result<Self> {
        if options.pack_bytes < MIN_PACK_BYTES {
            return Err(Error::invalid(format!(
                "packs of {} bytes are too small: use {MIN_PACK_BYTES} to {}",
                options.pack_bytes,
                u32::MAX
            )));
        }
        let recovered = match options.read_only {
            true => read_only::open(dir, options)?,
            false => recovery::open(dir, options)?,
        };
        let shared = Arc::clone(&recovered.shared);
        let (queue, jobs) = Queue::new();
        let writer = Writer::new(recovered, jobs);
        std::thread::Builder::new()
            .name("ipfrs-store".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Error::io("cannot start the block writer thread", error))?;
        Ok(Self { shared, queue: Arc::new(queue) })
    }

    /// Whether the store has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.stats().blocks == 0
    }

    /// Closes the store: pending writes are completed, the index is made durable, and other processes may open the
    /// store. Bytes that were read stay valid. All other operations on any handle return
    /// [`Unavailable`](ipfrs_core::ErrorKind) from now on.
    ///
    /// # Errors
    /// If the index could not be made durable. The store is closed nevertheless, and the next start replays more.
    pub async fn close(&self) -> Result<()> {
        self.queue.close(&self.shared).await
    }

    /// Reports a loss of blocks that is not one of the packs. Waits for the disk.
    ///
    /// # Errors
    /// If the loss cannot be noted in the file. A read-only store notes nothing.
    pub fn add_loss(&self, what: &str) -> Result<()> {
        self.shared.losses.add(what)
    }

    /// Returns the losses of blocks that were found when the store was opened, now or earlier, as lines of text. They
    /// are in the file `lost-blocks` in the directory of the store, until the operator removes it. Waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn losses(&self) -> Result<Vec<String>> {
        self.shared.losses.all()
    }

    /// Checks that the index has not turned out to be unreadable, in which case lookups fail. If it has, tries to read
    /// it again.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if part of the index cannot be read, [`ErrorKind::Unavailable`] if the store is closed.
    pub async fn check_index(&self) -> Result<()> {
        match self.shared.with_index(|index| index.check()) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.blocking(|shared| shared.with_index(|index| index.check_again())).await
            }
            checked => checked,
        }
    }
}

impl PackStore {
    /// Runs `work`, a long read, on a thread of the store. Reads start in the order of the calls, at most
    /// [`MAX_RUNNING`](super::readahead) at a time. A read whose caller is gone by then is skipped. Only running reads
    /// count towards the limit, so a caller that is not polled does not delay others.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move |shared: &Shared| {
            if !sender.is_closed() {
                // The caller may be gone by now.
                let _gone = sender.send(work(shared));
            }
        });
        if self.shared.long_reads.push(job) {
            Worker::start(Arc::clone(&self.shared)).map_err(|e| Error::io("cannot start a block reader thread", e))?;
        }
        receiver.await.unwrap_or_else(|_| Err(Error::internal("a long read of the block store did not complete")))
    }
}

//! Metric families of blocks, batches, streams and caches (all with the prefix `ipfrs_`).

mod meter;

use std::cell::RefCell;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::Collector,
};

pub use self::meter::CacheMeter;
pub(crate) use self::meter::{Active, cache_meter};
use crate::denylist::DenylistMetrics;
use crate::fetched::FetchedMetrics;
use crate::names::NameMetrics;
#[cfg(feature = "dns")]
use crate::names::dnslink::LookupMetrics;
use crate::refusals::Refusals;
use crate::tensors::TensorMetrics;

/// Handles of the Node's metrics. Streams share them behind one `Arc`, because cloning them would change one
/// reference count for each metric.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Blocks read.
    pub blocks_retrieved: IntCounter,
    /// Blocks written, except those that the store already had.
    pub blocks_stored: IntCounter,
    /// Failed block operations, by operation.
    pub block_errors: BlockErrors,
    /// Seconds from the request for one block until its bytes are in memory.
    pub block_retrieval: Histogram,
    /// Blocks per batch, by operation.
    pub batch_size: HistogramVec,
    /// Seconds per batch until its last block, by operation.
    pub batch_duration: HistogramVec,
    /// Payload bytes that imports received.
    pub upload_bytes: IntCounter,
    /// Payload bytes of files and DAGs that were sent.
    pub download_bytes: IntCounter,
    /// Number of open downloads.
    pub downloads_active: IntGauge,
    /// Number of open uploads.
    pub uploads_active: IntGauge,
    /// Resumable uploads that have begun and are not finished.
    pub uploads_unfinished: IntGauge,
    /// Resumable uploads that expired before they were finished.
    pub uploads_expired: IntCounter,
    /// Bytes of each piece that is passed to a connection.
    pub chunk_size: Histogram,
    /// Lookups of file nodes that hit the cache.
    pub node_hits: IntCounter,
    /// Lookups of file nodes that had to decode the node.
    pub node_misses: IntCounter,
    /// Approximate bytes of each cache.
    pub cache_size: IntGaugeVec,
    cache_hits: IntCounterVec,
    cache_misses: IntCounterVec,
    /// Blocks in the store.
    pub store_blocks: IntGauge,
    /// Disk space of the store, in bytes.
    pub store_disk_bytes: IntGauge,
    /// Number of times that bytes of a pack turned out to be missing.
    pub store_faults: IntCounter,
    /// Losses of blocks that the operator has not acknowledged.
    pub store_losses: IntGauge,
    /// Pins, direct and recursive.
    pub pins: IntGauge,
    /// Requests of the pinning service API, by their state.
    #[cfg(feature = "pinning")]
    pub pin_requests: IntGaugeVec,
    /// Garbage collections.
    pub collections: CollectionMetrics,
    /// Fetched blocks.
    pub fetched: FetchedMetrics,
    /// Metrics of denylists.
    pub denylists: DenylistMetrics,
    /// Names that were resolved.
    pub names: NameMetrics,
    /// DNSLinks that were looked up.
    #[cfg(feature = "dns")]
    pub dnslink: LookupMetrics,
    /// Limits that refused or aborted requests.
    pub refusals: Refusals,
    /// Tensors that clients requested.
    pub tensors: TensorMetrics,
}

impl Metrics {
    /// Registers the metrics. Dropping the second result removes them again, unless it is kept.
    pub(crate) fn register(registry: &Registry) -> Result<(Self, Registration)> {
        let r = Registrar { registry, added: RefCell::default() };
        let metrics = Self::register_with(&r);
        let registration = Registration { registry: registry.clone(), added: r.added.into_inner() };
        Ok((metrics?, registration))
    }

    fn register_with(r: &Registrar<'_>) -> Result<Self> {
        let seconds = vec![1e-6, 5e-6, 2.5e-5, 1e-4, 5e-4, 2.5e-3, 0.01, 0.05, 0.25, 1.0, 5.0];
        let counts = vec![1.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 10_000.0];
        let bytes = vec![1_024.0, 16_384.0, 65_536.0, 262_144.0, 524_288.0, 1_048_576.0, 2_097_152.0];
        let streams = r.gauges("ipfrs_streaming_operations_active", "Open streams", "direction")?;
        let block_errors = BlockErrors::register(r)?;
        let batch_size = r.histograms("ipfrs_batch_operation_size", "Blocks per batch", "operation", counts)?;
        let batch_duration =
            r.histograms("ipfrs_batch_operation_duration_seconds", "Time per batch", "operation", seconds.clone())?;
        // Label values that have not occurred yet are exported as zeros, so that alerts on them work from the start.
        for operation in ["get", "put", "has"] {
            batch_size.with_label_values(&[operation]);
            batch_duration.with_label_values(&[operation]);
        }
        let hits = r.counters("ipfrs_cache_hits_total", "Cache hits, by cache", "cache")?;
        let misses = r.counters("ipfrs_cache_misses_total", "Cache misses, by cache", "cache")?;
        let cache_size = r.gauges("ipfrs_cache_size_bytes", "Approximate size of each cache", "cache")?;
        #[cfg(feature = "dns")]
        let links = cache_meter("dnslink", &hits, &misses, &cache_size);
        let name_records = cache_meter("name", &hits, &misses, &cache_size);
        Ok(Self {
            blocks_retrieved: r.counter("ipfrs_blocks_retrieved_total", "Blocks read from the store")?,
            blocks_stored: r.counter("ipfrs_blocks_stored_total", "Blocks written to the store")?,
            block_errors,
            block_retrieval: r.histogram(
                "ipfrs_block_retrieval_duration_seconds",
                "Time to load the bytes of one block into memory",
                seconds,
            )?,
            batch_size,
            batch_duration,
            upload_bytes: r.counter("ipfrs_upload_bytes_total", "Payload bytes imported")?,
            download_bytes: r.counter("ipfrs_download_bytes_total", "Payload bytes of files and DAGs sent")?,
            downloads_active: streams.with_label_values(&["download"]),
            uploads_active: streams.with_label_values(&["upload"]),
            uploads_unfinished: r.gauge("ipfrs_uploads_unfinished", "Unfinished resumable uploads")?,
            uploads_expired: r
                .counter("ipfrs_uploads_expired_total", "Resumable uploads that expired before they were finished")?,
            chunk_size: r.histogram("ipfrs_streaming_chunk_size_bytes", "Bytes per chunk of a stream", bytes)?,
            node_hits: hits.with_label_values(&["node"]),
            node_misses: misses.with_label_values(&["node"]),
            cache_hits: hits,
            cache_misses: misses,
            cache_size,
            #[cfg(feature = "pinning")]
            pin_requests: r.gauges("ipfrs_pin_requests", "Requests of the pinning service API, by state", "state")?,
            store_blocks: r.gauge("ipfrs_store_blocks", "Blocks in the store")?,
            store_disk_bytes: r.gauge("ipfrs_store_disk_bytes", "Disk space of the store, in bytes")?,
            store_faults: r.counter("ipfrs_store_faults_total", "Detected losses of pack bytes")?,
            store_losses: r.gauge("ipfrs_store_losses", "Losses of blocks in the file lost-blocks")?,
            pins: r.gauge("ipfrs_pins", "Pins, direct and recursive")?,
            collections: CollectionMetrics::register(r)?,
            fetched: r.fetched()?,
            denylists: r.denylists()?,
            #[cfg(feature = "dns")]
            dnslink: LookupMetrics::new(&r.add(LookupMetrics::family())?, links),
            names: NameMetrics::new(r.add(NameMetrics::family())?, name_records),
            tensors: r.tensors()?,
            refusals: Refusals::new(r.counters(
                "ipfrs_refusals_total",
                "Requests refused or aborted, by limit",
                "limit",
            )?),
        })
    }
}

/// Metrics in a registry. Dropping it removes them, so that opening a node can be tried again with the same registry.
#[must_use]
pub(crate) struct Registration {
    registry: Registry,
    added: Vec<Box<dyn Collector>>,
}

impl Registration {
    /// Leaves the metrics in the registry.
    pub(crate) fn keep(mut self) {
        self.added.clear();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        for metric in self.added.drain(..) {
            // Fails only for a metric that is not in the registry.
            let _ = self.registry.unregister(metric);
        }
    }
}

/// Block operations that failed, by operation and reason.
#[derive(Debug, Clone)]
pub(crate) struct BlockErrors(IntCounterVec);

impl BlockErrors {
    fn register(r: &Registrar<'_>) -> Result<Self> {
        let opts = Opts::new("ipfrs_block_errors_total", "Failed block operations, by operation and reason");
        let errors = r.add(IntCounterVec::new(opts, &["operation", "reason"]))?;
        for operation in ["get", "put", "has", "delete", "compact"] {
            errors.with_label_values(&[operation, "store"]);
        }
        for labels in [["get", "missing"], ["get", "timeout"], ["has", "timeout"], ["put", "invalid"]] {
            errors.with_label_values(&labels);
        }
        Ok(Self(errors))
    }

    /// Counts an operation that failed with `error`.
    pub(crate) fn failed(&self, operation: &str, error: &Error) {
        let reason = match error.kind() {
            ErrorKind::Timeout => "timeout",
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge => "invalid",
            // The operator has opened the repo read-only, so this is no failure.
            ErrorKind::Forbidden => return,
            _ => "store",
        };
        self.0.with_label_values(&[operation, reason]).inc();
    }

    /// Counts a block that was rejected before it reached the store, because its bytes do not match its content ID or
    /// because it can never be stored.
    pub(crate) fn refused(&self) {
        self.0.with_label_values(&["put", "invalid"]).inc();
    }

    /// Counts requested blocks that are not in the store.
    pub(crate) fn missing(&self, blocks: u64) {
        if blocks > 0 {
            self.0.with_label_values(&["get", "missing"]).inc_by(blocks);
        }
    }
}

/// Metrics of garbage collections.
#[derive(Debug, Clone)]
pub(crate) struct CollectionMetrics {
    runs: IntCounterVec,
    removed_blocks: IntCounter,
    freed_bytes: IntCounter,
    duration: Histogram,
    running: IntGauge,
}

impl CollectionMetrics {
    fn register(r: &Registrar<'_>) -> Result<Self> {
        let seconds = vec![0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1_800.0, 7_200.0];
        let runs = r.counters("ipfrs_gc_runs_total", "Finished garbage collections", "outcome")?;
        for outcome in ["done", "failed"] {
            runs.with_label_values(&[outcome]);
        }
        Ok(Self {
            runs,
            removed_blocks: r.counter("ipfrs_gc_removed_blocks_total", "Blocks removed by garbage collection")?,
            freed_bytes: r.counter(
                "ipfrs_gc_freed_bytes_total",
                "Disk bytes freed when garbage collections ended, except those that responses still held",
            )?,
            duration: r.histogram("ipfrs_gc_duration_seconds", "Time per garbage collection", seconds)?,
            running: r.gauge("ipfrs_gc_running", "Running garbage collections")?,
        })
    }

    /// Counts a gc run as running until the returned guard is dropped.
    pub(crate) fn running(&self) -> Active {
        Active::begin(&self.running)
    }

    /// Whether gc is running.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get() > 0
    }

    /// Counts removed blocks.
    pub(crate) fn removed(&self, blocks: usize) {
        self.removed_blocks.inc_by(blocks as u64);
    }

    /// Counts reclaimed disk space.
    pub(crate) fn freed(&self, bytes: u64) {
        self.freed_bytes.inc_by(bytes);
    }

    /// Counts a gc run that ended.
    pub(crate) fn ended(&self, duration: Duration, is_done: bool) {
        self.runs.with_label_values(&[if is_done { "done" } else { "failed" }]).inc();
        self.duration.observe(duration.as_secs_f64());
    }
}

impl Metrics {
    pub(crate) fn cache_meter(&self, cache: &str) -> CacheMeter {
        cache_meter(cache, &self.cache_hits, &self.cache_misses, &self.cache_size)
    }
}

struct Registrar<'a> {
    registry: &'a Registry,
    /// Metrics that were registered.
    added: RefCell<Vec<Box<dyn Collector>>>,
}

impl Registrar<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: prometheus::Result<C>) -> Result<C> {
        let failed = |e| Error::internal("a metric could not be registered").with_source(e);
        let metric = metric.map_err(failed)?;
        match self.registry.register(Box::new(metric.clone())) {
            Ok(()) => {
                self.added.borrow_mut().push(Box::new(metric.clone()));
                Ok(metric)
            }
            Err(prometheus::Error::AlreadyReg) => Err(Error::new(
                ErrorKind::Conflict,
                "the registry has the metrics of another node: give each node a registry of its own, with a label that \
                 tells them apart (Registry::new_custom)",
            )),
            Err(e) => Err(failed(e)),
        }
    }

    fn denylists(&self) -> Result<DenylistMetrics> {
        let failed = |e| Error::internal("a metric could not be created").with_source(e);
        let metrics = DenylistMetrics::new().map_err(failed)?;
        self.add(Ok(metrics.rules.clone()))?;
        self.add(Ok(metrics.blocked.clone()))?;
        self.add(Ok(metrics.reload_failures.clone()))?;
        Ok(metrics)
    }

    fn fetched(&self) -> Result<FetchedMetrics> {
        Ok(FetchedMetrics {
            bytes: self.gauge("ipfrs_fetched_bytes", "Bytes of fetched blocks that may be evicted")?,
            blocks: self.gauge("ipfrs_fetched_blocks", "Fetched blocks that may be evicted")?,
            evictions: self.counter("ipfrs_fetched_evictions_total", "Fetched blocks that were evicted")?,
            evicted_bytes: self.counter("ipfrs_fetched_evicted_bytes_total", "Bytes of fetched blocks evicted")?,
            claimed: self.counter("ipfrs_fetched_kept_total", "Fetched blocks that users added or pinned")?,
            refused: self.counter(
                "ipfrs_fetched_refused_total",
                "Fetched blocks that were not kept, because eviction did not free space in time",
            )?,
        })
    }

    fn tensors(&self) -> Result<TensorMetrics> {
        let sizes = vec![1_024.0, 65_536.0, 1_048_576.0, 16_777_216.0, 268_435_456.0, 4_294_967_296.0];
        Ok(TensorMetrics::new(
            self.counters("ipfrs_tensor_operations_total", "Operations on tensors of files", "type")?,
            self.counter("ipfrs_tensor_slice_operations_total", "Tensor slices read")?,
            self.histogram("ipfrs_tensor_size_bytes", "Bytes of requested tensors and slices", sizes)?,
        ))
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        self.add(IntCounter::new(name, help))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        self.add(IntGauge::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), &[label]))
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), &[label]))
    }

    fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> Result<Histogram> {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)))
    }

    fn histograms(&self, name: &str, help: &str, label: &str, buckets: Vec<f64>) -> Result<HistogramVec> {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), &[label]))
    }
}

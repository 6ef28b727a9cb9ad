//! Metrics of tensor operations.

use prometheus::{Histogram, IntCounter, IntCounterVec};

/// An operation on tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorOperation {
    /// Listing the tensors of a file.
    List,
    /// Reading a whole tensor.
    Get,
    /// Reading a slice of a tensor.
    Slice,
    /// Computing statistics of a tensor.
    Stats,
    /// Storing a tensor.
    Put,
}

impl TensorOperation {
    /// All operations.
    pub const ALL: [Self; 5] = [Self::List, Self::Get, Self::Slice, Self::Stats, Self::Put];

    /// Returns the label value in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Slice => "slice",
            Self::Stats => "stats",
            Self::Put => "put",
        }
    }
}

/// Handles of the tensor metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct TensorMetrics {
    operations: IntCounterVec,
    slices: IntCounter,
    size: Histogram,
}

impl TensorMetrics {
    /// Creates handles that count in `operations`, labeled by operation, and in `slices` and `size`.
    pub(crate) fn new(operations: IntCounterVec, slices: IntCounter, size: Histogram) -> Self {
        for operation in TensorOperation::ALL {
            operations.with_label_values(&[operation.name()]);
        }
        Self { operations, slices, size }
    }

    /// Counts an operation and the size of its tensor or slice. A list has no size.
    pub(crate) fn count(&self, operation: TensorOperation, bytes: u64) {
        self.operations.with_label_values(&[operation.name()]).inc();
        match operation {
            TensorOperation::List => return,
            TensorOperation::Slice => self.slices.inc(),
            TensorOperation::Get | TensorOperation::Stats | TensorOperation::Put => {}
        }
        #[expect(clippy::cast_precision_loss, reason = "a histogram does not need the last digits")]
        self.size.observe(bytes as f64);
    }
}

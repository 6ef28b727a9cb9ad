//! What is counted of tensors.

use prometheus::{Histogram, IntCounter, IntCounterVec};

/// What is done with tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorOperation {
    /// Listing the tensors of a file.
    List,
    /// Reading a whole tensor.
    Get,
    /// Reading a slice of a tensor.
    Slice,
    /// Summing up a tensor.
    Stats,
    /// Storing a tensor.
    Put,
}

impl TensorOperation {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::List, Self::Get, Self::Slice, Self::Stats, Self::Put];

    /// The name in metrics.
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

/// Handles of the metrics of tensors. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct TensorMetrics {
    operations: IntCounterVec,
    slices: IntCounter,
    size: Histogram,
}

impl TensorMetrics {
    /// Counts in `operations`, whose label is the operation, `slices` and `size`.
    pub(crate) fn new(operations: IntCounterVec, slices: IntCounter, size: Histogram) -> Self {
        for operation in TensorOperation::ALL {
            operations.with_label_values(&[operation.name()]);
        }
        Self { operations, slices, size }
    }

    /// Counts an operation, and the bytes of the tensor or slice that it concerns; a list concerns none.
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

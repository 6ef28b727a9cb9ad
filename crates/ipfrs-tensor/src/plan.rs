//! The byte ranges of a selection.

use ipfrs_core::{Error, Result};

use crate::{Dtype, Order, Selection};

/// A contiguous byte range of a tensor: `bytes` bytes from `start`, relative to the tensor's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes; never 0.
    pub bytes: u64,
}

impl Run {
    /// Returns the offset of the first byte after the run.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The bytes of a selection as runs, in the order of the tensor and thus of the result. Each run begins after the end
/// of the one before. The iterator has constant size for any number of runs, and a clone continues from the same
/// position.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Size of each run, in bytes.
    run: u64,
    /// Offset of the first run.
    first: u64,
    /// Offset of the next run; `None` after the last.
    next: Option<u64>,
    /// The dimensions outside of a run, innermost first.
    outer: Vec<Outer>,
    runs: u64,
}

/// A dimension that the iterator advances from run to run.
#[derive(Debug, Clone)]
struct Outer {
    /// Number of selected indices.
    count: u64,
    /// Number of selected indices before the next run.
    done: u64,
    /// Distance between selected indices, in bytes.
    stride: u64,
}

impl Plan {
    /// Returns the runs of `selection` of a tensor of `dtype` in `order`. The caller must have checked that the
    /// tensor's size in bytes does not overflow.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the elements take less than a byte and a run
    /// does not begin and end at a byte boundary.
    pub fn new(dtype: Dtype, selection: &Selection, order: Order) -> Result<Self> {
        if selection.dims.iter().any(|dim| dim.count == 0) {
            return Ok(Self { run: 0, first: 0, next: None, outer: Vec::new(), runs: 0 });
        }
        // Innermost first, counted in elements. No product exceeds that of the shape, which was checked.
        let (mut run, mut start, mut stride, mut is_one_run) = (1_u64, 0_u64, 1_u64, true);
        let mut outer = Vec::new();
        let rank = selection.dims.len();
        for index in 0..rank {
            let dim = &selection.dims[if order == Order::RowMajor { rank - 1 - index } else { index }];
            start += dim.start * stride;
            if is_one_run && (dim.step == 1 || dim.count == 1) {
                run *= dim.count;
                // In a dimension that is not taken whole, the next piece follows after a gap.
                is_one_run = dim.count == dim.of;
            } else if dim.count > 1 {
                is_one_run = false;
                outer.push(Outer { count: dim.count, done: 0, stride: dim.step * stride });
            }
            stride *= dim.of;
        }
        let whole = |elements: u64| {
            dtype.bytes_of(elements).ok_or_else(|| {
                let least = 8 / gcd(8, dtype.bits());
                Error::invalid(format!(
                    "elements of {dtype} have {} bits: a slice must begin and end at a multiple of {least} elements",
                    dtype.bits()
                ))
            })
        };
        let (run, first) = (whole(run)?, whole(start)?);
        for dim in &mut outer {
            dim.stride = whole(dim.stride)?;
        }
        let runs = outer.iter().map(|dim| dim.count).product();
        Ok(Self { run, first, next: Some(first), outer, runs })
    }

    /// Returns the total size of all runs, including those already taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.run * self.runs
    }

    /// Returns the size of each run in bytes, or 0 if the plan has no runs.
    #[must_use]
    pub fn run_bytes(&self) -> u64 {
        self.run
    }

    /// Returns the whole plan as one run, if it consists of one.
    #[must_use]
    pub fn as_one(&self) -> Option<Run> {
        (self.runs == 1).then_some(Run { start: self.first, bytes: self.run })
    }

    /// Makes the run at index `number` the next one, regardless of the current position. The first index is 0.
    pub fn skip_to(&mut self, number: u64) {
        let (mut rest, mut start) = (number, self.first);
        for dim in &mut self.outer {
            dim.done = rest % dim.count;
            rest /= dim.count;
            start += dim.done * dim.stride;
        }
        self.next = (number < self.runs).then_some(start);
    }

    /// Returns this plan from its beginning, with groups of runs joined into one if at most `gap` bytes separate
    /// them. Also returns the number of runs in each group.
    #[must_use]
    pub fn joined(&self, gap: u64) -> (Self, u64) {
        let (mut run, mut together) = (self.run, 1);
        let is_near = |dim: &&Outer| {
            let is_near = dim.stride - run <= gap;
            if is_near {
                run += dim.stride * (dim.count - 1);
                together *= dim.count;
            }
            is_near
        };
        let near = self.outer.iter().take_while(is_near).count();
        let mut joined = Self { run, outer: self.outer[near..].to_vec(), runs: self.runs / together, ..*self };
        joined.skip_to(0);
        (joined, together)
    }
}

impl Iterator for Plan {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let start = self.next?;
        let mut next = start;
        self.next = None;
        for dim in &mut self.outer {
            dim.done += 1;
            if dim.done < dim.count {
                self.next = Some(next + dim.stride);
                break;
            }
            next -= dim.stride * (dim.count - 1);
            dim.done = 0;
        }
        Some(Run { start, bytes: self.run })
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

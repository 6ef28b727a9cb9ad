//! Where the bytes of a selection lie.

use ipfrs_core::{Error, Result};

use crate::{Dtype, Order, Selection};

/// A piece of a tensor that lies in one run: `bytes` from `start` on, from the tensor's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first byte.
    pub start: u64,
    /// How many bytes; never 0.
    pub bytes: u64,
}

impl Run {
    /// Offset of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The bytes of a selection as runs, in the order in which the tensor lies, and so the result: each begins behind the end of
/// the one before. An iterator of constant size, however many runs there are; a clone goes on from the same place.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes of each run.
    run: u64,
    /// Where the first run begins.
    first: u64,
    /// Where the next run begins; `None` behind the last.
    next: Option<u64>,
    /// The dimensions outside of a run, innermost first.
    outer: Vec<Outer>,
    runs: u64,
}

/// A dimension that is walked from run to run.
#[derive(Debug, Clone)]
struct Outer {
    /// How many of it are taken.
    count: u64,
    /// How many of those lie before the next run.
    done: u64,
    /// Bytes from each to the next.
    stride: u64,
}

impl Plan {
    /// The runs of `selection` of a tensor of `dtype` that lies in `order`, whose bytes were checked to be countable.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when a run of elements of less than a byte does not begin and end at
    /// whole bytes.
    pub fn new(dtype: Dtype, selection: &Selection, order: Order) -> Result<Self> {
        if selection.dims.iter().any(|dim| dim.count == 0) {
            return Ok(Self { run: 0, first: 0, next: None, outer: Vec::new(), runs: 0 });
        }
        // Innermost first. In elements: no product is over that of the shape, which was checked.
        let (mut run, mut start, mut stride, mut is_one_run) = (1_u64, 0_u64, 1_u64, true);
        let mut outer = Vec::new();
        let rank = selection.dims.len();
        for index in 0..rank {
            let dim = &selection.dims[if order == Order::RowMajor { rank - 1 - index } else { index }];
            start += dim.start * stride;
            if is_one_run && (dim.step == 1 || dim.count == 1) {
                run *= dim.count;
                // Of a dimension that is not whole, the next piece lies behind a gap.
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
                    "elements of {dtype} have {} bits: a slice of them begins and ends at multiples of {least} elements",
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

    /// Bytes of all runs, whatever of them was taken already.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.run * self.runs
    }

    /// Bytes of each run; 0 where there is none.
    #[must_use]
    pub fn run_bytes(&self) -> u64 {
        self.run
    }

    /// All of it as one run, if it is one.
    #[must_use]
    pub fn as_one(&self) -> Option<Run> {
        (self.runs == 1).then_some(Run { start: self.first, bytes: self.run })
    }

    /// Makes the run with this number the next one, whatever was taken already; the first is 0.
    pub fn skip_to(&mut self, number: u64) {
        let (mut rest, mut start) = (number, self.first);
        for dim in &mut self.outer {
            dim.done = rest % dim.count;
            rest /= dim.count;
            start += dim.done * dim.stride;
        }
        self.next = (number < self.runs).then_some(start);
    }

    /// The same from its beginning, with those runs as one that lie in groups with at most `gap` bytes from each to the next;
    /// and how many runs make one.
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

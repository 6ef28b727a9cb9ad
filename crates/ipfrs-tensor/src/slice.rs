//! Selection of a part of a tensor: `start:stop:step` for each dimension, as in NumPy.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use ipfrs_core::{Error, Result};

use crate::info::MAX_RANK;
use crate::shown::shown;

/// Maximum number of items in a list of indices.
pub const MAX_LISTED: usize = 10_000;

/// A slice that is not yet applied to a shape. The default selects everything.
///
/// Parts are separated by commas, outermost dimension first. A part is either `start:stop:step`, in which each number
/// may be omitted, or a single index, which removes its dimension from the result. Negative numbers count from the
/// end of the dimension. Ranges are clamped to the dimension, and unmentioned dimensions are taken whole. `...`
/// stands for any number of whole dimensions. Steps are positive. The first part can also be a list of at most
/// [`MAX_LISTED`] indices and ranges `start:stop` in brackets, in any order and with repetitions. API.md contains the
/// grammar.
///
/// ```
/// let slice: ipfrs_tensor::Slice = "0:10, ::2, -1".parse()?;
/// assert_eq!(slice.select(&[100, 5, 8])?.shape(), [10, 3]);
/// # Ok::<(), ipfrs_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Index(i64),
    Range { start: Option<i64>, stop: Option<i64>, step: u64 },
    List(Arc<[Item]>),
    Rest,
}

/// An item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Index(i64),
    Range { start: Option<i64>, stop: Option<i64> },
}

/// A slice applied to a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// If there are `rows`, all of them together in the first dimension.
    pub(crate) dims: Vec<SelectedDimension>,
    rows: Option<Arc<[Range<u64>]>>,
}

/// The selected indices of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SelectedDimension {
    /// Size of the dimension.
    pub(crate) of: u64,
    /// First selected index.
    pub(crate) start: u64,
    /// Number of selected indices.
    pub(crate) count: u64,
    /// Distance between selected indices.
    pub(crate) step: u64,
    /// Whether the result keeps the dimension.
    remains: bool,
}

impl Slice {
    /// Creates a slice of half-open ranges `start..stop` with a step, one for each dimension, outermost first.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a step of 0 and for more parts than a tensor
    /// may have dimensions.
    pub fn of_ranges(ranges: impl IntoIterator<Item = (Option<i64>, Option<i64>, u64)>) -> Result<Self> {
        let parts = ranges.into_iter().map(|(start, stop, step)| match step {
            0 => Err(Error::invalid("a slice has a step of 0: use a step of 1 or more")),
            step => Ok(Part::Range { start, stop, step }),
        });
        Self::new(parts.collect::<Result<_>>()?)
    }

    fn new(parts: Vec<Part>) -> Result<Self> {
        if parts.len() > MAX_RANK {
            return Err(Error::invalid(format!(
                "a slice of {} parts is over the limit of {MAX_RANK}: omit the last ones, which are whole",
                parts.len()
            )));
        }
        if parts.iter().filter(|part| **part == Part::Rest).count() > 1 {
            return Err(Error::invalid("a slice may contain `...` only once"));
        }
        if parts.iter().skip(1).any(|part| matches!(part, Part::List(_))) {
            return Err(Error::invalid(
                "only the first part of a slice can be a list: index the result with the others",
            ));
        }
        Ok(Self(parts))
    }

    /// Returns whether the slice selects everything, for any shape.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let whole = Part::Range { start: None, stop: None, step: 1 };
        self.0.iter().all(|part| *part == Part::Rest || *part == whole)
    }

    /// Returns the text of the slice for messages, at most 100 characters.
    fn brief(&self) -> String {
        let mut text = self.to_string();
        if text.len() > 100 {
            text.truncate(97);
            text.push_str("...");
        }
        text
    }

    /// Applies the slice to `shape`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for more parts than dimensions, and for an index
    /// that is outside of its dimension.
    pub fn select(&self, shape: &[u64]) -> Result<Selection> {
        let named = self.0.iter().filter(|part| **part != Part::Rest).count();
        let rest = shape.len().checked_sub(named).ok_or_else(|| {
            Error::invalid(format!(
                "the slice {} has {named} parts for the {} dimensions of {shape:?}",
                self.brief(),
                shape.len()
            ))
        })?;
        let whole = |of| SelectedDimension { of, start: 0, count: of, step: 1, remains: true };
        let mut dims = Vec::with_capacity(shape.len());
        let mut rows = None;
        let outside = |index, of| {
            Error::invalid(format!(
                "index {index} of the slice {} is outside of a dimension of size {of}",
                self.brief()
            ))
        };
        for part in &self.0 {
            match (part, shape.get(dims.len())) {
                (Part::Rest, _) => dims.extend(shape[dims.len()..dims.len() + rest].iter().map(|of| whole(*of))),
                (Part::Index(index), Some(of)) => dims.push(at(*index, *of).ok_or_else(|| outside(*index, *of))?),
                (Part::Range { start, stop, step }, Some(of)) => dims.push(within(*start, *stop, *step, *of)),
                (Part::List(items), Some(of)) => {
                    let listed = listed(items, *of).map_err(|index| outside(index, *of))?;
                    let count = listed.iter().map(|rows| rows.end - rows.start).try_fold(0_u64, u64::checked_add);
                    let count = count.ok_or_else(|| Error::too_large("a list selects more than 2^64 indices"))?;
                    dims.push(SelectedDimension { of: *of, start: 0, count, step: 1, remains: true });
                    rows = Some(listed.into());
                }
                // The number of parts never exceeds the number of dimensions.
                (_, None) => {}
            }
        }
        dims.extend(shape[dims.len()..].iter().map(|of| whole(*of)));
        Ok(Selection { dims, rows })
    }
}

/// Returns the ranges that a list selects in a dimension of size `of`, with adjacent ones joined.
///
/// # Errors
/// Returns an index that is outside of the dimension.
fn listed(items: &[Item], of: u64) -> std::result::Result<Vec<Range<u64>>, i64> {
    let mut ranges: Vec<Range<u64>> = Vec::with_capacity(items.len());
    for item in items {
        let dim = match *item {
            Item::Index(index) => at(index, of).ok_or(index)?,
            Item::Range { start, stop } => within(start, stop, 1, of),
        };
        match ranges.last_mut() {
            _ if dim.count == 0 => {}
            Some(last) if last.end == dim.start => last.end += dim.count,
            _ => ranges.push(dim.start..dim.start + dim.count),
        }
    }
    Ok(ranges)
}

/// Selects one index of a dimension of size `of`.
fn at(index: i64, of: u64) -> Option<SelectedDimension> {
    let start = if index < 0 { of.checked_sub(index.unsigned_abs())? } else { index.unsigned_abs() };
    (start < of).then_some(SelectedDimension { of, start, count: 1, step: 1, remains: false })
}

/// Selects a range of a dimension of size `of`, clamped to it.
fn within(start: Option<i64>, stop: Option<i64>, step: u64, of: u64) -> SelectedDimension {
    let offset = |bound: i64| match bound {
        ..0 => of.saturating_sub(bound.unsigned_abs()),
        _ => bound.unsigned_abs().min(of),
    };
    let (start, stop) = (start.map_or(0, offset), stop.map_or(of, offset));
    SelectedDimension { of, start, count: stop.saturating_sub(start).div_ceil(step), step, remains: true }
}

impl Selection {
    /// Returns the shape of the result, outermost dimension first.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        self.dims.iter().filter(|dim| dim.remains).map(|dim| dim.count).collect()
    }

    /// Returns the selected ranges of the first dimension if the slice lists them. The result consists of
    /// [their selections](Self::at_rows), one after another.
    #[must_use]
    pub fn rows(&self) -> Option<&Arc<[Range<u64>]>> {
        self.rows.as_ref()
    }

    /// Returns this selection with a range for each row, in place of ranges of several rows. Column-major data needs
    /// this, because it has the elements of several rows in another order.
    #[must_use]
    pub fn with_single_rows(mut self) -> Self {
        let single = |rows: &Arc<[Range<u64>]>| rows.iter().cloned().flatten().map(|row| row..row + 1).collect();
        self.rows = self.rows.as_ref().map(single);
        self
    }

    /// Returns the number of indices that the first dimension of the result has.
    #[must_use]
    pub fn first_count(&self) -> u64 {
        self.dims.first().map_or(1, |dim| dim.count)
    }

    /// Returns this selection with one range of the first dimension.
    #[must_use]
    pub fn at_rows(&self, rows: Range<u64>) -> Self {
        let mut dims = self.dims.clone();
        if let Some(first) = dims.first_mut() {
            (first.start, first.count) = (rows.start, rows.end - rows.start);
        }
        Self { dims, rows: None }
    }

    /// Returns whether the selected elements have the same sequence in row-major and in column-major order.
    #[must_use]
    pub fn is_one_line(&self) -> bool {
        self.dims.iter().any(|dim| dim.count == 0) || self.dims.iter().filter(|dim| dim.count > 1).count() < 2
    }
}

impl FromStr for Slice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let malformed = || {
            let how = "write start:stop:step, an index or ... for each dimension, e.g. 0:10,5,::2, or a list first, e.g. \
                       [3,17,20:30]";
            let steps = "steps must be 1 or more: to go backwards, reverse the result";
            Error::invalid(format!("malformed slice {}: {how}; {steps}", shown(text)))
        };
        let (list, rest) = match text.trim().strip_prefix('[') {
            None => (None, Some(text)),
            Some(rest) => {
                let (list, rest) = rest.split_once(']').ok_or_else(malformed)?;
                let rest = rest.trim();
                let rest = if rest.is_empty() { None } else { Some(rest.strip_prefix(',').ok_or_else(malformed)?) };
                (Some(parse_list(list)?.ok_or_else(malformed)?), rest)
            }
        };
        let parts = rest.into_iter().flat_map(|rest| rest.split(','));
        let parts = parts.map(|part| parse_part(part.trim()).ok_or_else(malformed));
        Self::new(list.map(Ok).into_iter().chain(parts).collect::<Result<_>>()?)
    }
}

/// Parses the items of a list. Returns `None` if they are malformed.
///
/// # Errors
/// Returns [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for too many items.
fn parse_list(text: &str) -> Result<Option<Part>> {
    if text.trim().is_empty() {
        return Ok(Some(Part::List([].into())));
    }
    let count = 1 + text.bytes().filter(|byte| *byte == b',').count();
    if count > MAX_LISTED {
        return Err(Error::too_large(format!(
            "a list of {count} indices is over the limit of {MAX_LISTED}: request them in several parts"
        )));
    }
    let items = text.split(',').map(|item| match parse_part(item.trim())? {
        Part::Index(index) => Some(Item::Index(index)),
        Part::Range { start, stop, step: 1 } => Some(Item::Range { start, stop }),
        Part::Range { .. } | Part::List(_) | Part::Rest => None,
    });
    Ok(items.collect::<Option<Arc<[_]>>>().map(Part::List))
}

fn parse_part(text: &str) -> Option<Part> {
    if text == "..." {
        return Some(Part::Rest);
    }
    let mut numbers = text.split(':').map(str::trim);
    let bound = |number: &str| if number.is_empty() { Some(None) } else { number.parse().ok().map(Some) };
    let start: Option<i64> = bound(numbers.next()?)?;
    let Some(stop) = numbers.next() else { return start.map(Part::Index) };
    let step = match numbers.next() {
        None | Some("") => 1,
        Some(step) => step.parse().ok().filter(|step| *step > 0)?,
    };
    let range = Part::Range { start, stop: bound(stop)?, step };
    numbers.next().is_none().then_some(range)
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |bound: &Option<i64>| bound.map(|number| number.to_string()).unwrap_or_default();
        for (index, part) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match part {
                Part::Rest => f.write_str("...")?,
                Part::Index(index) => write!(f, "{index}")?,
                Part::Range { start, stop, step: 1 } => write!(f, "{}:{}", bound(start), bound(stop))?,
                Part::Range { start, stop, step } => write!(f, "{}:{}:{step}", bound(start), bound(stop))?,
                Part::List(items) => {
                    for (index, item) in items.iter().enumerate() {
                        f.write_str(if index > 0 { "," } else { "[" })?;
                        match item {
                            Item::Index(index) => write!(f, "{index}")?,
                            Item::Range { start, stop } => write!(f, "{}:{}", bound(start), bound(stop))?,
                        }
                    }
                    f.write_str(if items.is_empty() { "[]" } else { "]" })?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_mean_what_they_mean_in_numpy() {
        for (text, shape, taken) in [
            ("", &[3, 4][..], &[3, 4][..]),
            ("1", &[3, 4], &[4]),
            ("-1,-4", &[3, 4], &[]),
            ("1:2", &[3, 4], &[1, 4]),
            (":,1:", &[3, 4], &[3, 3]),
            ("::2,::3", &[3, 4], &[2, 2]),
            ("-2:,:-1", &[3, 4], &[2, 3]),
            ("5:9", &[3, 4], &[0, 4]),
            ("2:1", &[3, 4], &[0, 4]),
            ("-99:99", &[3, 4], &[3, 4]),
            ("...,0", &[3, 4], &[3]),
            ("0,...", &[3, 4], &[4]),
            ("0,...,0", &[3, 4], &[]),
            (" 0 : 2 : 1 , ... ", &[3, 4], &[2, 4]),
            ("...", &[], &[]),
            ("::9223372036854775808", &[3], &[1]),
            ("[2,0,0,-1]", &[3, 4], &[4, 4]),
            (" [ 1 ] , 1 ", &[3, 4], &[1]),
            ("[0:2,-1,7:9],::2", &[3, 4], &[3, 2]),
            ("[],...", &[3, 4], &[0, 4]),
        ] {
            let slice: Slice = text.parse().unwrap();
            assert_eq!(slice.select(shape).unwrap().shape(), taken, "{text}");
        }
    }

    #[test]
    fn invalid_slices_are_rejected_with_reason() {
        for text in [
            "a",
            "1:2:3:4",
            "::0",
            "::-1",
            "1,,2",
            "..",
            "...,...",
            "99999999999999999999",
            "1:x",
            ",",
            "[1",
            "1]",
            "[1]2",
            "[a]",
            "[::2]",
            "[...]",
            "0,[1]",
            "[[1]]",
        ] {
            assert!(text.parse::<Slice>().is_err(), "{text}");
        }
        assert!("0".repeat(65).split("").collect::<Vec<_>>().join(",").parse::<Slice>().is_err());
        for (text, shape) in
            [("3", &[3][..]), ("-4", &[3]), ("0", &[0]), ("0,0", &[3]), ("0", &[]), ("[3]", &[3]), ("[0,1],0", &[3])]
        {
            assert!(text.parse::<Slice>().unwrap().select(shape).is_err(), "{text} of {shape:?}");
        }
    }

    #[test]
    fn a_slice_is_written_as_it_is_read() {
        for text in ["0:10,5,::2", "...,-1", ":,:", "1:", ":-1", "[3,-1,:5],2", "[]"] {
            assert_eq!(text.parse::<Slice>().unwrap().to_string(), text);
        }
    }
}

//! The header of NumPy's `.npy`: magic, version, length, and a Python dictionary literal
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use ipfrs_core::{Error, Result};

use crate::Dtype;
use crate::info::{FileFormat, Header, MAX_RANK, Order, TensorInfo, bytes_of};
use crate::shown::shown;

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header, in bytes. NumPy itself reads at most 10,000 bytes unless its caller trusts the file.
pub(crate) const MAX_HEADER_BYTES: usize = 65_536;

/// Alignment of the end of the header, in bytes.
const ALIGNMENT: usize = 64;

/// Number of bytes before the dictionary in version 1.0 of the format.
const V1_BYTES: usize = 10;

fn cut_off() -> Error {
    Error::invalid("the .npy header is truncated")
}

/// Returns the start and the end offset of the dictionary.
fn dictionary(prefix: &[u8]) -> Result<(usize, usize)> {
    let (start, length) = match prefix.get(MAGIC.len()..).ok_or_else(cut_off)? {
        [1, 0, a, b, ..] => (V1_BYTES, usize::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, 0, a, b, c, d, ..] => {
            (V1_BYTES + 2, usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX))
        }
        [major, minor, ..] if !matches!((major, minor), (1..=3, 0)) => {
            return Err(Error::unsupported(format!(
                ".npy version {major}.{minor} is not supported: use 1.0, 2.0 or 3.0"
            )));
        }
        _ => return Err(cut_off()),
    };
    if length > MAX_HEADER_BYTES {
        return Err(Error::too_large(format!(
            "the .npy header claims {length} bytes, over the limit of {MAX_HEADER_BYTES}: save it as safetensors"
        )));
    }
    Ok((start, start + length))
}

pub(crate) fn header(prefix: &[u8]) -> Result<Header> {
    Ok(Header { format: FileFormat::Npy, bytes: dictionary(prefix)?.1 })
}

/// Returns the tensor of a file.
pub(crate) fn tensor(header: &[u8], file_bytes: u64) -> Result<TensorInfo> {
    let (start, end) = dictionary(header)?;
    let text = header.get(start..end).ok_or_else(cut_off)?;
    let text = std::str::from_utf8(text).map_err(|_| Error::invalid("the .npy header is not UTF-8"))?;
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    let mut literal = Literal { rest: text };
    literal.expect('{')?;
    while !literal.takes('}') {
        let key = literal.string()?;
        literal.expect(':')?;
        let is_twice = match key {
            "descr" => descr.replace(literal.descr()?).is_some(),
            "fortran_order" => fortran_order.replace(literal.boolean()?).is_some(),
            "shape" => shape.replace(literal.tuple()?).is_some(),
            other => return Err(Error::invalid(format!("the .npy header has an unknown key {}", shown(other)))),
        };
        if is_twice {
            return Err(Error::invalid(format!("the .npy header has {key} twice")));
        }
        if !literal.takes(',') {
            literal.expect('}')?;
            break;
        }
    }
    if !literal.rest.trim().is_empty() {
        return Err(Error::invalid("the .npy header continues after its dictionary"));
    }
    let missing = |key: &str| Error::invalid(format!("the .npy header has no {key}"));
    let descr = descr.ok_or_else(|| missing("descr"))?;
    let (dtype, is_big_endian) = Dtype::from_npy(descr).ok_or_else(|| unsupported_type(descr))?;
    let shape = shape.ok_or_else(|| missing("shape"))?;
    // With one long dimension or no elements, both orders are the same.
    let is_ambiguous = !shape.contains(&0) && shape.iter().filter(|dim| **dim > 1).count() > 1;
    let order = match fortran_order.ok_or_else(|| missing("fortran_order"))? {
        true if is_ambiguous => Order::ColumnMajor,
        _ => Order::RowMajor,
    };
    let (bytes, data_bytes) = (bytes_of(dtype, &shape)?, file_bytes.saturating_sub(end as u64));
    if bytes != data_bytes {
        return Err(Error::invalid(format!(
            "the file has {data_bytes} bytes of data, but {dtype} {shape:?} needs {bytes}"
        )));
    }
    Ok(TensorInfo { name: String::new(), dtype, shape, offset: end as u64, bytes, order, is_big_endian })
}

/// Returns the error for a NumPy type that is not a [`Dtype`].
fn unsupported_type(descr: &str) -> Error {
    let why = match descr.trim_start_matches(['<', '>', '|', '=']).chars().next() {
        Some('O') => "the array contains pickled Python objects, which are never loaded: save numbers",
        _ => {
            "only booleans, integers and floats of up to 64 bits, and complex numbers of up to 128 bits are supported: convert the array, or fetch the whole file"
        }
    };
    Error::unsupported(format!("NumPy type {}: {why}", shown(descr)))
}

/// Returns the header of an `.npy` file, version 1.0.
///
/// # Errors
/// Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for types that NumPy cannot hold, and the errors of
/// [`bytes_of`] for shapes without a size in bytes.
pub(crate) fn head(dtype: Dtype, shape: &[u64], order: Order) -> Result<Vec<u8>> {
    let descr = dtype.npy().ok_or_else(|| {
        Error::unsupported(format!("NumPy cannot hold {dtype}, which is less than a byte: use raw or safetensors"))
    })?;
    bytes_of(dtype, shape)?;
    let dims: Vec<_> = shape.iter().map(u64::to_string).collect();
    let tuple = if dims.len() == 1 { format!("({},)", dims[0]) } else { format!("({})", dims.join(", ")) };
    let fortran_order = if order == Order::ColumnMajor { "True" } else { "False" };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {fortran_order}, 'shape': {tuple}, }}");
    let padded = (V1_BYTES + text.len() + 1).next_multiple_of(ALIGNMENT) - V1_BYTES;
    while text.len() + 1 < padded {
        text.push(' ');
    }
    text.push('\n');
    // 64 dimensions of 20 digits take far fewer than 65,535 bytes.
    let length = u16::try_from(text.len()).map_err(|e| Error::internal("an .npy header is too long").with_source(e))?;
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&[1, 0]);
    head.extend_from_slice(&length.to_le_bytes());
    head.extend_from_slice(text.as_bytes());
    Ok(head)
}

/// The unread rest of a Python literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn takes(&mut self, symbol: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: char) -> Result<()> {
        if self.takes(symbol) { Ok(()) } else { Err(self.unexpected(&format!("{symbol:?}"))) }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        Error::invalid(format!("the .npy header has {} where {wanted} is expected", shown(self.rest)))
    }

    /// Reads a string without escapes. Types and the three keys have none.
    fn string(&mut self) -> Result<&'a str> {
        let quote = if self.takes('\'') { '\'' } else { self.expect('"').map(|()| '"')? };
        let end = self.rest.find(quote).ok_or_else(cut_off)?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// Reads a type: a string. A structured type, which is a list, is not supported.
    fn descr(&mut self) -> Result<&'a str> {
        if self.rest.trim_start().starts_with('[') {
            return Err(Error::unsupported(
                "structured NumPy types are not supported: save each field as a separate array",
            ));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    /// Reads a tuple of numbers. Python 2 wrote an `L` after each number. A tuple of one number has a trailing comma.
    fn tuple(&mut self) -> Result<Vec<u64>> {
        self.expect('(')?;
        let (mut numbers, mut has_comma) = (Vec::new(), false);
        while !self.takes(')') {
            if !numbers.is_empty() && !has_comma {
                return Err(self.unexpected("',' or ')'"));
            }
            self.rest = self.rest.trim_start();
            let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let text = &self.rest[..digits];
            // As in Python, only zero itself begins with 0.
            let is_number = !text.starts_with('0') || text.bytes().all(|digit| digit == b'0');
            let number = text.parse().ok().filter(|_| is_number).ok_or_else(|| self.unexpected("a dimension"))?;
            if numbers.len() == MAX_RANK {
                return Err(Error::invalid(format!("the .npy header has over {MAX_RANK} dimensions")));
            }
            numbers.push(number);
            self.rest = &self.rest[digits..];
            self.takes('L');
            has_comma = self.takes(',');
        }
        if numbers.len() == 1 && !has_comma {
            return Err(Error::invalid("the shape in the .npy header is a number: one dimension is written as (3,)"));
        }
        Ok(numbers)
    }
}

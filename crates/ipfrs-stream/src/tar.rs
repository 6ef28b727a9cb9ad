//! TAR archives of files, directories and symlinks as a stream (POSIX.1-2017, "pax Interchange Format").
//!
//! [`header`] writes the bytes before an entry's content: a `ustar` header, preceded by a `pax` extended header if a
//! value does not fit. [`padding`] follows the content, and [`end`] follows the last entry. The content itself is not
//! processed here. The same entries always produce the same bytes: owner and group are zero, and an entry without a
//! time gets 1970.

use bytes::Bytes;
use ipfrs_core::{Error, Result};
use ipfrs_unixfs::{Attributes, LinkName, Mtime};

/// Size of a TAR record: headers and content are padded to a multiple of this.
const BLOCK_BYTES: usize = 512;

/// Longest path of an entry, in bytes: the longest that any common file system accepts.
const MAX_PATH_BYTES: usize = 32 * 1024;

/// Largest number in an octal field of 12 bytes.
const MAX_OCTAL: u64 = 0o777_7777_7777;

/// Size of the header fields for a name and for a link target.
const NAME_BYTES: usize = 100;

/// Permissions of entries that have none of their own.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const SYMLINK_MODE: u32 = 0o777;

static ZEROS: [u8; 2 * BLOCK_BYTES] = [0; 2 * BLOCK_BYTES];

/// The metadata of one archive entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TarEntry<'a> {
    /// Names on the path from the root of the archive, separated by slashes.
    pub path: &'a [u8],
    /// Kind of the entry.
    pub kind: TarKind<'a>,
    /// Permissions and modification time, if they are known.
    pub attributes: Attributes,
}

/// The kind of a [`TarEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TarKind<'a> {
    /// A file. Its content follows the header.
    File {
        /// Size of the content, in bytes.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Target of the link.
        target: &'a [u8],
    },
}

/// Checks that `name` is safe in an archive. Other programs unpack the archive, and may trust its names more than
/// they should.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for names that could lead outside of their directory:
/// empty names, `.`, `..`, and names with a slash or a NUL byte.
pub fn check_name(name: &[u8]) -> Result<()> {
    let why = match name {
        b"" => "it is empty",
        b"." | b".." => "it points outside its directory",
        name if name.contains(&b'/') => "it contains a slash",
        name if name.contains(&0) => "it contains a NUL byte",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("the entry {} cannot be archived: {why}", shorten(name))))
}

/// Returns the path in the archive of the entry `name` of `directory`. A directory may hold a name that is a relative
/// path (`../b`, `a/b`). Such a path is followed as long as it stays below the first name of `directory`.
///
/// # Errors
/// Returns the errors of [`check_name`], and [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a path that leads
/// out of the archive.
pub fn place(directory: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let is_slash = |byte: &u8| *byte == b'/';
    let Some(slash) = name.iter().rposition(is_slash) else {
        check_name(name)?;
        return Ok([directory, b"/", name].concat());
    };
    let (way, last) = (&name[..slash], &name[slash + 1..]);
    let outside =
        || Error::invalid(format!("the entry {} cannot be archived: it points outside the archive", shorten(name)));
    if name.starts_with(b"/") {
        return Err(outside());
    }
    let mut path: Vec<&[u8]> = directory.split(is_slash).collect();
    for step in way.split(is_slash).filter(|step| !matches!(*step, b"" | b".")) {
        if step != b".." {
            check_name(step)?;
            path.push(step);
        } else if path.len() > 1 {
            path.pop();
        } else {
            return Err(outside());
        }
    }
    check_name(last)?;
    path.push(last);
    Ok(path.join(&b'/'))
}

/// Returns the bytes that precede the content of `entry`.
///
/// # Errors
/// Returns the errors of [`check_name`] for each name of the path, [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for
/// a path or a target of more than 32 KiB, and [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a link target
/// with a NUL byte.
pub fn header(entry: &TarEntry<'_>) -> Result<Bytes> {
    entry.path.split(|byte| *byte == b'/').try_for_each(check_name)?;
    let (kind, size, target, default_mode) = match entry.kind {
        TarKind::File { size } => (b'0', size, &[][..], FILE_MODE),
        TarKind::Directory => (b'5', 0, &[][..], DIRECTORY_MODE),
        TarKind::Symlink { target } => (b'2', 0, target, SYMLINK_MODE),
    };
    for (what, bytes) in [("path", entry.path.len()), ("target of the symlink", target.len())] {
        if bytes > MAX_PATH_BYTES {
            let path = shorten(entry.path);
            return Err(Error::too_large(format!("the {what} {path} is over the limit of {MAX_PATH_BYTES} bytes")));
        }
    }
    if target.contains(&0) {
        return Err(Error::invalid(format!("the symlink {} has a target with a NUL byte", shorten(entry.path))));
    }
    // Directory paths have no trailing slash: clients of Kubo take it for another component of the root's name.
    let path = entry.path;
    let mode = entry.attributes.mode.unwrap_or(default_mode);
    let mtime = entry.attributes.mtime.unwrap_or(Mtime { seconds: 0, nanos: 0 });
    let seconds = u64::try_from(mtime.seconds).ok().filter(|seconds| *seconds <= MAX_OCTAL);
    let records = pax_records(path, target, size, &mtime, seconds.is_some() && mtime.nanos == 0);
    let mut out = Vec::with_capacity(BLOCK_BYTES);
    if !records.is_empty() {
        let plain = Ustar { name: b"pax_header", kind: b'x', size: records.len() as u64, ..Ustar::default() };
        plain.write(&mut out);
        out.extend_from_slice(&records);
        out.extend_from_slice(&padding(records.len() as u64));
    }
    let size = if size <= MAX_OCTAL { size } else { 0 };
    Ustar { name: path, mode, size, seconds: seconds.unwrap_or(0), kind, target }.write(&mut out);
    Ok(out.into())
}

/// Returns the zeros that follow content of `size` bytes.
#[must_use]
pub fn padding(size: u64) -> Bytes {
    let rest = (size % BLOCK_BYTES as u64) as usize;
    Bytes::from_static(&ZEROS[..(BLOCK_BYTES - rest) % BLOCK_BYTES])
}

/// Returns the end of an archive.
#[must_use]
pub fn end() -> Bytes {
    Bytes::from_static(&ZEROS)
}

/// Returns the extended header for the values that do not fit a `ustar` header; empty if all fit.
fn pax_records(path: &[u8], target: &[u8], size: u64, mtime: &Mtime, has_plain_time: bool) -> Vec<u8> {
    let mut records = Vec::new();
    let values = [("path", path), ("linkpath", target)];
    let values = values.into_iter().filter(|(_, value)| !fits_field(value));
    // Records are UTF-8 unless `hdrcharset` declares another encoding.
    if values.clone().any(|(_, value)| std::str::from_utf8(value).is_err()) {
        put_record(&mut records, "hdrcharset", b"BINARY");
    }
    values.for_each(|(key, value)| put_record(&mut records, key, value));
    if size > MAX_OCTAL {
        put_record(&mut records, "size", size.to_string().as_bytes());
    }
    if !has_plain_time {
        put_record(&mut records, "mtime", decimal(mtime).as_bytes());
    }
    records
}

/// Returns whether a header field can hold a path. It can hold ASCII, and bytes that are not UTF-8, which readers
/// take unchanged. The field cannot declare that non-ASCII text is UTF-8.
fn fits_field(path: &[u8]) -> bool {
    path.len() <= NAME_BYTES && (path.is_ascii() || std::str::from_utf8(path).is_err())
}

/// Appends a record: its own length in decimal, a space, `key=value`, a newline.
fn put_record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + " =\n".len();
    // The length includes its own digits.
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len += 1;
    }
    out.extend_from_slice(format!("{len} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Formats a time as a decimal fraction of seconds. Nanoseconds count forwards even before 1970.
fn decimal(time: &Mtime) -> String {
    match (time.seconds, time.nanos) {
        (seconds, 0) => seconds.to_string(),
        (seconds @ 0.., nanos) => format!("{seconds}.{nanos:09}"),
        (seconds, nanos) => format!("-{}.{:09}", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanos),
    }
}

/// The values of a `ustar` header of 512 bytes.
#[derive(Default)]
struct Ustar<'a> {
    name: &'a [u8],
    mode: u32,
    size: u64,
    seconds: u64,
    kind: u8,
    target: &'a [u8],
}

impl Ustar<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut block = [0; BLOCK_BYTES];
        put_text(&mut block[..NAME_BYTES], self.name);
        put_octal(&mut block[100..108], u64::from(self.mode));
        // Owner and group.
        put_octal(&mut block[108..116], 0);
        put_octal(&mut block[116..124], 0);
        put_octal(&mut block[124..136], self.size);
        put_octal(&mut block[136..148], self.seconds);
        block[148..156].fill(b' ');
        block[156] = self.kind;
        put_text(&mut block[157..157 + NAME_BYTES], self.target);
        block[257..265].copy_from_slice(b"ustar\x0000");
        // The checksum is computed with spaces in its own field.
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        put_octal(&mut block[148..155], sum);
        block[154] = 0;
        out.extend_from_slice(&block);
    }
}

/// Writes as much of `text` as fits. The extended header contains a text that does not fit.
fn put_text(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// Writes octal digits up to the last byte of the field, which remains NUL. The number must fit.
fn put_octal(field: &mut [u8], mut number: u64) {
    for digit in field.iter_mut().rev().skip(1) {
        *digit = b'0' + (number % 8) as u8;
        number /= 8;
    }
}

/// Returns a prefix of a name, quoted, for a message.
fn shorten(name: &[u8]) -> String {
    const MAX_SHOWN_BYTES: usize = 80;
    match name.get(..MAX_SHOWN_BYTES) {
        Some(start) if name.len() > MAX_SHOWN_BYTES => format!("{:?}…", LinkName::from(start)),
        _ => format!("{:?}", LinkName::from(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_relative_names_resolve_within_archive() {
        for (directory, name, expected) in [
            ("r", "a", Some("r/a")),
            ("r", "a/b", Some("r/a/b")),
            ("r/d/e", "../f", Some("r/d/f")),
            ("r/d/e", "../../f", Some("r/f")),
            ("r/d", ".././/g/../f", Some("r/f")),
            ("r/d", "../../r/f", None),
            ("r", "../f", None),
            ("r", "a/../../f", None),
            ("r", "/f", None),
            ("r/d", "..", None),
            ("r/d", "../", None),
            ("r/d", "a/..", None),
            ("r/d", "a/.", None),
            ("r", "a\0/b", None),
        ] {
            let placed = place(directory.as_bytes(), name.as_bytes()).ok();
            assert_eq!(placed.as_deref(), expected.map(str::as_bytes), "{directory} {name:?}");
        }
    }

    #[test]
    fn records_count_their_own_digits() {
        for (value, expected) in [(0, "5 a=\n"), (3, "8 a=xxx\n"), (4, "9 a=xxxx\n"), (5, "11 a=xxxxx\n")] {
            let mut out = Vec::new();
            put_record(&mut out, "a", "x".repeat(value).as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn times_before_1970_and_between_seconds_are_decimal() {
        let decimal = |seconds, nanos| decimal(&Mtime { seconds, nanos });
        assert_eq!(decimal(1_700_000_000, 500), "1700000000.000000500");
        assert_eq!(decimal(-1, 0), "-1");
        assert_eq!(decimal(-1, 500_000_000), "-0.500000000");
        assert_eq!(decimal(-2, 250_000_000), "-1.750000000");
    }

    #[test]
    fn tar_header_of_plain_file_matches_standard() {
        let attributes = Attributes { mode: Some(0o640), mtime: Some(Mtime { seconds: 0o1234, nanos: 0 }) };
        let entry = TarEntry { path: b"d/a", kind: TarKind::File { size: 10 }, attributes };
        let header = header(&entry).unwrap();
        assert_eq!(header.len(), 512);
        let text = |from: usize, len: usize| std::str::from_utf8(&header[from..from + len]).unwrap();
        assert_eq!(text(0, 4), "d/a\0");
        assert_eq!(text(100, 48), "0000640\x000000000\x000000000\x0000000000012\x0000000001234\0");
        assert_eq!(text(156, 1), "0");
        assert_eq!(text(257, 8), "ustar\x0000");
        let sum: u64 =
            header.iter().enumerate().map(|(at, b)| if (148..156).contains(&at) { 32 } else { u64::from(*b) }).sum();
        assert_eq!(text(148, 8), format!("{sum:06o}\0 "));
        assert!(header[265..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn tar_long_values_use_extended_header() {
        let records = |path: &[u8], kind| {
            let header = header(&TarEntry { path, kind, attributes: Attributes::default() }).unwrap();
            if header.len() == 512 {
                return Vec::new();
            }
            assert_eq!((header[156], header.len() % 512), (b'x', 0));
            let size = std::str::from_utf8(&header[124..135]).unwrap();
            header[512..512 + usize::from_str_radix(size, 8).unwrap()].to_vec()
        };
        assert_eq!(records(b"a", TarKind::File { size: MAX_OCTAL }), b"");
        assert_eq!(records(b"a", TarKind::File { size: 1 << 33 }), b"19 size=8589934592\n");
        assert_eq!(records("x".repeat(100).as_bytes(), TarKind::File { size: 0 }), b"");
        assert_eq!(records("x".repeat(100).as_bytes(), TarKind::Directory), b"");
        assert_eq!(
            records("x".repeat(101).as_bytes(), TarKind::Directory),
            format!("111 path={}\n", "x".repeat(101)).as_bytes()
        );
        assert_eq!(records("ü".as_bytes(), TarKind::File { size: 0 }), "11 path=ü\n".as_bytes());
        assert_eq!(records(b"a", TarKind::Symlink { target: b"\xff" }), b"");
        let long = [0xff; 101];
        let expected = [b"21 hdrcharset=BINARY\n115 linkpath=", &long[..], b"\n"].concat();
        assert_eq!(records(b"a", TarKind::Symlink { target: &long }), expected);
        assert_eq!(records(b"\xff", TarKind::File { size: 0 }), b"");
        let expected = [b"21 hdrcharset=BINARY\n111 path=", &long[..], b"\n15 linkpath=\xc3\xbc\n"].concat();
        assert_eq!(records(&long, TarKind::Symlink { target: "ü".as_bytes() }), expected);
    }

    #[test]
    fn tar_unsafe_names_and_long_paths_are_rejected() {
        for path in ["", ".", "..", "/etc/passwd", "a/../b", "a//b", "a/", "a\0b", "a/."] {
            let entry = TarEntry { path: path.as_bytes(), kind: TarKind::Directory, attributes: Attributes::default() };
            assert!(header(&entry).is_err(), "{path:?}");
        }
        let long = ["x"; 20_000].join("/");
        let entry = TarEntry { path: long.as_bytes(), kind: TarKind::Directory, attributes: Attributes::default() };
        assert!(header(&entry).unwrap_err().message().contains("over the limit of 32768 bytes"));
        let entry = TarEntry { path: b"link", kind: TarKind::Symlink { target: long.as_bytes() }, ..entry };
        assert!(header(&entry).unwrap_err().message().starts_with("the target of the symlink \"link\" is over"));
        for name in ["...", "..a", " ", "-rf", "ünï", "a\\b"] {
            check_name(name.as_bytes()).unwrap();
        }
    }
}

//! Permissions and times of files in the form that Kubo and its clients use: modes are Go's `fs.FileMode`.

use http::header::CONTENT_DISPOSITION;
use http::{HeaderMap, HeaderValue};
use ipfrs_core::Error;
use ipfrs_node::{Attributes, EntryKind, ListedKind, Mtime};
use ipfrs_rpc::mode;
use ipfrs_rpc::types::FileAttributes;

use super::args::Args;
use super::disposition::parameter;
use crate::error::RpcError;

const GO_DIRECTORY: u32 = 1 << 31;
const GO_SYMLINK: u32 = 1 << 27;
pub(super) const SYMLINK_MODE: u32 = 0o777;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// Returns the attributes that `mode`, `mtime` and `mtime-nsecs` set for all files. As in Kubo, a mode of 0 and
/// a time of 0 count as unset; unlike there, a time of 0 may have nanoseconds.
pub(super) fn of_options(args: &Args) -> Result<Attributes, RpcError> {
    let mode = args.number("mode")?.and_then(unix_mode);
    let nanos = args.number::<u32>("mtime-nsecs")?.unwrap_or(0);
    let seconds = args.number::<i64>("mtime")?.filter(|seconds| *seconds != 0 || nanos > 0);
    if nanos >= NANOS_PER_SECOND {
        return Err(Error::invalid(format!("mtime nanoseconds must be in range [1, 999999999], not {nanos}")).into());
    }
    if nanos > 0 && seconds.is_none() {
        return Err(Error::invalid("option \"mtime-nsecs\" requires \"mtime\" to be provided as well").into());
    }
    Ok(Attributes { mode, mtime: seconds.map(|seconds| Mtime { seconds, nanos }) })
}

/// Returns the attributes of a part, from the query in its name: `name="file?mode=0644&mtime=1&mtime-nsecs=2"`. As in
/// Kubo, invalid values are ignored.
pub(super) fn of_part(headers: &HeaderMap) -> Attributes {
    let disposition = headers.get(CONTENT_DISPOSITION).map(HeaderValue::as_bytes);
    let name = disposition.and_then(|disposition| parameter(disposition, "name")).unwrap_or_default();
    let query = name.splitn(2, |byte| *byte == b'?').nth(1).unwrap_or_default();
    let (mut mode, mut seconds, mut nanos) = (None, None, 0);
    for (name, value) in form_urlencoded::parse(query) {
        match &*name {
            "mode" => mode = u32::from_str_radix(&value, 8).ok().and_then(unix_mode),
            "mtime" => seconds = value.parse().ok(),
            "mtime-nsecs" => nanos = value.parse().ok().filter(|nanos| *nanos < NANOS_PER_SECOND).unwrap_or(0),
            _ => {}
        }
    }
    Attributes { mode, mtime: seconds.map(|seconds| Mtime { seconds, nanos }) }
}

/// Returns the Unix mode of a Go mode. 0 counts as unset.
fn unix_mode(go: u32) -> Option<u32> {
    Some(mode::unix_mode(go)).filter(|mode| *mode != 0)
}

/// Combines a Unix mode and a file kind into one Go mode.
pub(super) fn go_mode(unix: u32, kind: ListedKind) -> u32 {
    let kind = match kind {
        ListedKind::Directory => GO_DIRECTORY,
        ListedKind::Symlink => GO_SYMLINK,
        ListedKind::File | ListedKind::Unknown => 0,
    };
    mode::go_mode(unix) | kind
}

/// Returns mode and time as in the output of `add`: those that the client sent. Kubo adds the mode of symlinks.
pub(super) fn file_attributes(attributes: Attributes, kind: EntryKind) -> FileAttributes {
    let mtime = attributes.mtime;
    let (mode, kind) = match kind {
        EntryKind::File => (attributes.mode, ListedKind::File),
        EntryKind::Directory => (attributes.mode, ListedKind::Directory),
        EntryKind::Symlink => (attributes.mode.or(Some(SYMLINK_MODE)), ListedKind::Symlink),
    };
    FileAttributes {
        mode: mode.map(|mode| format!("0{:o}", go_mode(mode, kind))),
        mtime: mtime.map(|mtime| mtime.seconds).filter(|seconds| *seconds != 0),
        mtime_nsecs: mtime.map(|mtime| mtime.nanos).filter(|nanos| *nanos != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn part_attributes_are_read_from_its_name() {
        let of = |name: &str| {
            let disposition = format!("form-data; name=\"{name}\"; filename=\"a\"");
            of_part(&HeaderMap::from_iter([(CONTENT_DISPOSITION, HeaderValue::from_str(&disposition).unwrap())]))
        };
        let mtime = Some(Mtime { seconds: -5, nanos: 7 });
        assert_eq!(of("file?mode=0644&mtime=-5&mtime-nsecs=7"), Attributes { mode: Some(0o644), mtime });
        // A Go directory mode with the sticky bit.
        assert_eq!(of("file?mode=020004000755").mode, Some(0o1755));
        for nothing in ["file", "file?", "file?mode=0&mtime=x", "file?mode=9&mtime-nsecs=5"] {
            assert_eq!(of(nothing), Attributes::default(), "{nothing}");
        }
    }

    #[test]
    fn modes_are_numbers_as_go_writes_them() {
        assert_eq!(go_mode(0o4755, ListedKind::File), 0o755 | 1 << 23);
        assert_eq!(unix_mode(go_mode(0o1777, ListedKind::Directory)), Some(0o1777));
    }
}

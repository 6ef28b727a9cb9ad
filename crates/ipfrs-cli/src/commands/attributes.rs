//! Permissions and modification times that content has, for `get`.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, anyhow};
use ipfrs_core::{Error, ErrorKind, timestamp, uri_as_path};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{FileStat, Link};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use crate::api::Api;

/// Permission bits that are set. Content from others must not make programs that run with the rights of their owner.
const PERMISSIONS: u32 = 0o777;

fn is_not_unixfs(error: &anyhow::Error) -> bool {
    let kind = error.chain().find_map(|cause| cause.downcast_ref::<Error>()).map(Error::kind);
    matches!(kind, Some(ErrorKind::Unsupported | ErrorKind::InvalidContent))
}

/// Go's form of a time that is not set.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Attributes of an entry; each is kept only if it was stored with the content.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    mode: Option<u32>,
    /// Seconds since 1970, and nanoseconds.
    mtime: Option<(i64, u32)>,
}

impl Attributes {
    /// Returns those of an entry of a directory.
    pub(super) fn of(link: &Link) -> Self {
        let mtime = link.mod_time.as_deref().filter(|time| *time != NO_TIME).and_then(timestamp::parse_seconds);
        Self { mode: link.mode.filter(|mode| *mode != 0), mtime }
    }

    /// Returns those of the content at a path. Content that is not UnixFS has none.
    pub(super) async fn at(api: &Api, path: &OsStr) -> Result<Self> {
        let path = uri_as_path(path.as_bytes());
        let below = ["/ipfs/", "/ipld/", "ipfs/"].iter().find_map(|root| path.strip_prefix(root.as_bytes()));
        let rooted = [b"/ipfs/", below.unwrap_or(&path)].concat();
        let response = match api.call(Request::query("files/stat").with_arg(OsStr::from_bytes(&rooted))).await {
            Err(e) if is_not_unixfs(&e) => return Ok(Self::default()),
            response => response?,
        };
        let stored = response.json::<FileStat>().await?.attributes;
        let mode = stored.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        Ok(Self { mode, mtime: stored.mtime.map(|seconds| (seconds, stored.mtime_nsecs.unwrap_or_default())) })
    }

    /// Sets them on an entry. A symlink has no permissions of its own.
    pub(super) fn set(&self, path: &Path) -> Result<()> {
        self.try_set(path).map_err(|e| anyhow!("cannot set the permissions and time of {}: {e}", path.display()))
    }

    fn try_set(&self, path: &Path) -> io::Result<()> {
        if let Some(mode) = self.mode
            && !fs::symlink_metadata(path)?.is_symlink()
        {
            fs::set_permissions(path, Permissions::from_mode(mode & PERMISSIONS))?;
        }
        if let Some((seconds, nanoseconds)) = self.mtime {
            let times = Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
            };
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

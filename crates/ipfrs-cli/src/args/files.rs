//! `files`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List a directory
    Ls {
        /// Path of the directory
        #[arg(default_value = "/")]
        path: OsString,
        /// Print content IDs and sizes too
        #[arg(short, long)]
        long: bool,
    },
    /// Print the state of a file or directory
    Stat {
        /// Path of the file or directory, or of content: /ipfs/CID
        path: OsString,
        /// Also print how much of it is stored here
        #[arg(long)]
        with_local: bool,
    },
    /// Write the content of a file to standard output
    Read {
        /// Path of the file
        path: OsString,
        /// Number of bytes to skip
        #[arg(short, long)]
        offset: Option<u64>,
        /// Maximum number of bytes to read
        #[arg(short = 'n', long)]
        count: Option<u64>,
    },
    /// Write to a file, at its beginning or at an offset
    Write(FilesWriteArgs),
    /// Create a directory
    Mkdir {
        /// Path of the new directory
        path: OsString,
        /// Create missing directories above it, and accept an existing one
        #[arg(short, long)]
        parents: bool,
        #[command(flatten)]
        format: CidFormatArgs,
        #[command(flatten)]
        flush: FlushArgs,
    },
    /// Copy a file or directory, or content (/ipfs/CID)
    Cp {
        /// Path of the source
        source: OsString,
        /// Path of the copy; with a slash at its end, the directory for it
        dest: OsString,
        /// Create missing directories above the copy
        #[arg(short, long)]
        parents: bool,
        /// Replace an existing file
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        flush: FlushArgs,
    },
    /// Move a file or directory
    Mv {
        /// Path of the source
        source: OsString,
        /// New path, or the directory to move the source into
        dest: OsString,
        #[command(flatten)]
        flush: FlushArgs,
    },
    /// Remove files, with -r also directories
    Rm {
        /// Paths to remove
        #[arg(required = true)]
        paths: Vec<OsString>,
        /// Remove directories too
        #[arg(short, long)]
        recursive: bool,
        /// Remove directories too, and accept missing paths
        #[arg(long)]
        force: bool,
    },
    /// Make changes durable that --flush=false deferred; print the content ID
    Flush {
        /// Path to make durable, with everything below it
        #[arg(default_value = "/")]
        path: OsString,
    },
    /// Change the CID version or the hash function of a directory
    Chcid {
        /// Path of the directory
        path: OsString,
        #[command(flatten)]
        format: CidFormatArgs,
        #[command(flatten)]
        flush: FlushArgs,
    },
    /// Change the permissions of a file or directory
    Chmod {
        /// Permissions in octal, such as 0644
        mode: String,
        /// Path of the file or directory
        path: OsString,
    },
    /// Set the modification time of a file or directory
    Touch {
        /// Path of the file or directory
        path: OsString,
        /// Time in seconds since 1970 [default: now]
        #[arg(long, allow_hyphen_values = true)]
        mtime: Option<i64>,
        /// Nanoseconds of the time
        #[arg(long)]
        mtime_nsecs: Option<u32>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct FilesWriteArgs {
    /// Path of the file to write to
    pub(crate) path: OsString,
    /// File with the content [default: standard input]
    pub(crate) data: Option<PathBuf>,
    /// Offset of the first byte
    #[arg(short, long)]
    pub(crate) offset: Option<u64>,
    /// Create the file if it does not exist
    #[arg(short = 'e', long)]
    pub(crate) create: bool,
    /// Create missing directories above the file
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Truncate the file first
    #[arg(short, long)]
    pub(crate) truncate: bool,
    /// Maximum number of bytes to write
    #[arg(short = 'n', long)]
    pub(crate) count: Option<u64>,
    /// Use raw blocks for new leaves [default: as the daemon is configured, or if the CID version is 1]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) raw_leaves: Option<bool>,
    #[command(flatten)]
    pub(crate) format: CidFormatArgs,
    #[command(flatten)]
    pub(crate) flush: FlushArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CidFormatArgs {
    /// CID version of new nodes, 0 or 1
    #[arg(long, alias = "cid-ver")]
    pub(crate) cid_version: Option<u64>,
    /// Hash function of new nodes; makes the CID version 1
    #[arg(long)]
    pub(crate) hash: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    /// Make the change durable; --flush=false defers that to `files flush` [default: true]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) flush: Option<bool>,
}

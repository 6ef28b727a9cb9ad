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
        #[arg(long)]
        long: bool,
    },
    /// Print the state of a file or directory
    Stat {
        /// Path of the file or directory, or of content: /ipfs/CID
        path: OsString,
        #[arg(long)]
        with_local: bool,
    },
    /// Write the content of a file to standard output
    Read {
        /// Path of the file
        path: OsString,
        #[arg(long)]
        offset: Option<u64>,
        #[arg(long)]
        count: Option<u64>,
    },
    /// Write to a file, at its beginning or at an offset
    Write(FilesWriteArgs),
    /// Create a directory
    Mkdir {
        /// Path of the new directory
        path: OsString,
        #[arg(long)]
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
        #[arg(long)]
        parents: bool,
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
        #[arg(long)]
        recursive: bool,
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
        #[arg(long, allow_hyphen_values = true)]
        mtime: Option<i64>,
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
    #[arg(long)]
    pub(crate) offset: Option<u64>,
    #[arg(long)]
    pub(crate) create: bool,
    #[arg(long)]
    pub(crate) parents: bool,
    #[arg(long)]
    pub(crate) truncate: bool,
    #[arg(long)]
    pub(crate) count: Option<u64>,
    #[arg(long)]
    pub(crate) raw_leaves: Option<bool>,
    #[command(flatten)]
    pub(crate) format: CidFormatArgs,
    #[command(flatten)]
    pub(crate) flush: FlushArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CidFormatArgs {
    #[arg(long)]
    pub(crate) cid_version: Option<u64>,
    #[arg(long)]
    pub(crate) hash: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    #[arg(long)]
    pub(crate) flush: Option<bool>,
}

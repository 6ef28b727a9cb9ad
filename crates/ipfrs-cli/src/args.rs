//! Command-line arguments.

mod auth;
mod bench;
mod cid;
mod dag;
mod files;
mod filestore;
mod key;
#[cfg(test)]
mod kubo_options;
mod migrate;
mod name;
mod network;
mod pin;
mod remote_pin;
mod repo;
mod retrieve;
mod tensor;
mod value;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use ipfrs_interface::{Chunker, Profile};

pub(crate) use self::auth::{AuthCommand, AuthKeyCommand, AuthKeyCreateArgs};
pub(crate) use self::bench::{BenchCommand, BenchHttpArgs, BenchIngestArgs, IngestStore, Places};
pub(crate) use self::cid::{CidCommand, CidFormatTextArgs, RefsArgs};
pub(crate) use self::dag::{DagCommand, DagExportArgs, DagImportArgs, DagPutArgs, DagStatArgs};
pub(crate) use self::files::{CidFormatArgs, FilesCommand, FilesWriteArgs, FlushArgs};
pub(crate) use self::filestore::{FilestoreCommand, FilestoreLsArgs, FilestoreVerifyArgs};
pub(crate) use self::key::{KeyCommand, KeyEncoding, KeyExportArgs, KeyGenArgs, KeyImportArgs, KeyRenameArgs};
pub(crate) use self::migrate::{MigrateCommand, MigrateExportArgs, MigrateKuboArgs};
pub(crate) use self::name::{NameCommand, NameInspectArgs, NamePublishArgs, NamePutArgs, NameResolveArgs, ResolveArgs};
pub(crate) use self::network::{PeeringCommand, PingArgs, StatsCommand, SwarmCommand};
pub(crate) use self::pin::{PinAddArgs, PinCommand, PinLsArgs, PinRmArgs, PinUpdateArgs, PinVerifyArgs};
pub(crate) use self::remote_pin::{
    RemotePinAddArgs, RemotePinCommand, RemotePinLsArgs, RemotePinRmArgs, RemoteServiceCommand,
};
pub(crate) use self::repo::{RepoBackupArgs, RepoCommand, RepoGcArgs, RepoRestoreArgs, RepoStatArgs, RepoVerifyArgs};
pub(crate) use self::retrieve::RetrieveArgs;
pub(crate) use self::tensor::{TensorCommand, TensorGetArgs, TensorLsArgs, TensorStatArgs};

/// Run an IPFS gateway; add, list and fetch content.
#[derive(Debug, Parser)]
#[command(name = "ipfrs-cli", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes, before or after its name.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Configuration file [default: config.toml in the repo, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the repo [default: ~/.ipfrs]
    #[arg(long, global = true, value_name = "DIR", env = "IPFRS_PATH", hide_env_values = true)]
    pub(crate) repo: Option<PathBuf>,
    /// URL or multiaddr of the daemon to use [default: the daemon that runs on the repo; if none runs, open the repo
    /// directly]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// File with the API key or token for the daemon [default: IPFRS_TOKEN; else, for the daemon of the repo, its
    /// api-token]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run, inspect and stop the gateway
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// Add files and directories; print their content IDs
    Add(AddArgs),
    /// Write the content of files to standard output
    Cat(CatArgs),
    /// Save a file or a directory, with the permissions and times that are stored with it
    Get(GetArgs),
    /// List directories: content ID, size and name of each entry
    Ls(LsArgs),
    /// List, save and sum up tensors of .safetensors and .npy files
    #[command(subcommand)]
    Tensor(TensorCommand),
    /// Work with single blocks
    #[command(subcommand)]
    Block(BlockCommand),
    /// Import and export whole DAGs as CAR files
    #[command(subcommand)]
    Dag(DagCommand),
    /// List the links of blocks
    Refs(RefsArgs),
    /// Convert and inspect content IDs
    #[command(subcommand)]
    Cid(CidCommand),
    /// Show and change connections to peers
    #[command(subcommand)]
    Swarm(SwarmCommand),
    /// Measure round trips to a peer
    Ping(PingArgs),
    /// Print statistics
    #[command(subcommand)]
    Stats(StatsCommand),
    /// Work with mutable files and directories
    #[command(subcommand)]
    Files(FilesCommand),
    /// List and check blocks that stay in files (`add --nocopy`)
    #[command(subcommand)]
    Filestore(FilestoreCommand),
    /// Pin content, so that garbage collection keeps it
    #[command(subcommand)]
    Pin(PinCommand),
    /// Create, list, import and export the keys of IPNS names
    #[command(subcommand)]
    Key(KeyCommand),
    /// Publish and resolve IPNS names
    #[command(subcommand)]
    Name(NameCommand),
    /// Print the content that a path or name resolves to
    Resolve(ResolveArgs),
    /// Fetch content from other servers into the repo, and show where it came from
    Retrieve(RetrieveArgs),
    /// Manage who may use the daemon
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Run garbage collection; check and measure the repo
    #[command(subcommand)]
    Repo(RepoCommand),
    /// Move content from and to Kubo
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Measure the performance of a gateway
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Write, show and check the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check denylists
    #[command(subcommand)]
    Denylist(DenylistCommand),
    /// Check what a daemon needs: configuration, permissions, disk, clock, limits, ports
    Doctor,
    /// Print a completion script for a shell
    Completions {
        /// The shell to complete in
        shell: Shell,
    },
    /// Write a manual page for each command
    Man {
        /// Directory for the pages, which must exist
        directory: PathBuf,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Run the gateway in the foreground until SIGINT, SIGTERM or `gateway stop`
    Start(StartArgs),
    /// Show whether the gateway is running, its addresses and the size of its repo
    Status {
        /// Fail if the gateway does not accept requests, for health checks
        #[arg(long)]
        ready: bool,
    },
    /// Stop the gateway and wait until it has stopped; running transfers may finish first
    Stop,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Address or name to listen on [default: 127.0.0.1]
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Port to listen on; 0 lets the system choose [default: 8080]
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Port for gRPC; 0 lets the system choose [default: 50051]
    #[arg(long, value_name = "PORT")]
    pub(crate) grpc_port: Option<u16>,
    /// Port of the API listener; 0 lets the system choose [default: 5001]
    #[arg(long, value_name = "PORT")]
    pub(crate) api_port: Option<u16>,
    /// Threads that serve requests [default: the number of cores]
    #[arg(long, value_name = "THREADS", value_parser = value::workers)]
    pub(crate) workers: Option<usize>,
    /// Open the repo read-only: content is served, but cannot be added or removed
    #[arg(long)]
    pub(crate) read_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Files and directories to add; standard input if none is given, or for "-"
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Add directories with all their contents; a pipe, socket or device in one is an error, as for `ipfs add`
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Print only the content ID of the last root
    #[arg(short = 'Q', long)]
    pub(crate) quieter: bool,
    /// Print only content IDs
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Wrap everything in a directory, which preserves names
    #[arg(short, long)]
    pub(crate) wrap_with_directory: bool,
    /// Compute content IDs without storing anything
    #[arg(short = 'n', long)]
    pub(crate) only_hash: bool,
    /// Pin the content, so that garbage collection keeps it [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) pin: Option<bool>,
    /// Name of the pins
    #[arg(long, value_name = "NAME")]
    pub(crate) pin_name: Option<String>,
    /// Name of standard input
    #[arg(long, value_name = "NAME")]
    pub(crate) stdin_name: Option<String>,
    /// Include hidden files of directories
    #[arg(short = 'H', long)]
    pub(crate) hidden: bool,
    /// Leave out entries of directories that match a rule as in .gitignore; may be repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) ignore: Vec<String>,
    /// File with rules for --ignore, which apply before those
    #[arg(long, value_name = "FILE")]
    pub(crate) ignore_rules_path: Option<PathBuf>,
    /// Include empty directories [default: true]
    #[arg(short = 'E', long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    pub(crate) empty_dirs: Option<bool>,
    /// Add the targets of all symlinks instead of the symlinks
    #[arg(long)]
    pub(crate) dereference_symlinks: bool,
    /// Add the target of each symlink that is a PATH
    #[arg(long)]
    pub(crate) dereference_args: bool,
    /// Show a progress bar [default: if standard error is a terminal, without --json and --quiet]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
    /// Version of content IDs: 0 or 1 [default: set by the profile]
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) cid_version: Option<u8>,
    /// Leave the content in the files, and store only references to them; needs store.filestore_root in the
    /// configuration of the daemon, which must see the files under the same paths
    #[arg(long)]
    pub(crate) nocopy: bool,
    /// Do not store blocks that --nocopy has stored references to
    #[arg(long)]
    pub(crate) fscache: bool,
    /// Store the leaves of files as raw blocks [default: set by the profile, and true for CID version 1]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) raw_leaves: Option<bool>,
    /// Chunking of files: size-BYTES for chunks of a fixed size; rabin, rabin-AVG, rabin-MIN-AVG-MAX or buzhash for
    /// content-defined chunks [default: set by the profile]
    #[arg(short = 's', long, value_parser = value::as_a::<Chunker>)]
    pub(crate) chunker: Option<String>,
    /// Use the trickle layout, in which the beginning of a file is near the root [default: as the daemon is configured]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) trickle: Option<bool>,
    /// Hash function of content IDs: sha2-256, sha2-512, sha3-256, keccak-256, blake2b-256 or blake3; any but
    /// sha2-256 requires version 1 [default: as the daemon is configured, sha2-256]
    #[arg(long, value_name = "FUNCTION", value_parser = value::hash_function)]
    pub(crate) hash: Option<String>,
    /// Maximum number of links of a file's inner nodes [default: 174, or 1024 with the profile unixfs-v1-2025]
    #[arg(long, value_name = "LINKS")]
    pub(crate) max_file_links: Option<u64>,
    /// Maximum number of entries of a directory that is not sharded [default: unlimited]
    #[arg(long, value_name = "LINKS")]
    pub(crate) max_directory_links: Option<u64>,
    /// Fan-out of the shards of large directories: a power of two, 8 to 1024 [default: 256]
    #[arg(long, value_name = "LINKS")]
    pub(crate) max_hamt_fanout: Option<u64>,
    /// Store small blocks inside the content IDs that refer to them, instead of in the repo
    #[arg(long)]
    pub(crate) inline: bool,
    /// Maximum size of blocks for --inline, up to 128 [default: 32]
    #[arg(long, value_name = "BYTES", requires = "inline")]
    pub(crate) inline_limit: Option<u8>,
    /// Store the permissions of files and directories; leaves are then not raw blocks
    #[arg(long)]
    pub(crate) preserve_mode: bool,
    /// Store the modification times of files, directories and symlinks; leaves are then not raw blocks
    #[arg(long)]
    pub(crate) preserve_mtime: bool,
    /// Permissions in octal to store for every file and directory, such as 0644
    #[arg(long, value_parser = value::permissions)]
    pub(crate) mode: Option<String>,
    /// Modification time to store for every file and directory, in seconds since 1970
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) mtime: Option<i64>,
    /// Nanoseconds after --mtime
    #[arg(long, value_name = "NANOSECONDS", requires = "mtime")]
    pub(crate) mtime_nsecs: Option<u32>,
    /// Also put the root into the mutable files, at this path; into the directory if the path ends with a slash
    #[arg(long, value_name = "PATH")]
    pub(crate) to_files: Option<String>,
    /// Print nothing
    #[arg(long)]
    pub(crate) silent: bool,
    /// Set of import parameters: unixfs-v0-2015 or unixfs-v1-2025 [default: import.profile of the configuration]
    #[arg(long, value_parser = value::as_a::<Profile>)]
    pub(crate) profile: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Content IDs, or paths below them: CID/name, /ipfs/CID/name
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Number of bytes to skip at the beginning
    #[arg(short, long, value_name = "BYTES")]
    pub(crate) offset: Option<u64>,
    /// Maximum number of bytes to write
    #[arg(short, long, value_name = "BYTES")]
    pub(crate) length: Option<u64>,
    /// Show a progress bar [default: if standard error is a terminal and standard output is not]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// A content ID, or a path below one: CID/name, /ipfs/CID/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    /// Target path; an existing file is replaced, an existing directory receives the content under its own name, and -
    /// is standard output
    /// [default: the last component of the path, in the current directory]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Save a TAR archive, with the extension ".tar"
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Compress the output with gzip, with the extension ".gz"; directories become archives
    #[arg(short = 'C', long)]
    pub(crate) compress: bool,
    /// Compression level, from 1 to 9 [default: 6]
    #[arg(short = 'l', long, value_name = "LEVEL", requires = "compress", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) compression_level: Option<u8>,
    /// Show a progress bar [default: if standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Content IDs, or paths below them: CID/name, /ipfs/CID/name
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlockCommand {
    /// Write the bytes of a block to standard output
    Get {
        /// Content ID of the block
        cid: String,
    },
    /// Store files as one block each; print their content IDs
    Put(BlockPutArgs),
    /// Remove blocks that no pin keeps
    Rm(BlockRmArgs),
    /// Print the size of blocks
    Stat {
        /// Content IDs of the blocks
        #[arg(required = true, value_name = "CID")]
        cids: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BlockPutArgs {
    /// Files to store; standard input if none is given, or for "-"
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Codec of the block: raw, dag-pb, dag-cbor, ... [default: raw]
    #[arg(long, value_name = "CODEC", value_parser = value::codec)]
    pub(crate) cid_codec: Option<String>,
    /// Hash function of the content ID, as for `add --hash` [default: as the daemon is configured, sha2-256]
    #[arg(long, value_name = "FUNCTION", value_parser = value::hash_function)]
    pub(crate) mhtype: Option<String>,
    /// Pin the blocks and everything below them
    #[arg(long)]
    pub(crate) pin: bool,
    /// Accept blocks of up to 4 MiB; many peers accept no more than 2 MiB
    #[arg(long)]
    pub(crate) allow_big_block: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BlockRmArgs {
    /// Content IDs of the blocks
    #[arg(required = true, value_name = "CID")]
    pub(crate) cids: Vec<String>,
    /// Ignore blocks that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print only the blocks that could not be removed
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a file with every key, its default and a description
    Init {
        /// Replace an existing file
        #[arg(long)]
        force: bool,
    },
    /// Print the effective configuration and the source of each value
    Show,
    /// Print the effective value of a key
    Get {
        /// Key, such as server.port
        key: String,
    },
    /// Set a key in the configuration file, and say whether a running gateway applies it after SIGHUP or after a
    /// restart
    Set {
        /// Key, such as server.port or 'gateway.hosts."example.com".subdomains'
        key: String,
        /// Value as in the file, such as 8081, true, '["a", "b"]' or a text
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a key from the configuration file, so that its default applies
    Unset {
        /// Key, such as server.port
        key: String,
    },
    /// Read and check the configuration
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DenylistCommand {
    /// Count the rules of lists in the compact format, and report invalid lines
    Check {
        /// Denylist files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

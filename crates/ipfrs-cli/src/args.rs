//! Command-line arguments.
//!
//! An option that the RPC has too is a field without help, short name and default: `shared_options` adds what its
//! definition in `ipfrs_rpc::commands` says.

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
mod shared_options;
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
#[command(name = "ipfrs-cli", version, max_term_width = 100, mut_subcommands(shared_options::complete))]
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
    #[arg(long)]
    pub(crate) recursive: bool,
    #[arg(long)]
    pub(crate) quieter: bool,
    #[arg(long)]
    pub(crate) quiet: bool,
    #[arg(long)]
    pub(crate) wrap_with_directory: bool,
    #[arg(long)]
    pub(crate) only_hash: bool,
    #[arg(long)]
    pub(crate) pin: Option<bool>,
    #[arg(long, value_name = "NAME")]
    pub(crate) pin_name: Option<String>,
    #[arg(long, value_name = "NAME")]
    pub(crate) stdin_name: Option<String>,
    #[arg(long)]
    pub(crate) hidden: bool,
    #[arg(long, value_name = "RULE")]
    pub(crate) ignore: Vec<String>,
    #[arg(long, value_name = "FILE")]
    pub(crate) ignore_rules_path: Option<PathBuf>,
    #[arg(long)]
    pub(crate) empty_dirs: Option<bool>,
    #[arg(long)]
    pub(crate) dereference_symlinks: bool,
    #[arg(long)]
    pub(crate) dereference_args: bool,
    #[arg(long)]
    pub(crate) progress: Option<bool>,
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) cid_version: Option<u8>,
    #[arg(long)]
    pub(crate) nocopy: bool,
    #[arg(long)]
    pub(crate) fscache: bool,
    #[arg(long)]
    pub(crate) raw_leaves: Option<bool>,
    #[arg(long, value_parser = value::as_a::<Chunker>)]
    pub(crate) chunker: Option<String>,
    #[arg(long)]
    pub(crate) trickle: Option<bool>,
    #[arg(long, value_name = "FUNCTION", value_parser = value::hash_function)]
    pub(crate) hash: Option<String>,
    #[arg(long, value_name = "LINKS")]
    pub(crate) max_file_links: Option<u64>,
    #[arg(long, value_name = "LINKS")]
    pub(crate) max_directory_links: Option<u64>,
    #[arg(long, value_name = "LINKS")]
    pub(crate) max_hamt_fanout: Option<u64>,
    #[arg(long)]
    pub(crate) inline: bool,
    #[arg(long, value_name = "BYTES", requires = "inline")]
    pub(crate) inline_limit: Option<u8>,
    #[arg(long)]
    pub(crate) preserve_mode: bool,
    #[arg(long)]
    pub(crate) preserve_mtime: bool,
    #[arg(long, value_parser = value::permissions)]
    pub(crate) mode: Option<String>,
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) mtime: Option<i64>,
    #[arg(long, value_name = "NANOSECONDS", requires = "mtime")]
    pub(crate) mtime_nsecs: Option<u32>,
    #[arg(long, value_name = "PATH")]
    pub(crate) to_files: Option<String>,
    #[arg(long)]
    pub(crate) silent: bool,
    #[arg(long, value_parser = value::as_a::<Profile>)]
    pub(crate) profile: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Content IDs, or paths below them: CID/name, /ipfs/CID/name
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    #[arg(long, value_name = "BYTES")]
    pub(crate) offset: Option<u64>,
    #[arg(long, value_name = "BYTES")]
    pub(crate) length: Option<u64>,
    #[arg(long)]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// A content ID, or a path below one: CID/name, /ipfs/CID/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    #[arg(long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    #[arg(long)]
    pub(crate) archive: bool,
    #[arg(long)]
    pub(crate) compress: bool,
    #[arg(long, value_name = "LEVEL", requires = "compress", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) compression_level: Option<u8>,
    #[arg(long)]
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
    #[arg(long, value_name = "CODEC", value_parser = value::codec)]
    pub(crate) cid_codec: Option<String>,
    #[arg(long, value_name = "FUNCTION", value_parser = value::hash_function)]
    pub(crate) mhtype: Option<String>,
    #[arg(long)]
    pub(crate) pin: bool,
    #[arg(long)]
    pub(crate) allow_big_block: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BlockRmArgs {
    /// Content IDs of the blocks
    #[arg(required = true, value_name = "CID")]
    pub(crate) cids: Vec<String>,
    #[arg(long)]
    pub(crate) force: bool,
    #[arg(long)]
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

//! Options of several commands.

use crate::rpc::options::Opt;

/// Options of every command.
pub(super) static GLOBALS: &[Opt] = &[
    Opt::text(&["cid-base"]),
    Opt::bool(&["upgrade-cidv0-in-output"]),
    // Processed by `globals` before the command's own options.
    Opt::text(&["timeout"]).unused(),
    Opt::text(&["encoding", "enc"]).unused(),
    Opt::bool(&["stream-channels"]).unused(),
    // Processed by `globals` too.
    Opt::bool(&["offline"]).unused(),
    Opt::bool(&["local", "L"]).unused(),
    Opt::bool(&["debug", "D"]).unused(),
    Opt::bool(&["help"]).unused(),
    Opt::bool(&["h"]).unused(),
    Opt::text(&["repo-dir"]).unused(),
    Opt::text(&["config-file"]).unused(),
    Opt::text(&["config", "c"]).unused(),
    Opt::text(&["api"]).unused(),
    Opt::text(&["api-auth"]).unused(),
];

// Without effect: the daemon announces nothing to a network.
pub(super) const FAST_PROVIDE_ROOT: Opt = Opt::bool(&["fast-provide-root"]).unused();
pub(super) const FAST_PROVIDE_DAG: Opt = Opt::bool(&["fast-provide-dag"]).unused();
pub(super) const FAST_PROVIDE_WAIT: Opt = Opt::bool(&["fast-provide-wait"]).unused();

pub(super) const ALLOW_BIG_BLOCK: Opt = Opt::bool(&["allow-big-block"]).refused(NO_BIG_BLOCKS);
pub(super) const IPNS_BASE: Opt = Opt::text(&["ipns-base"]);
pub(super) const QUIET: Opt = Opt::bool(&["quiet", "q"]).unused();
pub(super) const DRAWN_PROGRESS: Opt = Opt::bool(&["progress", "p"]).unused();

// Affect only how a client prints the response.
pub(super) const NUMERIC: Opt = Opt::bool(&["numeric", "n"]).unused();
pub(super) const VERBOSE: Opt = Opt::bool(&["verbose", "v"]).unused();

const NO_BIG_BLOCKS: &str = "blocks of more than 2 MiB are not stored, split the content";
pub(super) const NO_DELEGATES: &str =
    "no delegated publishers are configured, leave it out and put the record (name/get) where it is needed";

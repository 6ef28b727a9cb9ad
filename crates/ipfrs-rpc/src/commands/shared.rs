//! Options of several commands.

use super::option::Opt;

// Without effect: the daemon announces nothing to a network.
pub(super) const FAST_PROVIDE_ROOT: Opt = Opt::bool(&["fast-provide-root"]).unused();
pub(super) const FAST_PROVIDE_DAG: Opt = Opt::bool(&["fast-provide-dag"]).unused();
pub(super) const FAST_PROVIDE_WAIT: Opt = Opt::bool(&["fast-provide-wait"]).unused();

pub(super) const ALLOW_BIG_BLOCK: Opt =
    Opt::bool(&["allow-big-block"]).help("Accept blocks of up to 4 MiB; many peers accept no more than 2 MiB");
pub(super) const IPNS_BASE: Opt = Opt::text(&["ipns-base"])
    .default("base36")
    .help("Encoding of IDs: b58mh for peer IDs, or the base of a content ID");

// Affect only how the response is printed, except `lan`.
pub(super) const PROVIDE_STAT: &[Opt] = &[
    Opt::bool(&["lan"]),
    Opt::bool(&["all", "a"]).unused(),
    Opt::bool(&["compact"]).unused(),
    Opt::bool(&["connectivity"]).unused(),
    Opt::bool(&["network"]).unused(),
    Opt::bool(&["schedule"]).unused(),
    Opt::bool(&["timings"]).unused(),
    Opt::bool(&["workers"]).unused(),
    Opt::bool(&["operations"]).unused(),
    Opt::bool(&["queues"]).unused(),
];

// Affect only how the response is printed.
pub(super) const QUIET: Opt = Opt::bool(&["quiet", "q"]).printed();
pub(super) const DRAWN_PROGRESS: Opt = Opt::bool(&["progress", "p"]).unused();

pub(super) const NUMERIC: Opt = Opt::bool(&["numeric", "n"]).printed();
pub(super) const VERBOSE: Opt = Opt::bool(&["verbose", "v"]).printed();

pub(super) const NO_DELEGATES: &str =
    "no delegated publishers are configured, leave it out and put the record (name/get) where it is needed";

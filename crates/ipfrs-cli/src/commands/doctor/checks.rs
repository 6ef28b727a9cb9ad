//! The checks of `doctor`. None changes the repo.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::BinaryBytes;
use ipfrs_interface::{Config, Embedded, connections_within};
use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use tokio::time::timeout;

use super::remedy::{Remedies, quoted_path};
use super::{Finding, access};
use crate::args::Globals;
use crate::session::{self, Session};

/// Free space below which imports are about to be refused, in bytes.
const LITTLE_SPACE: u64 = 64 << 20;
/// Free space that compaction of a full pack needs, in bytes.
const SPACE_FOR_GC: u64 = 1 << 30;
/// Open files that are not connections: packs, index, logs.
const OTHER_FILES: u64 = 1_024;
/// A clock that shows an earlier time is wrong: the beginning of 2026, in seconds since 1970.
const EARLIEST_SECONDS: u64 = 1_767_225_600;
/// Difference between clocks that is tolerated.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// Maximum time for opening the repo.
const MAX_OPENING: Duration = Duration::from_secs(30);
/// Number of caches with the limit `cache.max_bytes`.
const CACHES: u64 = 4;

/// Checks the configuration. Without a valid one, the other checks use the defaults.
pub(super) fn configuration(globals: &Globals, repo: &Path, remedies: &Remedies) -> (Finding, Config) {
    const CHECK: &str = "configuration";
    let read = || -> anyhow::Result<(Option<PathBuf>, Config)> {
        let config = session::settings(globals, Vec::new())?.config()?;
        Ok((session::config_file(globals)?, config))
    };
    // The message names the value, and config/gateway.toml explains each key.
    let fix = remedies.edit(globals);
    match read() {
        Ok((_, config)) if let Err(error) = config.check_references(repo) => {
            (Finding::error(CHECK, error.to_string(), fix), config)
        }
        Ok((_, config)) if !config.ignored_variables().is_empty() => {
            let variables = config.ignored_variables();
            let message = format!("no settings have names like these environment variables: {}", variables.join(", "));
            (Finding::warning(CHECK, message, format!("unset {}", variables.join(" "))), config)
        }
        Ok((Some(file), config)) => (Finding::ok(CHECK, format!("{} is valid", file.display())), config),
        Ok((None, config)) => (Finding::ok(CHECK, "there is no file: the defaults apply"), config),
        Err(error) => {
            // The message of such an error has its cause.
            let is_own = error.downcast_ref::<ipfrs_core::Error>().is_some();
            let message = if is_own { error.to_string() } else { format!("{error:#}") };
            let fix = match session::config_path(globals) {
                Ok(file) if is_denied(&error) => access::fix(&file, &file),
                _ => fix,
            };
            (Finding::error(CHECK, message, fix), Config::default())
        }
    }
}

fn is_denied(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.map(std::io::Error::kind).any(|kind| kind == ErrorKind::PermissionDenied)
}

/// Checks the daemon that runs on the repo. Returns `None` if none runs.
pub(super) async fn daemon(session: &Session, remedies: &Remedies) -> anyhow::Result<Option<Finding>> {
    const CHECK: &str = "daemon";
    let Ok(api) = session.require_daemon().await else { return Ok(None) };
    let url = api.url().to_owned();
    Ok(Some(match api.is_ready().await {
        Ok(true) => match api.problems().await.unwrap_or_default() {
            problems if problems.is_empty() => Finding::ok(CHECK, format!("{url} is ready")),
            problems => Finding::error(CHECK, repairable(&problems), remedies.command(REPAIR)),
        },
        Ok(false) => Finding::error(CHECK, format!("{url} is not ready"), format!("curl {url}/health/ready")),
        Err(error) => {
            // A daemon that the user has named may run elsewhere.
            let fix = match session.is_api_given() {
                true => format!("curl -v {url}/health/ready"),
                false => remedies.command("gateway stop"),
            };
            Finding::error(CHECK, format!("{url} does not respond: {error:#}"), fix)
        }
    }))
}

/// Arguments of the command that finds what is lost or damaged in a repo.
const REPAIR: &str = "repo verify";

/// Returns problems of the repo as a text that names where their remedies are.
fn repairable(problems: &[String]) -> String {
    format!("{} (\"Repair\" in docs/OPERATIONS.md)", problems.join("; "))
}

/// Checks whether a daemon can open the repo, by opening it read-only. Nothing is changed, but no daemon can start
/// meanwhile. Returns `None` without a repo on the disk, or if another program has it.
pub(super) async fn content(session: &Session, remedies: &Remedies) -> Option<Finding> {
    const CHECK: &str = "content";
    session.require_repo().ok()?;
    let mut config = session.config.clone();
    config.store.read_only = true;
    config.retrieval.bitswap.listen.clear();
    // A store in memory cannot be read-only.
    config.validate().ok()?;
    let store = session.store();
    if !session.config.store.read_only && !store.join("version").exists() && !has_packs(session) {
        let message = format!("there is no block store in {}: a gateway that starts creates one", store.display());
        let fix = "if it should exist, mount its disk first, or correct store.path";
        return Some(Finding::warning(CHECK, message, fix));
    }
    let opening = Embedded::open(&config, &session.repo, "ipfrs-cli doctor");
    match timeout(MAX_OPENING, opening).await {
        Ok(Ok(_)) if !session.repo.join("pins.redb").exists() && has_packs(session) => {
            // Not a command: it would remove all content.
            let force = remedies.command("repo gc --force");
            let fix = format!("restore pins.redb from a backup, or pin what must be kept and run `{force}`");
            Some(Finding::error(CHECK, "there are blocks and no pins.redb: the pins are lost, and gc refuses", fix))
        }
        Ok(Ok(opened)) => Some(match opened.node().problems().await {
            Ok(problems) if problems.is_empty() => Finding::ok(CHECK, "the repo can be opened"),
            Ok(problems) => Finding::error(CHECK, repairable(&problems), remedies.command(REPAIR)),
            Err(error) => Finding::error(CHECK, error.message(), remedies.command(REPAIR)),
        }),
        Ok(Err(error)) if error.kind() == ipfrs_core::ErrorKind::Conflict => None,
        Ok(Err(error)) => {
            let message = format!("the repo cannot be opened: {}", error.message());
            Some(Finding::error(CHECK, message, "see \"Repair\" in docs/OPERATIONS.md"))
        }
        Err(_) => {
            let message = format!("the repo was not open after {} s", MAX_OPENING.as_secs());
            let message = format!("{message}: a gateway that starts may rebuild its index");
            Some(Finding::warning(CHECK, message, remedies.command("gateway start")))
        }
    }
}

fn has_packs(session: &Session) -> bool {
    fs::read_dir(session.store().join("packs")).is_ok_and(|mut packs| packs.next().is_some())
}

/// Checks that other users cannot read private keys, and the configuration if it has secrets.
pub(super) fn private_keys(globals: &Globals, repo: &Path, config: &Config) -> Finding {
    const CHECK: &str = "private keys";
    let mut open = Vec::new();
    let file = session::config_file(globals).ok().flatten().filter(|_| config.has_credentials());
    let names =
        ["identity.key", "pinning-services.json", "api-token", "keystore", "auth/keys.json", "tls/account.json"];
    let keys = fs::read_dir(repo.join("keystore")).into_iter().flatten().flatten().map(|key| key.path());
    for path in names.iter().map(|name| repo.join(name)).chain(keys).chain(file) {
        if fs::metadata(&path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
            open.push(path);
        }
    }
    if open.is_empty() {
        return Finding::ok(CHECK, "no other user can read them");
    }
    let shown: Vec<_> = open.iter().map(|path| path.display().to_string()).collect();
    let words: Vec<_> = open.iter().map(|path| quoted_path(path)).collect();
    let fix = format!("chmod -R go-rwx {}", words.join(" "));
    Finding::warning(CHECK, format!("other users may read {}", shown.join(" ")), fix)
}

/// Checks that other users can neither change the keys of the issuer of tokens nor read secrets among them. The group
/// may read the file, since the daemon need not own it.
pub(super) fn token_keys(config: &Config) -> Option<Finding> {
    const CHECK: &str = "token keys";
    let keys = &config.auth.jwt_keys;
    if keys.is_empty() || keys.contains("://") {
        return None;
    }
    let (path, word) = (Path::new(keys), quoted_path(Path::new(keys)));
    let mode = fs::metadata(path).ok()?.permissions().mode();
    if mode & 0o022 != 0 {
        let message = format!("other users can change {keys}, and then sign tokens");
        return Some(Finding::warning(CHECK, message, format!("chmod go-w {word}")));
    }
    let set: serde_json::Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let has_secret = set["keys"].as_array().is_some_and(|keys| keys.iter().any(|key| key["kty"] == "oct"));
    if has_secret && mode & 0o007 != 0 {
        let message = format!("other users can read the secrets in {keys}, and sign tokens with them");
        return Some(Finding::warning(CHECK, message, format!("chmod o-rwx {word}")));
    }
    Some(Finding::ok(CHECK, "no other user can sign tokens"))
}

/// Checks that other users of the machine cannot read content for which clients need a key.
pub(super) fn private_content(repo: &Path, config: &Config) -> Option<Finding> {
    const CHECK: &str = "private content";
    if !config.auth.private_gateway {
        return None;
    }
    let store = store_directory(repo, config);
    let packs = store.join("packs");
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0);
    if !(is_open(&store) && is_open(&packs)) {
        return Some(Finding::ok(CHECK, "no other user of this machine can read the packs"));
    }
    let message = format!("other users of this machine may read {}, although clients need a key", packs.display());
    Some(Finding::warning(CHECK, message, format!("chmod o-rwx {}", quoted_path(&store))))
}

/// Checks the free space of the disk.
pub(super) fn disk(repo: &Path, config: &Config, remedies: &Remedies) -> Finding {
    const CHECK: &str = "disk";
    let space = match statvfs(access::existing(&store_directory(repo, config))) {
        Ok(space) => space,
        Err(error) => return Finding::error(CHECK, format!("its free space is unknown: {error}"), "df -h"),
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let total = space.f_blocks.saturating_mul(space.f_frsize);
    let message = format!("{} of {} are free", BinaryBytes(free), BinaryBytes(total));
    let fix = remedies.command("repo gc");
    if free < LITTLE_SPACE {
        return Finding::error(CHECK, message, fix);
    }
    if free < SPACE_FOR_GC {
        return Finding::warning(CHECK, format!("{message}: garbage collection may need more"), fix);
    }
    if config.store.max_bytes > total {
        let limit = BinaryBytes(config.store.max_bytes);
        let fix = remedies.set("store.max_bytes", &(total / 10 * 8).to_string());
        return Finding::warning(CHECK, format!("{message}, but store.max_bytes is {limit}"), fix);
    }
    Finding::ok(CHECK, message)
}

/// Checks the clock, by which names and certificates expire.
pub(super) fn clock(repo: &Path, config: &Config) -> Finding {
    const CHECK: &str = "clock";
    let fix = "sudo timedatectl set-ntp true";
    let now = SystemTime::now();
    if now.duration_since(UNIX_EPOCH).is_ok_and(|since| since.as_secs() < EARLIEST_SECONDS) {
        return Finding::error(CHECK, "it shows a time before 2026", fix);
    }
    let packs = fs::read_dir(store_directory(repo, config).join("packs")).into_iter().flatten().flatten();
    let newest = packs.filter_map(|pack| pack.metadata().ok()?.modified().ok()).max();
    let ahead = newest.and_then(|newest| newest.duration_since(now).ok()).unwrap_or_default();
    if ahead > CLOCK_TOLERANCE {
        let message = format!("it is {} s behind the newest pack", ahead.as_secs());
        return Finding::warning(CHECK, message, fix);
    }
    Finding::ok(CHECK, "it is not behind the repo")
}

/// Checks the limit of open files, which the daemon raises to its maximum.
pub(super) fn open_files(config: &Config, remedies: &Remedies) -> Finding {
    const CHECK: &str = "open files";
    let wanted = config.server.max_connections as u64;
    match getrlimit(Resource::Nofile).maximum {
        Some(maximum) if connections_within(maximum) < wanted => {
            let most = connections_within(maximum);
            let needed = (wanted * 8).div_ceil(7).max(wanted + OTHER_FILES);
            Finding::warning(
                CHECK,
                format!(
                    "at most {maximum}, so {most} connections instead of the {wanted} of server.max_connections, which \
                     need LimitNOFILE={needed} in the unit"
                ),
                remedies.set("server.max_connections", &most.to_string()),
            )
        }
        Some(maximum) => Finding::ok(CHECK, format!("up to {maximum}")),
        None => Finding::ok(CHECK, "without limit"),
    }
}

/// Checks that the caches fit into the memory of the machine, or of its control group.
pub(super) fn memory(config: &Config, remedies: &Remedies) -> Finding {
    const CHECK: &str = "memory";
    let Some(memory) = available_memory() else { return Finding::ok(CHECK, "its size is unknown") };
    let mut caches = if config.compression.enabled { config.compression.cache_bytes } else { 0 };
    if config.cache.enabled {
        caches = caches.saturating_add(config.cache.max_bytes.saturating_mul(CACHES));
    }
    let message = format!("{}, of which caches may take {}", BinaryBytes(memory), BinaryBytes(caches));
    if caches > memory / 2 {
        let fix = remedies.set("cache.max_bytes", &(memory / 16).max(65_536).to_string());
        return Finding::warning(CHECK, message, fix);
    }
    Finding::ok(CHECK, message)
}

/// Returns the directory of the blocks.
fn store_directory(repo: &Path, config: &Config) -> PathBuf {
    config.store.path.as_ref().map_or_else(|| repo.to_owned(), |path| repo.join(path))
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine = total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1_024);
    // The files of control groups, version 2 and version 1. Without a limit, the latter contains a huge number.
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = limits.iter().find_map(|limit| fs::read_to_string(limit).ok()?.trim().parse().ok());
    Some(group.map_or(machine, |group: u64| group.min(machine)))
}

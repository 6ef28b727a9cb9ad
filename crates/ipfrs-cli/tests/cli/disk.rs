//! Kills of a daemon under a load of all kinds, and power failures and failing disks beneath it.

mod check;
mod crash;
mod load;
mod mounted;
mod reads;
mod tree;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;

use self::crash::Loss;
use self::load::{Expected, Load};
use self::mounted::{Disk, Failing, Fault};
use self::tree::Change;
use crate::harness::{Daemon, Place};

/// Number of power failures; `IPFRS_DAEMON_POWER_FAILURES` overrides it.
const POWER_FAILURES: usize = 60;

/// Number of kills; `IPFRS_DAEMON_KILLS` overrides it.
const KILLS: u64 = 5;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn start(place: &Place, repo: &Path) -> Daemon {
    let mut command = place.command(&["gateway", "start", "--port", "0", "--workers", "1"]);
    command.env("IPFRS_PATH", repo).env("IPFRS_LOG_LEVEL", "off");
    Daemon::start(command)
}

/// A crash to recover from.
struct Crash<'a> {
    log: &'a [Change],
    loss: Loss,
    expected: Arc<Expected>,
    seed: u64,
}

impl<'a> Crash<'a> {
    /// Returns a crash after the first changes in `log`. `history` has what the daemon held from which position.
    fn at(position: usize, log: &'a [Change], history: &[(usize, Arc<Expected>)], loss: Loss, seed: u64) -> Self {
        let held = history.partition_point(|(from, _)| *from <= position);
        let expected = held.checked_sub(1).map(|last| Arc::clone(&history[last].1)).unwrap_or_default();
        Self { log: &log[..position], loss, expected, seed }
    }

    /// Starts a daemon on what is left, and compares what it holds.
    fn assert_recovers(&self, runtime: &Runtime) {
        let place = Place::new();
        let tree = crash::after(self.log, self.loss, &mut SmallRng::seed_from_u64(self.seed));
        tree.write_to(&place.path("."));
        let daemon = start(&place, &place.repo());
        let found = runtime.block_on(check::differences(daemon.url(), &place.repo(), &self.expected));
        let at = self.log.len();
        assert!(found.is_empty(), "{:?} after change {at}, seed {}: {found:#?}", self.loss, self.seed);
    }
}

#[test]
fn acknowledged_changes_survive_power_failures_at_any_moment() {
    let Some(disk) = Disk::mount() else { return };
    let (place, runtime) = (Place::new(), runtime());
    let seed = std::env::var("IPFRS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut daemon = start(&place, &disk.path().join("repo"));
    let mut load = Load::new(Some(&disk), &daemon, false);
    runtime.block_on(load.run(4, 25, seed));
    daemon.kill();
    daemon = start(&place, &disk.path().join("repo"));
    load = load.at(&daemon);
    runtime.block_on(load.run(4, 10, seed + 1));
    drop(daemon);

    let failures = std::env::var("IPFRS_DAEMON_POWER_FAILURES").map_or(POWER_FAILURES, |count| count.parse().unwrap());
    let (log, history) = (disk.log(), load.history());
    let mut random = SmallRng::seed_from_u64(seed);
    let crashes: Vec<_> = (0..failures)
        .map(|number| {
            let position = random.random_range(0..=log.len());
            let loss = [Loss::Some, Loss::Everything, Loss::Some, Loss::Nothing][number % 4];
            Crash::at(position, &log, &history, loss, number as u64)
        })
        .collect();
    assert_all_recover(&crashes, &runtime);
}

#[test]
fn acknowledged_changes_survive_a_power_failure_after_each_write() {
    let Some(disk) = Disk::mount() else { return };
    let (place, runtime) = (Place::new(), runtime());
    let daemon = start(&place, &disk.path().join("repo"));
    let load = Load::new(Some(&disk), &daemon, false);
    runtime.block_on(load.run_each(1));
    drop(daemon);
    let (log, history) = (disk.log(), load.history());
    // A daemon starts after each of them, some twice.
    assert!(log.len() < 1_500, "{} writes: make the load smaller", log.len());
    // If all is lost that was not synced, the state changes only with a sync.
    let is_before_sync = |position: usize| matches!(log.get(position), None | Some(Change::Sync { .. }));
    let killed = (0..=log.len()).map(|position| (position, Loss::Nothing));
    let lost =
        (0..=log.len()).filter(|position| is_before_sync(*position)).map(|position| (position, Loss::Everything));
    let crashes = killed.chain(lost).map(|(position, loss)| Crash::at(position, &log, &history, loss, 0));
    assert_all_recover(&crashes.collect::<Vec<_>>(), &runtime);
}

/// Tries all crashes, two at a time.
fn assert_all_recover(crashes: &[Crash<'_>], runtime: &Runtime) {
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(crash) = crashes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let recovers = std::panic::AssertUnwindSafe(|| crash.assert_recovers(runtime));
                    failed.fetch_add(usize::from(std::panic::catch_unwind(recovers).is_err()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "of {} power failures", crashes.len());
}

/// Asserts that a daemon still has what it acknowledged.
fn assert_serves(runtime: &Runtime, daemon: &Daemon, repo: &Path, expected: &Expected, case: &str) {
    let found = runtime.block_on(check::differences(daemon.url(), repo, expected));
    assert!(found.is_empty(), "{case}: {found:#?}");
}

#[test]
fn acknowledged_changes_survive_kills_under_load() {
    let kills = std::env::var("IPFRS_DAEMON_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let seed = std::env::var("IPFRS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let (place, runtime) = (Place::new(), runtime());
    let mut random = SmallRng::seed_from_u64(seed);
    let mut daemon = start(&place, &place.repo());
    let mut load = Load::new(None, &daemon, false);
    for kill in 0..kills {
        let notes = random.random_range(30..120);
        runtime.block_on(load.run_until(4, seed + kill, notes, || daemon.kill()));
        daemon = start(&place, &place.repo());
        load = load.at(&daemon);
        assert_serves(&runtime, &daemon, &place.repo(), &load.expected(), &format!("kill {kill}, seed {seed}"));
    }
    runtime.block_on(load.run(4, 10, seed + kills));
    assert_serves(&runtime, &daemon, &place.repo(), &load.expected(), "after the last kill");
}

/// Parts of a repo that fail alone.
const PARTS: [&str; 7] = ["packs", "index", "pins.redb", "mutable-files", "uploads", "ingest", ""];

#[test]
fn acknowledged_changes_survive_a_failing_disk() {
    let faults = [Fault::Write, Fault::Sync, Fault::Full, Fault::Torn];
    let cases: Vec<_> = PARTS.iter().flat_map(|part| faults.map(|fault| (*part, fault))).collect();
    let seed = std::env::var("IPFRS_SEED").map_or(1, |seed| seed.parse().unwrap());
    for (number, (part, fault)) in cases.into_iter().enumerate() {
        let Some(disk) = Disk::mount() else { return };
        let (place, runtime) = (Place::new(), runtime());
        let repo = disk.path().join("repo");
        let daemon = start(&place, &repo);
        let mut load = Load::new(Some(&disk), &daemon, true);
        runtime.block_on(load.run(3, 8, seed));
        disk.set_failing(Some(Failing { fault, path: part.to_owned(), after: number as u32 % 5 }));
        runtime.block_on(load.run(3, 8, seed + 1));
        let mut found = runtime.block_on(check::differences(daemon.url(), &repo, &load.expected()));
        // An upload that has all its bytes is imported when a client asks for it, and bytes in a journal become part of
        // their object when it is continued. Both fail as long as the disk does.
        found.retain(|difference| !(difference.starts_with("Upload(") && difference.contains("): 500 ")));
        found.retain(|difference| !(difference.starts_with("Object(") && difference.contains("cannot be continued")));
        assert!(found.is_empty(), "{part} {fault:?}, failing: {found:#?}");
        disk.set_failing(None);
        // Once there is space again, everything works without a restart.
        load.set_may_fail(matches!(fault, Fault::Write | Fault::Sync));
        runtime.block_on(load.run(3, 8, seed + 2));
        assert_serves(&runtime, &daemon, &repo, &load.expected(), &format!("{part} {fault:?}, mended"));
        drop(daemon);
        let (log, expected) = (disk.log(), Arc::new(load.expected()));
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some] {
            let crash = Crash { log: &log, loss, expected: Arc::clone(&expected), seed };
            crash.assert_recovers(&runtime);
        }
    }
}

/// Calls a command of the RPC API and returns the text of the response.
async fn call(daemon: &Daemon, command: &str, content: Option<&str>) -> Result<String, String> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.post(format!("{}/api/v0/{command}", daemon.url()));
    if let Some(content) = content {
        let part = reqwest::multipart::Part::text(content.to_owned()).file_name("file");
        request = request.multipart(reqwest::multipart::Form::new().part("file", part));
    }
    let response = request.send().await.unwrap();
    let is_success = response.status().is_success();
    // An error during the response ends it early.
    let text = response.text().await.map_err(|error| error.to_string())?;
    if is_success && !text.contains(r#""Error":"#) { Ok(text) } else { Err(text) }
}

/// A pin that was reported as failed may be there after a restart, and a pin whose removal failed too.
#[test]
fn blocks_of_pins_whose_change_failed_are_kept() {
    let faults = [Fault::Write, Fault::Sync, Fault::Full, Fault::Torn];
    for (fault, after) in faults.into_iter().flat_map(|fault| (0..3).map(move |after| (fault, after))) {
        let Some(disk) = Disk::mount() else { return };
        let (place, runtime) = (Place::new(), runtime());
        let daemon = start(&place, &disk.path().join("repo"));
        runtime.block_on(async {
            let added = call(&daemon, "add?quieter=true&cid-version=1", Some("pinned before")).await.unwrap();
            let added: serde_json::Value = serde_json::from_str(added.lines().last().unwrap()).unwrap();
            disk.set_failing(Some(Failing { fault, path: "pins.redb".to_owned(), after }));
            let changes = [
                call(&daemon, "add", Some("pinned while the disk fails")).await,
                call(&daemon, &format!("pin/rm?arg={}", added["Hash"].as_str().unwrap()), None).await,
            ];
            // Each change syncs once.
            assert!(after == 2 || changes.iter().any(Result::is_err), "{fault:?}, {after}: {changes:?}");
            // It may refuse until the disk works.
            let _ = call(&daemon, "repo/gc", None).await;
            disk.set_failing(None);
            let collected = call(&daemon, "repo/gc", None).await;
            assert!(collected.is_ok(), "{fault:?}, {after}: {collected:?}");
        });
        drop(daemon);
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some, Loss::Some] {
            let place = Place::new();
            crash::after(&disk.log(), loss, &mut SmallRng::seed_from_u64(after.into())).write_to(&place.path("."));
            let daemon = start(&place, &place.repo());
            runtime.block_on(async {
                // It fails if a block below a pin is missing.
                let outcome = call(&daemon, "repo/gc", None).await;
                assert!(outcome.is_ok(), "{fault:?}, {after}, {loss:?}: {outcome:?}");
            });
        }
    }
}

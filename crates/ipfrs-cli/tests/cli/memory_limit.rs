//! A daemon that may use little memory, as in a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Signal;

use crate::harness::{Daemon, Place, in_shell, noise, rounds, skipped};

/// Memory for the daemon, including the files that the system caches for it, in bytes.
const LIMIT: u64 = 256 * 1024 * 1024;
const FILE_BYTES: usize = 48 * 1024 * 1024;
const FILES: usize = 8;
const SLOW_CLIENTS: usize = 200;

/// A control group with a limit of memory, which is removed at the end.
struct Group(PathBuf);

impl Group {
    /// Returns `None` where this user may not create one.
    fn new() -> Option<Self> {
        let name = format!("ipfrs-test-{}", std::process::id());
        let limited = |root: &str, limits: &[(&str, u64)]| {
            let root = Path::new(root);
            // The root of version 2 has the same files only if the memory controller is there.
            root.join("cgroup.procs").exists().then_some(())?;
            let group = Self(root.join(&name));
            fs::create_dir(&group.0).ok()?;
            limits.iter().try_for_each(|(file, bytes)| fs::write(group.0.join(file), bytes.to_string())).ok()?;
            Some(group)
        };
        limited("/sys/fs/cgroup", &[("memory.max", LIMIT), ("memory.swap.max", 0)])
            .or_else(|| limited("/sys/fs/cgroup/memory", &[("memory.limit_in_bytes", LIMIT)]))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process may take a moment to leave.
        while matches!(fs::remove_dir(&self.0), Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy) {
            thread::yield_now();
        }
    }
}

/// Adds and reads files beside clients that neither read nor send on, and removes the files.
fn load(place: &Place, daemon: &Daemon, round: usize) {
    // Every round has other files.
    let file = |number: usize| (format!("file-{number}"), noise(FILE_BYTES + round * FILES + number));
    let files: Vec<_> = (0..FILES).map(file).collect();
    let added: Vec<_> = thread::scope(|scope| {
        let add = |(name, content): &(String, Vec<u8>)| {
            place.write(name, content);
            place.ok(&["add", "-Q", name])
        };
        let added: Vec<_> = files.iter().map(|file| scope.spawn(move || add(file))).collect();
        added.into_iter().map(|added| added.join().unwrap()).collect()
    });
    // Clients that ask for everything, and neither read nor send on.
    let requests = |index: usize| {
        let cid = &added[index % FILES];
        let get =
            format!("GET /ipfs/{cid}?format=car HTTP/1.1\r\nHost: x\r\n\r\nGET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\n");
        let post = "POST /v1/stream/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nbegun";
        if index.is_multiple_of(2) { format!("{get}\r\n") } else { post.to_owned() }
    };
    let held: Vec<_> = (0..SLOW_CLIENTS).map(|index| daemon.send(&requests(index))).collect();
    thread::scope(|scope| {
        for ((_, content), cid) in files.iter().zip(&added) {
            scope.spawn(move || assert!(place.run(&["cat", cid]).stdout == *content));
            scope.spawn(move || place.ok(&["get", "-aC", cid, "-o", &format!("{cid}.tar.gz")]));
        }
    });
    place.ok(&["repo", "gc"]);
    place.ok(&["repo", "verify"]);
    drop(held);
    added.iter().for_each(|cid| drop(place.ok(&["pin", "rm", cid])));
    place.ok(&["repo", "gc"]);
}

#[test]
fn load_within_a_limit_of_memory_ends_no_daemon() {
    let Some(group) = Group::new() else {
        return skipped("this user may not create control groups, so the limit of memory is not tested");
    };
    let place = Place::new();
    let command = place.command(&["gateway", "start", "--port", "0", "--workers", "2"]);
    let procs = group.0.join("cgroup.procs");
    let script = format!("echo $$ > {}; exec \"$0\" \"$@\"", procs.display());
    let daemon = Daemon::start(in_shell(&script, &command));
    assert!(fs::read_to_string(&procs).unwrap().lines().any(|id| id == daemon.id().to_string()));

    for round in 0..rounds() {
        load(&place, &daemon, round);
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0, Some(0));
}

//! A daemon whose clock jumps.

mod limits;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

use crate::harness::{Daemon, Place, content_of, noise, rounds};

/// Library that adds the number of seconds in a file to the time of day. Other clocks stay as they are.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *offset;

__attribute__((constructor)) static void map(void) {
    int fd = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    void *page = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    offset = page == MAP_FAILED ? 0 : page;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"#;

const DAY: i64 = 24 * 3600;
/// Number of days by which a clock can go back: no system has a time before 1970.
pub(crate) const EARLIEST: i64 = 20_000;

/// The clock of a daemon or command.
pub(crate) struct Clock {
    library: PathBuf,
    path: PathBuf,
    offset: File,
}

impl Clock {
    pub(crate) fn new(place: &Place) -> Self {
        let (source, library) = (place.write("clock.c", LIBRARY.as_bytes()), place.path("clock.so"));
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
        assert!(built.success());
        let path = place.write("offset", &0_i64.to_ne_bytes());
        let offset = File::options().write(true).open(&path).unwrap();
        Self { library, path, offset }
    }

    /// Sets by how many days the clock differs from that of the system.
    pub(crate) fn jump(&self, days: i64) {
        self.offset.write_all_at(&(days * DAY).to_ne_bytes(), 0).unwrap();
    }

    /// Makes a command have this clock.
    pub(crate) fn set_in(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("CLOCK_OFFSET", &self.path);
    }

    fn start(&self, place: &Place) -> Daemon {
        self.start_with(place, &[])
    }

    fn start_with(&self, place: &Place, arguments: &[&str]) -> Daemon {
        let arguments = [&["gateway", "start", "--port", "0", "--workers", "2"], arguments].concat();
        let mut command = place.command(&arguments);
        self.set_in(&mut command);
        Daemon::start(command)
    }
}

/// Sends a request and returns the head of the response.
fn exchange(daemon: &Daemon, head: &str, body: &str) -> String {
    let length = body.len();
    let request = format!("{head}\r\nHost: x\r\nTus-Resumable: 1.0.0\r\nContent-Length: {length}\r\nConnection: close");
    let mut connection = daemon.send(&format!("{request}\r\n\r\n{body}"));
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

fn begin_upload(daemon: &Daemon) -> String {
    let begun = exchange(daemon, "POST /v1/stream/upload HTTP/1.1\r\nUpload-Length: 10", "");
    let location = begun.lines().find_map(|line| line.strip_prefix("Location: "));
    location.unwrap_or_else(|| panic!("{begun}")).to_owned()
}

/// Sends half of the ten bytes of an upload.
fn send_half(daemon: &Daemon, upload: &str, offset: usize) -> String {
    let head =
        format!("PATCH {upload} HTTP/1.1\r\nContent-Type: application/offset+octet-stream\r\nUpload-Offset: {offset}");
    exchange(daemon, &head, "12345")
}

#[test]
fn jumps_of_the_clock_lose_nothing_and_stop_nothing() {
    let place = Place::new();
    let clock = Clock::new(&place);
    place.tree("tree");
    let mut daemon = clock.start(&place);
    let root = place.ok(&["add", "-rQ", "tree"]);
    let key = place.ok(&["key", "gen", "mine"]);
    let mut files = vec![(root.clone(), "tree".to_owned())];
    // To 2027, 1983, 2190 and back, from wherever this runs; and then to random times. Those before a restart are in
    // the future, because names have expired for a daemon that starts much later.
    let mut random = SmallRng::seed_from_u64(1);
    let more = (1..rounds()).flat_map(|_| [random.random_range(1..60_000), random.random_range(-16_000..60_000)]);
    let more: Vec<_> = more.collect();
    for (round, days) in [400, -16_000, 60_000, 0].into_iter().chain(more).enumerate() {
        let upload = begin_upload(&daemon);
        assert!(send_half(&daemon, &upload, 0).starts_with("HTTP/1.1 204"));
        clock.jump(days);
        assert!(exchange(&daemon, "GET /health HTTP/1.1", "").starts_with("HTTP/1.1 200"));
        // The upload has expired, or continues.
        let continued = send_half(&daemon, &upload, 5);
        assert!(continued.starts_with("HTTP/1.1 2") || continued.starts_with("HTTP/1.1 4"), "{continued}");
        let upload = begin_upload(&daemon);
        assert!(send_half(&daemon, &upload, 0).starts_with("HTTP/1.1 204"), "{days}");
        let done = send_half(&daemon, &upload, 5);
        assert!(done.starts_with("HTTP/1.1 204"), "{days}: {done}");

        let name = format!("new-{round}");
        place.write(&name, &noise(300_000 + round));
        files.push((place.ok(&["add", "-Q", &name]), name.clone()));
        place.ok(&["files", "write", "-e", &format!("/{name}"), &name]);
        place.ok(&["name", "publish", "-Q", "--key", "mine", &root]);
        assert_eq!(place.ok(&["name", "resolve", &key]), format!("/ipfs/{root}"), "{days}");
        place.ok(&["repo", "gc"]);
        for (cid, original) in &files {
            let saved = format!("saved-{round}-{original}");
            place.ok(&["get", cid, "-o", &saved]);
            assert_eq!(content_of(&place.path(&saved)), content_of(&place.path(original)), "{days}");
            fs::remove_dir_all(place.path(&saved)).or_else(|_| fs::remove_file(place.path(&saved))).unwrap();
        }
        if round % 2 == 1 {
            continue;
        }
        // A daemon that starts at another time than the last one ended.
        daemon.signal(Signal::TERM);
        let (code, log) = daemon.wait();
        assert!(code == Some(0) && !log.contains("panicked"), "{code:?}: {log}");
        clock.jump(-days.min(EARLIEST));
        daemon = clock.start(&place);
        assert_eq!(place.ok(&["name", "resolve", &key]), format!("/ipfs/{root}"), "{days}");
        assert_eq!(place.ok(&["files", "ls"]).lines().count(), round + 1);
        assert!(place.ok(&["repo", "verify"]).contains("verify"), "{days}");
    }
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert!(code == Some(0) && !log.contains("panicked"), "{code:?}: {log}");
}

//! A daemon whose files have a maximum length.

use crate::harness::{Daemon, Place, in_shell, noise};

#[test]
fn limit_on_file_length_fails_long_adds_only() {
    let place = Place::new();
    let short = noise(1_000_000);
    place.write("short", &short);
    place.write("long", &noise(6_000_000));
    let command = place.command(&["gateway", "start", "--port", "0", "--workers", "2"]);
    // 4 MiB, in units of 512 bytes.
    let daemon = Daemon::start(in_shell("ulimit -c 0; ulimit -f 8192; exec \"$0\" \"$@\"", &command));
    let added = place.ok(&["add", "-Q", "short"]);
    let error = place.fails(&["add", "-Q", "long"]);
    assert!(error.contains("File too large"), "{error}");
    place.ok(&["files", "mkdir", "/d"]);
    assert_eq!(place.run(&["cat", &added]).stdout, short);
    daemon.kill();
}

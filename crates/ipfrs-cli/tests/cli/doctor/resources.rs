//! `doctor` where open files, space, ports or rights are missing.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;
use serde_json::Value;

use super::{doctor, finding, findings};
use crate::harness::{Place, in_shell, skipped};

/// ID of a user without rights.
const NOBODY: u32 = 65_534;

#[test]
fn doctor_finds_a_low_limit_of_open_files_and_its_remedy_suffices() {
    let place = Place::new();
    let with_limit = |limit: &str| {
        let mut command = doctor(&place);
        command.env("IPFRS_SERVER_MAX_CONNECTIONS", "1000");
        let limited = in_shell(&format!("ulimit -n {limit} && exec \"$0\" \"$@\""), &command);
        finding(&findings(limited).1, "open files").clone()
    };
    let low = with_limit("300");
    assert_eq!(low["status"], "warning", "{low}");
    let message = low["message"].as_str().unwrap();
    assert!(message.starts_with("at most 300, so "), "{low}");
    let (_, needed) = message.split_once("LimitNOFILE=").unwrap();
    let needed: String = needed.chars().take_while(char::is_ascii_digit).collect();
    let enough = with_limit(&needed);
    assert_eq!(enough["status"], "ok", "{enough}");
    // Or the daemon accepts fewer connections.
    let (_, most) = low["fix"].as_str().unwrap().split_once("config set server.max_connections ").unwrap();
    let mut command = doctor(&place);
    command.env("IPFRS_SERVER_MAX_CONNECTIONS", most);
    let limited = in_shell("ulimit -n 300 && exec \"$0\" \"$@\"", &command);
    assert_eq!(finding(&findings(limited).1, "open files")["status"], "ok", "{low}");
}

#[test]
fn doctor_finds_that_ports_of_other_listeners_are_used() {
    let place = Place::new();
    let listeners = [("gRPC port", "GRPC"), ("API port", "API"), ("public port", "PUBLIC")]
        .map(|(check, section)| (check, section, TcpListener::bind("127.0.0.1:0").unwrap()));
    let mut command = doctor(&place);
    command.env("IPFRS_PUBLIC_ENABLED", "true");
    for (_, section, listener) in &listeners {
        let address = listener.local_addr().unwrap();
        command.env(format!("IPFRS_{section}_HOST"), "127.0.0.1");
        command.env(format!("IPFRS_{section}_PORT"), address.port().to_string());
    }
    let (code, found) = findings(command);
    assert_eq!(code, Some(1), "{found:?}");
    for (check, _, listener) in &listeners {
        let (finding, address) = (finding(&found, check), listener.local_addr().unwrap());
        assert_eq!(finding["status"], "error", "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(&format!("uses {address}")), "{finding}");
        let remedy = finding["fix"].as_str().unwrap();
        assert!(remedy.contains(&format!("ss -ltnp 'sport = :{}'", address.port())), "{finding}");
    }
}

#[test]
fn doctor_finds_little_space_and_file_systems_that_are_read_only() {
    let place = Place::new();
    fs::create_dir(place.repo()).unwrap();
    let remount = format!("sudo mount -o remount,rw \"$(findmnt -n -o TARGET --target {})\"", place.repo().display());
    for (options, check, status, text, fix) in [
        ("size=32m", "disk", "error", "are free", "repo gc"),
        ("size=512m", "disk", "warning", "garbage collection", "repo gc"),
        ("ro", "repo", "error", "cannot be written", remount.as_str()),
    ] {
        // The mount ends with the command.
        let script = format!(
            "exec unshare --map-root-user --mount sh -c 'mount -t tmpfs -o {options} none \"$IPFRS_PATH\" && \
             exec \"$0\" \"$@\"' \"$0\" \"$@\""
        );
        let (code, found) = findings(in_shell(&script, &doctor(&place)));
        if found.is_empty() {
            return skipped("this user may not mount file systems");
        }
        let finding = finding(&found, check);
        assert_eq!(finding["status"], status, "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(text), "{finding}");
        assert!(finding["fix"].as_str().unwrap().ends_with(fix), "{finding}");
        assert_eq!(code, Some(i32::from(status == "error")), "{found:?}");
    }
}

#[test]
fn doctor_finds_a_daemon_that_is_not_ready() {
    let place = Place::new();
    fs::create_dir(place.repo()).unwrap();
    // On this disk there is no space for a batch of blocks and for garbage collection. The mount ends with the shell.
    let script = "exec unshare --map-root-user --mount sh -c '
        mount -t tmpfs -o size=32m none \"$IPFRS_PATH\" && mkfifo started || exit
        \"$0\" gateway start --port 0 --workers 2 >started 2>/dev/null &
        exec 3<started
        while read -r line <&3 && [ \"$line\" != Ready ]; do :; done
        \"$0\" \"$@\"
        code=$?
        kill $!
        wait
        exit $code' \"$0\" \"$@\"";
    let (code, found) = findings(in_shell(script, &doctor(&place)));
    if found.is_empty() {
        return skipped("this user may not mount file systems");
    }
    let finding = finding(&found, "daemon");
    assert_eq!((code, &finding["status"]), (Some(1), &"error".into()), "{finding}");
    let (url, state) = finding["message"].as_str().unwrap().split_once(' ').unwrap();
    assert_eq!(state, "is not ready");
    assert_eq!(finding["fix"], format!("curl {url}/health/ready"));
}

/// Runs a command as a user who is not root, who may do everything. Returns the findings, or `None` if such a user
/// cannot execute the program where it was built.
fn findings_of_user(mut command: Command) -> Option<Vec<Value>> {
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let text = String::from_utf8(command.output().ok()?.stdout).unwrap();
    (!text.is_empty()).then(|| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn doctor_finds_a_port_and_a_configuration_that_need_rights() {
    const PORT: u16 = 81;
    let place = Place::new();
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    let config = place.write("repo/config.toml", b"");
    fs::set_permissions(&config, Permissions::from_mode(0o000)).unwrap();
    let Some(found) = findings_of_user(doctor(&place)) else {
        return skipped("other users cannot execute the program");
    };
    let denied = finding(&found, "configuration");
    assert_eq!(denied["status"], "error", "{denied}");
    let fix = if geteuid().is_root() { "sudo chown -R \"$(id -u):$(id -g)\" " } else { "chmod -R u+rwX " };
    assert_eq!(denied["fix"], format!("{fix}{}", config.display()), "{denied}");
    fs::remove_file(&config).unwrap();
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if first.trim().parse().is_ok_and(|first: u16| first <= PORT) {
        return skipped("all users may listen on low ports");
    }
    let mut command = doctor(&place);
    command.env("IPFRS_SERVER_PORT", PORT.to_string());
    let found = findings_of_user(command).unwrap();
    let port = finding(&found, "port");
    assert_eq!(port["status"], "error", "{port}");
    assert!(port["message"].as_str().unwrap().contains("cannot listen on"), "{port}");
    assert_eq!(port["fix"], format!("sudo sysctl -w net.ipv4.ip_unprivileged_port_start={PORT}"), "{port}");
}

#[test]
fn doctor_finds_a_unix_socket_that_needs_rights() {
    let place = Place::new();
    fs::create_dir(place.repo()).unwrap();
    let [closed, open] = ["closed", "open"].map(|name| place.path(name));
    let socket = open.join("api.sock");
    fs::create_dir(&closed).unwrap();
    fs::create_dir(&open).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set_mode(&place.path(""), 0o755);
    set_mode(&closed, 0o555);
    set_mode(&open, 0o1777);
    set_mode(&socket, 0o000);
    // The owner can change the mode. Others choose another directory, or need another owner.
    let fixes = match geteuid().is_root() {
        true => [
            format!("config set api.unix_socket {}/ipfrs-api.sock", std::env::temp_dir().display()),
            format!("sudo chown -R \"$(id -u):$(id -g)\" {}", socket.display()),
        ],
        false => [&closed, &socket].map(|path| format!("chmod -R u+rwX {}", path.display())),
    };
    let messages = ["cannot be written", "cannot connect to the existing socket"];
    for ((path, message), fix) in [closed.join("api.sock"), socket].iter().zip(messages).zip(fixes) {
        let mut command = doctor(&place);
        command.env("IPFRS_API_UNIX_SOCKET", path);
        let Some(found) = findings_of_user(command) else {
            return skipped("other users cannot execute the program");
        };
        let finding = finding(&found, "Unix socket");
        assert_eq!(finding["status"], "error", "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
        assert!(finding["fix"].as_str().unwrap().ends_with(&fix), "{finding}");
    }
}

#[test]
fn doctor_finds_a_repo_that_this_user_cannot_use() {
    let place = Place::new();
    place.write("file", b"content");
    place.ok(&["add", "file"]);
    let is_root = geteuid().is_root();
    let set_mode = |name: &str, mode| fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    set_mode("", 0o755);
    // The owner can change the mode, and others need another owner.
    let remedy = if is_root { "sudo chown -R " } else { "chmod -R u+rwX " };
    for (directory, file, text) in [(0o555, 0o600, "cannot be written"), (0o777, 0o000, "has no access to")] {
        set_mode("repo/pins.redb", file);
        set_mode("repo", directory);
        let found = findings_of_user(doctor(&place));
        set_mode("repo", 0o755);
        set_mode("repo/pins.redb", 0o600);
        let Some(found) = found else {
            return skipped("other users cannot execute the program");
        };
        let finding = finding(&found, "repo");
        assert_eq!(finding["status"], "error", "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(text), "{finding}");
        assert!(finding["fix"].as_str().unwrap().starts_with(remedy), "{finding}");
    }
}

//! `doctor`: findings, remedies and exit codes.

mod remedies;
mod resources;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::harness::{Place, Ran};

/// Runs the command and returns the findings by the name of the check: status, message and remedy.
fn findings(mut command: Command) -> (Option<i32>, Vec<Value>) {
    let ran: Ran = command.output().unwrap().into();
    (ran.code, ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap()
}

fn doctor(place: &Place) -> Command {
    let mut command = place.command(&["doctor", "--json"]);
    command.env("IPFRS_SERVER_PORT", "0").env("IPFRS_SERVER_MAX_CONNECTIONS", "100");
    command
}

#[test]
fn doctor_finds_nothing_in_a_new_and_in_a_running_repo() {
    let place = Place::new();
    let (code, found) = findings(doctor(&place));
    assert_eq!(code, Some(0), "{found:?}");
    assert!(!place.repo().exists(), "a check creates nothing");
    let names: Vec<_> = found.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    for check in ["configuration", "repo", "private keys", "disk", "clock", "open files", "memory", "access", "port"] {
        assert!(names.contains(&check), "{names:?}");
    }
    let mut read_only = doctor(&place);
    read_only.env("IPFRS_STORE_READ_ONLY", "true");
    let (code, found) = findings(read_only);
    assert_eq!((code, &finding(&found, "repo")["status"]), (Some(1), &"error".into()), "{found:?}");
    let _daemon = place.start(&[]);
    let mut relative = doctor(&place);
    relative.args(["--repo", "repo"]);
    let (code, found) = findings(relative);
    assert_eq!((code, &finding(&found, "daemon")["status"]), (Some(0), &"ok".into()), "{found:?}");
    assert!(finding(&found, "repo")["message"].as_str().unwrap().ends_with("can be written"), "{found:?}");
    assert!(!found.iter().any(|finding| finding["check"] == "port"), "the daemon uses its ports itself");
}

#[test]
fn doctor_shows_ipv6_addresses_in_brackets() {
    let place = Place::new();
    let mut command = doctor(&place);
    command.env("IPFRS_SERVER_HOST", "::1").env("IPFRS_SERVER_PORT", "20999");
    let (_, found) = findings(command);
    assert!(finding(&found, "port")["message"].as_str().unwrap().contains("[::1]:20999"), "{found:?}");
}

#[test]
fn doctor_opens_the_repo_as_a_daemon_does() {
    let place = Place::new();
    place.write("a", b"content");
    place.ok(&["add", "a"]);
    let content = |code| {
        let (found_code, found) = findings(doctor(&place));
        assert_eq!(found_code, Some(code), "{found:?}");
        finding(&found, "content").clone()
    };
    assert_eq!(content(0)["status"], "ok");
    let pins = place.repo().join("pins.redb");
    let kept = fs::read(&pins).unwrap();
    fs::write(&pins, "").unwrap();
    assert_eq!(content(1)["status"], "error");
    fs::remove_file(&pins).unwrap();
    assert!(content(1)["message"].as_str().unwrap().contains("the pins are lost"));
    assert!(!pins.exists(), "a check changes nothing");
    fs::write(&pins, kept).unwrap();
    fs::write(place.repo().join("version"), "2\n").unwrap();
    assert!(content(1)["message"].as_str().unwrap().contains("format 2"));
    fs::write(place.repo().join("version"), "1\n").unwrap();
    // A store in another directory, which does not exist yet.
    place.write("repo/config.toml", b"[store]\npath = \"elsewhere\"\n");
    let found = content(0);
    assert_eq!(found["status"], "warning", "{found}");
    assert!(found["message"].as_str().unwrap().contains("a gateway that starts creates one"), "{found}");
    assert!(!place.repo().join("elsewhere").exists());
}

#[test]
fn doctor_names_each_problem_with_its_remedy() {
    let place = Place::new();
    place.write("file", b"content");
    place.ok(&["add", "file"]);
    place.ok(&["key", "gen", "k"]);
    let keys = place.repo().join("keystore");
    fs::set_permissions(&keys, Permissions::from_mode(0o755)).unwrap();
    let pack = fs::read_dir(place.repo().join("packs")).unwrap().next().unwrap().unwrap().path();
    let later = SystemTime::now() + Duration::from_secs(3_600);
    fs::File::options().append(true).open(pack).unwrap().set_modified(later).unwrap();
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = occupied.local_addr().unwrap().port().to_string();
    let mut command = doctor(&place);
    command.env("IPFRS_SERVER_PORT", &port).env("IPFRS_SERVER_MAX_CONNECTIONS", "1000000");
    command.env("IPFRS_GRPC_HOST", "0.0.0.0").env("IPFRS_CACHE_MAX_BYTES", "1099511627776");
    command.env("IPFRS_STORE_MAX_BYTES", "1125899906842624");
    let peers = format!("[\"/ip4/127.0.0.1/tcp/{port}\"]");
    command
        .env("IPFRS_RETRIEVAL_ENABLED", "true")
        .env("IPFRS_RETRIEVAL_BITSWAP", format!("{{ enabled = true, listen = {peers} }}"));
    let (code, found) = findings(command);
    assert_eq!(code, Some(1), "{found:?}");
    for (check, status, message, fix) in [
        ("private keys", "warning", "keystore", "chmod -R go-rwx"),
        ("clock", "warning", "behind the newest pack", "set-ntp"),
        ("port", "error", "another process uses 127.0.0.1:", "ss -ltnp"),
        ("peer port", "error", "retrieval.bitswap.listen", "ss -lntup"),
        ("access", "error", "0.0.0.0", "config set auth.enabled true"),
        ("memory", "warning", "4.00 TiB", "config set cache.max_bytes "),
        ("disk", "warning", "store.max_bytes", "config set store.max_bytes "),
    ] {
        let finding = finding(&found, check);
        assert_eq!(finding["status"], status, "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
        assert!(finding["fix"].as_str().unwrap().contains(fix), "{finding}");
    }
    // Each remedy is a command that can be run as it is printed.
    for fix in found.iter().filter_map(|finding| finding["fix"].as_str()) {
        let program = fix.trim_start_matches("sudo ").split(' ').next().unwrap();
        assert!(["chmod", "ipfrs-cli", "ss", "timedatectl"].contains(&program), "{fix}");
        let own = fix.strip_prefix("ipfrs-cli").unwrap_or_default();
        assert!(own.is_empty() || own.starts_with(&format!(" --repo {}", place.repo().display())), "{fix}");
    }
}

#[test]
fn doctor_prints_commands_that_mend_what_it_finds() {
    let place = Place::new();
    place.write("file", b"content");
    place.ok(&["add", "file"]);
    place.write("repo/config.toml", b"[cache]\nmax_bytes = 1099511627776\n[grpc]\nhost = \"0.0.0.0\"\n");
    let (_, found) = findings(doctor(&place));
    for (check, status) in [("memory", "warning"), ("access", "error")] {
        let finding = finding(&found, check);
        assert_eq!(finding["status"], status, "{finding}");
        let fix = finding["fix"].as_str().unwrap().strip_prefix("ipfrs-cli ").unwrap();
        place.ok(&fix.split(' ').collect::<Vec<_>>());
    }
    let (_, found) = findings(doctor(&place));
    assert_eq!(finding(&found, "memory")["status"], "ok", "{found:?}");
    let access = finding(&found, "access");
    assert!(access["message"].as_str().unwrap().contains("without TLS"), "{access}");
    assert!(access["fix"].as_str().unwrap().ends_with("config set grpc.host 127.0.0.1"), "{access}");
}

/// Writes a certificate, whose last day is in `year`, and its key. Returns the setting that names them.
fn certificate(place: &Place, name: &str, year: i32) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
    let signed = parameters.self_signed(&key).unwrap();
    let certificate = place.write(&format!("{name}.pem"), signed.pem().as_bytes());
    let private = place.write(&format!("{name}-key.pem"), key.serialize_pem().as_bytes());
    fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
    format!("{{ certificate = {certificate:?}, key = {private:?} }}")
}

#[test]
fn doctor_checks_tls_and_the_listeners_that_it_needs() {
    let place = Place::new();
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = occupied.local_addr().unwrap().port();
    let socket = place.path("missing/api.sock");
    let settings = |certificates: &str| {
        format!(
            "[server]\nhost = \"127.0.0.1\"\n[grpc]\nhost = \"0.0.0.0\"\n[auth]\nenabled = true\n\
             [api]\nunix_socket = {socket:?}\n[tls]\nenabled = true\nredirect_port = {port}\n\
             certificates = [{certificates}]\n"
        )
    };
    let (good, old) = (certificate(&place, "good", 4000), certificate(&place, "old", 2020));
    place.write("repo/config.toml", settings(&format!("{good}, {old}")).as_bytes());
    let (code, found) = findings(doctor(&place));
    assert_eq!(code, Some(1), "{found:?}");
    assert_eq!(finding(&found, "configuration")["status"], "ok", "{found:?}");
    for (check, status, message, fix) in [
        ("access", "ok", "with TLS and authentication", ""),
        ("redirect port", "error", "another process uses", "ss -ltnp"),
        ("Unix socket", "error", "is no directory", "mkdir -p -m 700 "),
    ] {
        let finding = finding(&found, check);
        assert_eq!(finding["status"], status, "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
        assert!(finding["fix"].as_str().unwrap_or_default().starts_with(fix), "{finding}");
    }
    let of_certificates = |found: &[Value]| -> Vec<(String, String)> {
        let found = found.iter().filter(|finding| finding["check"] == "certificate");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        found.map(|finding| (text(&finding["status"]), text(&finding["message"]))).collect()
    };
    let certificates = of_certificates(&found);
    let [(valid, until), (expired, since)] = &certificates[..] else { panic!("{certificates:?}") };
    assert!(valid == "ok" && until.contains("good.pem is valid until 4000-01-01"), "{until}");
    assert!(expired == "error" && since.contains("old.pem expired at 2020-01-01"), "{since}");
    // A key that others can read, and one that does not belong to its certificate.
    fs::set_permissions(place.path("good-key.pem"), Permissions::from_mode(0o644)).unwrap();
    fs::copy(place.path("good-key.pem"), place.path("old-key.pem")).unwrap();
    let (_, found) = findings(doctor(&place));
    assert_eq!(finding(&found, "configuration")["status"], "error", "{found:?}");
    let certificates = of_certificates(&found);
    assert!(certificates.iter().any(|(status, text)| status == "warning" && text.contains("good-key.pem")));
    assert!(certificates.iter().any(|(status, text)| status == "error" && text.contains("cannot be used")));
}

#[test]
fn doctor_reports_a_wrong_configuration_and_goes_on() {
    let place = Place::new();
    place.write("repo/config.toml", b"[server]\nprot = 1\n");
    let (code, found) = findings(doctor(&place));
    let configuration = finding(&found, "configuration");
    assert_eq!((code, &configuration["status"]), (Some(1), &"error".into()), "{found:?}");
    assert!(configuration["message"].as_str().unwrap().contains("did you mean port?"), "{configuration}");
    assert_eq!(finding(&found, "clock")["status"], "ok");
    let text = place.run(&["doctor"]);
    assert!(text.text().starts_with("error    configuration: "), "{text:?}");
    assert!(text.text().contains("\n         fix: "), "{text:?}");
}

#[test]
fn doctor_finds_keys_that_a_daemon_refuses() {
    let place = Place::new();
    place.ok(&["key", "gen", "k"]);
    place.write("repo/config.toml", b"[auth]\nenabled = true\n");
    let daemon = place.start(&[]);
    place.ok(&["auth", "key", "create", "k", "--scope", "read"]);
    drop(daemon);
    let key = fs::read_dir(place.repo().join("keystore")).unwrap().next().unwrap().unwrap().path();
    let api_keys = place.repo().join("auth/keys.json");
    for (path, check) in [(&key, "private keys"), (&api_keys, "private keys"), (&api_keys, "configuration")] {
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        let (_, found) = findings(doctor(&place));
        assert_ne!(finding(&found, check)["status"], "ok", "{found:?}");
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(finding(&findings(doctor(&place)).1, "private keys")["status"], "ok");
    fs::write(&api_keys, "{").unwrap();
    let (_, found) = findings(doctor(&place));
    assert!(finding(&found, "configuration")["message"].as_str().unwrap().contains("keys.json"), "{found:?}");
}

#[test]
fn doctor_finds_secrets_in_a_configuration_that_others_can_read() {
    let place = Place::new();
    for (text, mode, status) in [
        (
            "[auth]\nenabled = true\nrpc.me = { secret = \"bearer:0123456789abcdef\", paths = [\"/api/v0/id\"] }\n",
            0o644,
            "warning",
        ),
        ("[retrieval]\ngateways = [\"http://user:password@127.0.0.1\"]\n", 0o644, "warning"),
        ("[dns]\nresolvers = [\"https://127.0.0.1/?token=secret\"]\n", 0o644, "warning"),
        ("[dns]\nresolvers = [\"https://127.0.0.1/?token=secret\"]\n", 0o600, "ok"),
        ("[dns]\nresolvers = [\"https://127.0.0.1/q\"]\n", 0o644, "ok"),
    ] {
        let config = place.write("repo/config.toml", text.as_bytes());
        fs::set_permissions(&config, Permissions::from_mode(mode)).unwrap();
        let (_, found) = findings(doctor(&place));
        assert_eq!(finding(&found, "private keys")["status"], status, "{text}: {found:?}");
    }
}

#[test]
fn doctor_finds_token_keys_that_other_users_can_use() {
    let place = Place::new();
    let keys = place.path("keys.json");
    let config = format!(
        "[auth]\nenabled = true\njwt_keys = \"{}\"\njwt_issuer = \"i\"\njwt_audience = \"a\"\n",
        keys.display()
    );
    place.write("repo/config.toml", config.as_bytes());
    let secret = format!(r#"{{"keys":[{{"kty":"oct","kid":"s","k":"{}"}}]}}"#, "A".repeat(43));
    let public = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"p","x":"{}"}}]}}"#, "A".repeat(43));
    for (set, mode, fix) in
        [(&secret, 0o644, "chmod o-rwx "), (&secret, 0o640, ""), (&public, 0o644, ""), (&public, 0o664, "chmod go-w ")]
    {
        fs::write(&keys, set).unwrap();
        fs::set_permissions(&keys, Permissions::from_mode(mode)).unwrap();
        let (_, found) = findings(doctor(&place));
        assert_eq!(finding(&found, "configuration")["status"], "ok", "{found:?}");
        let finding = finding(&found, "token keys");
        assert_eq!(finding["status"], if fix.is_empty() { "ok" } else { "warning" }, "{found:?}");
        assert!(finding["fix"].as_str().unwrap_or_default().starts_with(fix), "{found:?}");
    }
}

#[test]
fn doctor_finds_private_content_that_other_users_can_read() {
    let place = Place::new();
    place.write("a", b"content");
    place.ok(&["add", "a"]);
    place.write("repo/config.toml", b"[auth]\nenabled = true\nprivate_gateway = true\n");
    fs::set_permissions(place.repo().join("packs"), Permissions::from_mode(0o755)).unwrap();
    for (mode, status) in [(0o755, "warning"), (0o750, "ok")] {
        fs::set_permissions(place.repo(), Permissions::from_mode(mode)).unwrap();
        let (_, found) = findings(doctor(&place));
        let finding = finding(&found, "private content");
        assert_eq!(finding["status"], status, "{found:?}");
        let fix = finding["fix"].as_str().unwrap_or_default();
        assert_eq!(fix.starts_with("chmod o-rwx ") && fix.ends_with("/repo"), status == "warning", "{fix}");
    }
}

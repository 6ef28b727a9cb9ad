//! Settings and queries in the files for packages and containers.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, Place, skipped};

fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn packaged_settings_are_valid() {
    let place = Place::new();
    // The configuration of the Debian package, and that of the pod.
    let manifest = file("packaging/kubernetes/ipfrs.yaml");
    let of_pod = manifest.split("  config.toml: |\n").nth(1).unwrap().split("---").next().unwrap();
    let of_pod: String = of_pod.lines().map(|line| format!("{}\n", line.trim_start())).collect();
    for (name, text) in [("package.toml", file("packaging/config.toml")), ("pod.toml", of_pod)] {
        place.write(name, text.as_bytes());
        assert!(place.ok(&["--config", name, "config", "check"]).contains("is valid"), "{text}");
    }
    let shown = place.ok(&["--config", "pod.toml", "config", "show"]);
    assert!(shown.contains("enabled = true") && shown.contains("0.0.0.0"), "{shown}");
    // The image: its variables are keys, and with them the daemon may listen on any address.
    let image = file("Dockerfile");
    let words = image.split_whitespace().filter_map(|word| word.split_once('='));
    let variables: Vec<_> = words.filter(|(name, _)| name.starts_with("IPFRS_") && *name != "IPFRS_PATH").collect();
    assert!(variables.contains(&("IPFRS_SERVER_HOST", "0.0.0.0")), "{variables:?}");
    let mut daemon = place.command(&["gateway", "start", "--port", "0"]);
    daemon.envs(variables);
    let daemon = Daemon::start(daemon);
    // As the health check does.
    assert!(image.contains(r#"CMD ["ipfrs-cli", "gateway", "status", "--ready"]"#));
    place.ok(&["gateway", "status", "--ready"]);
    // Prometheus gets a key as compose.yaml says, and is refused without one.
    let token = place.ok(&["auth", "key", "create", "prometheus", "--scope", "read"]);
    let port = daemon.url().rsplit(':').next().unwrap().to_owned();
    let answer = |authorization: &str| {
        use std::io::{Read, Write};
        let mut connection = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let head = format!("GET /metrics HTTP/1.1\r\nHost: ipfrs:8080\r\nConnection: close\r\n{authorization}\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        response
    };
    assert!(answer("").starts_with("HTTP/1.1 401"), "{}", answer(""));
    let metrics = answer(&format!("Authorization: Bearer {token}\r\n"));
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("ipfrs_http_requests_total"), "{metrics}");
    daemon.kill();
}

#[test]
fn systemd_accepts_the_units() {
    const INSTALLED: &str = "/usr/bin/ipfrs-cli";
    let place = Place::new();
    let units = ["ipfrs.service", "ipfrs.socket"];
    for name in units {
        let unit = file(&format!("packaging/{name}"));
        assert!(name != "ipfrs.service" || unit.contains(INSTALLED), "{unit}");
        // The program must exist.
        place.write(name, unit.replace(INSTALLED, env!("CARGO_BIN_EXE_ipfrs-cli")).as_bytes());
    }
    let paths = units.map(|name| place.path(name));
    let output = match Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return skipped("systemd-analyze is not installed, so the units of systemd are not verified");
        }
        Err(error) => panic!("systemd-analyze: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    // Unknown keys are only reported. Other units of this machine may have faults.
    let is_about_ours = |line: &&str| paths.iter().any(|path| line.contains(&*path.to_string_lossy()));
    let faults: Vec<_> = text.lines().filter(is_about_ours).collect();
    assert!(output.status.success() && faults.is_empty(), "{}: {text}", output.status);
}

/// Returns the arguments of a command line of the service, with the paths of a test.
fn arguments_of_service(place: &Place, key: &str) -> Vec<String> {
    let unit = file("packaging/ipfrs.service");
    let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("/usr/bin/ipfrs-cli"), "{line}");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    words
        .map(|word| match word {
            "/etc/ipfrs/config.toml" => path("package.toml"),
            "/var/lib/ipfrs" => path("state"),
            other => other.to_owned(),
        })
        .collect()
}

#[test]
fn service_starts_with_its_command_lines() {
    let place = Place::new();
    place.write("package.toml", file("packaging/config.toml").as_bytes());
    // As StateDirectory= does.
    fs::create_dir(place.path("state")).unwrap();
    let command = |key: &str| {
        let arguments = arguments_of_service(&place, key);
        let mut command = place.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.env_remove("IPFRS_PATH").env("IPFRS_SERVER_PORT", "0");
        command
    };
    let check = command("ExecStartPre=").output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let daemon = Daemon::start(command("ExecStart="));
    assert!(place.path("state/api").exists(), "the daemon uses another repo");
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn key_of_prometheus_is_in_no_commit_and_no_image() {
    assert!(file("packaging/docker/compose.yaml").contains("file: ./metrics-token"));
    for (ignored, path) in
        [(".gitignore", "/packaging/docker/metrics-token"), (".dockerignore", "packaging/docker/metrics-token")]
    {
        assert!(file(ignored).lines().any(|line| line == path), "{ignored}");
    }
}

#[test]
fn shells_accept_the_scripts_of_the_package() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/debian");
    let scripts = ["postinst", "postrm", "prerm"].map(|name| directory.join(name));
    // Debian's `sh` is dash.
    for shell in ["sh", "dash"] {
        for script in &scripts {
            let output = match Command::new(shell).arg("-n").arg(script).output() {
                Ok(output) => output,
                Err(error) if error.kind() == ErrorKind::NotFound && shell != "sh" => {
                    return skipped("dash is not installed, so it does not read the scripts of the package");
                }
                Err(error) => panic!("{shell}: {error}"),
            };
            let faults = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && faults.is_empty(), "{shell} {}: {faults}", script.display());
        }
    }
}

#[test]
fn dashboard_and_alerts_use_only_documented_metrics() {
    let documented: BTreeSet<String> = file("docs/METRICS.md")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned()))
        .collect();
    assert!(documented.contains("ipfrs_http_requests_total"), "{documented:?}");
    let dashboard: Value = serde_json::from_str(&file("examples/grafana-dashboard.json")).unwrap();
    let mut queries = Vec::new();
    collect_queries(&dashboard, &mut queries);
    assert!(queries.len() > 10, "{queries:?}");
    let alerts = file("examples/alerts.yml");
    let lines = alerts.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    queries.extend(lines.map(str::to_owned));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for query in queries {
        for name in query.split(|c| !is_name(c)).filter(|word| word.starts_with("ipfrs_")) {
            let family = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end));
            let is_known = documented.contains(name) || family.is_some_and(|family| documented.contains(family));
            assert!(is_known, "{name} in {query}");
        }
    }
}

#[test]
fn each_alert_has_a_test_where_it_fires() {
    let (alerts, tests) = (file("examples/alerts.yml"), file("examples/alerts_test.yml"));
    let names: Vec<_> = alerts.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    assert!(names.contains(&"IpfrsCertificateExpires") && names.len() > 10, "{names:?}");
    for name in names {
        let firing =
            [format!("'{{alertname=\"{name}\"}}', value: 1"), format!("alertname: {name}\n        exp_alerts:\n")];
        assert!(firing.iter().any(|text| tests.contains(text)), "{name}");
        assert!(tests.contains(&format!("alertname: {name}, exp_alerts: []")), "{name}");
    }
}

fn collect_queries(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" || name == "query" => queries.push(text.clone()),
                    _ => collect_queries(value, queries),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect_queries(value, queries)),
        _ => {}
    }
}

//! Configuration, usage errors and exit codes.

use std::fs::{self, File};
use std::process::Stdio;

use crate::harness::{Daemon, Place, Ran, noise};

#[test]
fn config_init_writes_valid_file_and_never_overwrites() {
    let place = Place::new();
    assert!(place.ok(&["config", "check"]).contains("no configuration file"));
    let file = place.repo().join("config.toml");
    assert_eq!(place.ok(&["config", "init"]), format!("wrote {}", file.display()));
    assert_eq!(place.ok(&["config", "check"]), format!("{} is valid", file.display()));
    fs::write(&file, "[server]\nport = 1\n").unwrap();
    assert!(place.fails(&["config", "init"]).contains("--force"));
    assert!(place.ok(&["config", "show"]).contains(&format!("port = 1  # {}, line 2", file.display())));
    place.ok(&["config", "init", "--force"]);
    assert!(place.ok(&["config", "show", "--json"]).contains(r#""port":8080"#));
}

#[test]
fn keys_are_shown_set_and_unset() {
    let place = Place::new();
    let file = place.repo().join("config.toml");
    assert_eq!(place.ok(&["config", "get", "server.port"]), "8080");
    assert!(place.ok(&["config", "set", "server.port", "8081"]).contains(file.to_str().unwrap()));
    assert_eq!(place.ok(&["config", "get", "server.port"]), "8081");
    assert!(place.ok(&["--json", "config", "get", "server"]).contains("\"port\":8081"));
    place.ok(&["config", "unset", "server.port"]);
    assert_eq!(place.ok(&["config", "get", "server.port"]), "8080");
    let list = place.write("a.deny", b"/ipns/example.com\n");
    for (key, value, needed) in [
        ("server.port", "8082".to_owned(), ": restart a running"),
        ("log.level", "debug".to_owned(), ": send SIGHUP"),
        ("gateway.denylists", format!("[{list:?}]"), "or restart one that was started without denylists"),
    ] {
        let said = place.ok(&["config", "set", key, &value]);
        assert!(said.contains(needed), "{key}: {said}");
        place.ok(&["config", "unset", key]);
    }
    assert!(place.fails(&["config", "get", "store.path"]).contains("store.path is not set"));
    assert!(place.fails(&["config", "get", "server.workers"]).contains("Default: the number of cores"));
    assert!(place.fails(&["config", "set", "server.port", "1", "--api", "http://127.0.0.1:9"]).contains("omit --api"));
    for (text, problem) in [
        ("[tls]\nenabled = true\ncertificates = [{ certificate = \"/no/a.pem\", key = \"/no/b.pem\" }]", "/no/a.pem"),
        ("[server]\nport = 18923\n[grpc]\nport = 18923\n[api]\nport = 0", "[server] listens there too"),
        (
            "[server]\nhost = \"localhost\"\nport = 18923\n[grpc]\nport = 18923\n[api]\nport = 0",
            "grpc.port = 18923: [server] listens there too (server.port = 18923, grpc.host = \"127.0.0.1\", server.host = \
             \"localhost\")",
        ),
        ("[store]\nfilestore_root = \"nowhere\"", "store.filestore_root"),
        ("[cache]\nmax_bytes = 0x1_0000_0000_0000_0000", "line 2: cache.max_bytes = 0x10000000000000000: "),
        (
            "[retrieval]\nbitswap = { a = [1, 9223372036854775808] }",
            "line 2: retrieval.bitswap.a = 9223372036854775808: ",
        ),
        (
            "[auth]\nenabled = true\njwt_keys = \"/no/keys\"\njwt_issuer = \"https://a.example\"\njwt_audience = \"a\"",
            "/no/keys",
        ),
        (
            "[auth]\nenabled = true\njwt_keys = \"/dev/null\"\njwt_issuer = \"https://a.example\"\njwt_audience = \"a\"",
            "no JSON Web Key Set",
        ),
    ] {
        let file = place.write("wrong.toml", text.as_bytes());
        let mut command = place.command(&["config", "check", "--config", file.to_str().unwrap()]);
        let checked = command.env_remove("IPFRS_GRPC_PORT").env_remove("IPFRS_API_PORT").output().unwrap();
        let stderr = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.code() == Some(1) && stderr.contains(problem), "{text}: {stderr}");
    }
    // Texts that look like numbers are shown as they are used.
    for text in ["1.10", "1_000", "12e4"] {
        let shown = place.command(&["config", "get", "store.path"]).env("IPFRS_STORE_PATH", text).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), text);
        let shown = place.command(&["config", "show"]).env("IPFRS_STORE_PATH", text).output().unwrap();
        assert!(String::from_utf8_lossy(&shown.stdout).contains(&format!("\npath = \"{text}\"  # environment")));
    }
    let misled = place.command(&["config", "show"]).env("IPFRS_REPO", "elsewhere").output().unwrap();
    assert!(String::from_utf8_lossy(&misled.stderr).contains("use IPFRS_PATH"));
    assert!(place.command(&["config", "show"]).env("IPFRS_INGEST_PASSWORD", "x").output().unwrap().status.success());
    // Another program may use the variable.
    let with_other = |arguments: &[&str]| {
        let output = place.command(arguments).env("IPFRS_FLEET_REGION", "eu").output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(with_other(&["config", "check"]).contains("like the environment variable IPFRS_FLEET_REGION"));
    assert!(with_other(&["--json", "config", "check"]).contains("\"ignored_variables\":[\"IPFRS_FLEET_REGION\"]"));
    let mut command = place.command(&["gateway", "start", "--port", "0"]);
    command.env("IPFRS_FLEET_REGION", "eu");
    assert!(Daemon::start(command).wait_for_log("ignored").contains("IPFRS_FLEET_REGION"));
    assert!(place.fails(&["config", "get", "store.pth"]).contains("did you mean path"));
    assert!(place.fails(&["config", "set", "server.port", "-1"]).contains("65535"));
    // `config set` refuses a value that `config check` refuses.
    assert!(place.fails(&["config", "set", "gateway.denylists", "[\"/no/list\"]"]).contains("/no/list"));
    place.ok(&["config", "check"]);
    // The file that is named must exist.
    assert!(place.fails(&["--config", "missing.toml", "config", "set", "server.port", "1"]).contains("missing.toml"));
    let message = place.fails(&["--config", "missing.toml", "pin", "ls"]);
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
}

#[test]
fn errors_of_the_configuration_hide_passwords_in_urls() {
    let place = Place::new();
    for (key, value) in [
        ("retrieval.gateways", "[\"http://user:secret@127.0.0.1/?a\"]"),
        ("retrieval.gateways", "\"http://user:secret@127.0.0.1/\""),
        ("dns.resolvers", "[\"ftp://user:secret@127.0.0.1\"]"),
        ("log.otlp_endpoint", "\"ftp://user:secret@127.0.0.1\""),
    ] {
        let (section, name) = key.split_once('.').unwrap();
        let file = place.write("wrong.toml", format!("[{section}]\n{name} = {value}\n").as_bytes());
        for shown in [
            place.fails(&["config", "check", "--config", file.to_str().unwrap()]),
            place.fails(&["config", "set", key, value]),
        ] {
            assert!(shown.contains("://***@127.0.0.1") && !shown.contains("secret"), "{shown}");
        }
    }
}

#[test]
fn running_daemon_is_used_and_stopped_although_configuration_has_become_invalid() {
    let place = Place::new();
    let socket = place.path("api.sock");
    let content = place.write("content", b"content");
    let valid = format!("[api]\nunix_socket = \"{}\"\n", socket.display());
    let file = place.write("repo/config.toml", valid.as_bytes());
    let daemon = place.start(&[]);
    fs::write(&file, format!("{valid}prot = 1\n[nosuch]\n")).unwrap();
    let cid = place.ok(&["add", "-Q", content.to_str().unwrap()]);
    let port = daemon.url().rsplit_once(':').unwrap().1;
    for api in [format!("/ip4/127.0.0.1/tcp/{port}"), format!("/unix{}", socket.display()), daemon.url().to_owned()] {
        assert_eq!(place.ok(&["cat", &cid, "--api", &api]), "content", "{api}");
    }
    assert!(place.fails(&["cat", &cid, "--api", "/ip4/127.0.0.1"]).contains("not a multiaddr"));
    assert!(place.ok(&["gateway", "status"]).contains(daemon.url()));
    // Without the daemon, the mistakes are errors. Commands that change the file accept those that they mend.
    place.ok(&["gateway", "stop"]);
    assert!(place.fails(&["cat", &cid]).contains("prot"));
    assert!(place.fails(&["config", "set", "server.port", "0"]).contains("prot"));
    assert!(place.fails(&["config", "unset", "api.prot"]).contains("nosuch"));
    fs::write(&file, format!("{valid}prot = 1\n")).unwrap();
    place.ok(&["config", "unset", "api.prot"]);
    assert_eq!(place.ok(&["cat", &cid]), "content");
    assert!(place.fails(&["config", "unset", "api.prot"]).contains("unknown key"));
}

#[test]
fn config_check_reports_errors_in_file() {
    let place = Place::new();
    let file = place.write("my.toml", b"[server]\nhost = \"127.0.0.1\"\nprot = 8081\n");
    let file = file.to_str().unwrap();
    let message = place.fails(&["--config", file, "config", "check"]);
    assert_eq!(message, format!("Error: {file}, line 3: unknown key server.prot: did you mean port?\n"));
    assert_eq!(place.fails(&["gateway", "start", "--config", file]), message);
    assert_eq!(place.fails(&["add", "--config", file]), message);
    let list = place.write("list.toml", b"[gateway]\ntrusted_proxies = \"::1\"\n");
    let message = place.fails(&["--config", list.to_str().unwrap(), "config", "check"]);
    assert!(message.ends_with("invalid type: string \"::1\", expected a list in brackets\n"), "{message}");
    let open = place.write("open.toml", b"[server]\nhost = \"0.0.0.0\"\n");
    let message = place.fails(&["--config", open.to_str().unwrap(), "config", "check"]);
    assert!(message.contains("refusing to listen on 0.0.0.0 for [server]: "), "{message}");
    let missing = place.fails(&["config", "show", "--config", "missing.toml"]);
    assert!(missing.contains("cannot read the configuration missing.toml: No such file"), "{missing}");
}

#[test]
fn config_check_names_invalid_denylists() {
    let place = Place::new();
    let file = place.write("my.toml", b"[gateway]\ndenylists = [\"bad.deny\", \"lists\"]\n");
    let check = ["--config", file.to_str().unwrap(), "config", "check"];
    let missing = place.fails(&check);
    assert!(missing.contains("bad.deny") && missing.contains("gateway.denylists"), "{missing}");
    fs::create_dir_all(place.repo().join("lists")).unwrap();
    fs::write(place.repo().join("bad.deny"), "version: 7\n---\n").unwrap();
    let broken = place.fails(&check);
    assert!(broken.contains("bad.deny") && broken.contains("version"), "{broken}");
    fs::write(place.repo().join("bad.deny"), "/ipns/example.com\n").unwrap();
    assert!(place.ok(&check).ends_with("is valid"));
}

#[test]
fn invalid_argument_values_are_usage_errors() {
    let place = Place::new();
    place.write("file", b"content");
    for (arguments, flag, accepted) in [
        (&["gateway", "start", "--workers", "0"][..], "--workers <THREADS>", "accepted values are 1 to 1024"),
        (&["gateway", "start", "--workers", "many"], "--workers <THREADS>", "invalid digit"),
        (&["add", "--chunker", "size-0", "file"], "--chunker <CHUNKER>", "size"),
        (&["add", "--chunker", "magic", "file"], "--chunker <CHUNKER>", "rabin"),
        (&["add", "--profile", "v3", "file"], "--profile <PROFILE>", "unixfs-v1-2025"),
        (&["add", "--hash", "md5", "file"], "--hash <FUNCTION>", "sha2-256"),
        (&["block", "put", "--mhtype", "md5", "file"], "--mhtype <FUNCTION>", "sha2-256"),
        (&["block", "put", "--cid-codec", "nope", "file"], "--cid-codec <CODEC>", "unknown multicodec: \"nope\""),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(flag) && ran.stderr.contains(accepted), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!place.repo().exists());
}

#[test]
fn misspelt_variable_and_file_as_repo_are_named() {
    let place = Place::new();
    let mut command = place.command(&["config", "check"]);
    let ran: Ran = command.env("IPFRS_SEVER_PORT", "1").output().unwrap().into();
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("IPFRS_SEVER_PORT: there is no such setting: did you mean IPFRS_SERVER_PORT?"),
        "{ran:?}"
    );
    place.write("file", b"content");
    for arguments in [&["ls", "bafkqaaa"][..], &["add", "file"], &["gateway", "start"], &["config", "init"]] {
        let message = place.fails(&[&["--repo", "file"], arguments].concat());
        assert!(message.contains("file is a file: --repo and IPFRS_PATH name the directory"), "{message}");
    }
}

#[test]
fn usage_errors_exit_with_2() {
    let place = Place::new();
    for arguments in [
        &["no-such-command"][..],
        &["cat"],
        &["gateway", "start", "--port", "70000"],
        &["add", "--cid-version", "2"],
        &["add", "--raw-leaves=maybe"],
        &["completions", "tcsh"],
        &[],
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains("--help"), "{arguments:?}: {ran:?}");
    }
    assert!(!place.repo().exists());
}

#[test]
fn exit_code_is_the_same_without_a_standard_error() {
    let place = Place::new();
    for (arguments, code) in [(&["cat", "bogus"][..], 1), (&["cat"], 2)] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = place.command(arguments).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn global_flags_work_before_and_after_command() {
    let place = Place::new();
    let (first, second) = (place.path("first"), place.path("second"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    assert!(place.ok(&["--repo", first, "config", "init"]).contains(first));
    assert!(place.ok(&["config", "init", "--repo", second, "--json"]).contains(second));
    assert!(place.ok(&["--json", "version"]).starts_with(r#"{"version":""#));
    assert!(!place.repo().exists());
    let message = place.fails(&["ls", "x", "--api", "ftp://127.0.0.1:1"]);
    assert!(message.contains("http://HOST:PORT"), "{message}");
    let message = place.fails(&["--api", "http://127.0.0.1:1", "ls", "x"]);
    assert!(message.contains("no daemon responds at http://127.0.0.1:1"), "{message}");
}

#[test]
fn completions_include_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.ok(&["completions", shell]);
        // Options of commands with one, two and three names.
        for option in ["only-hash", "without-keys", "expires-in"] {
            assert!(script.contains(option), "{shell}: {option}");
        }
    }
    let fish = place.ok(&["completions", "fish"]);
    let of_key = "-n \"__fish_ipfrs_cli_using_subcommand auth; and __fish_seen_subcommand_from key; and \
                  __fish_seen_subcommand_from create\" -l expires-in -d 'Time after which";
    assert!(fish.contains(of_key), "{fish}");
    assert!(fish.contains("-s s -l scope -d "), "{fish}");
}

#[test]
fn denylist_check_reports_rules_and_invalid_lines() {
    let place = Place::new();
    let cid = "bafybeihvvulpp4evxj7x7armbqcyg6uezzuig6jp3lktpbovlqfkuqeuoq";
    place.write("good.deny", format!("name: Mine\n---\n/ipfs/{cid}\n!/ipns/example.org\n").as_bytes());
    place.write("bad.deny", format!("/ipfs/{cid}\n/ipfs/nonsense\n").as_bytes());
    place.write("other.deny", b"version: 9\n---\n");
    assert_eq!(place.ok(&["denylist", "check", "good.deny"]), "good.deny (Mine): 2 rules, 0 malformed lines");
    let ran = place.run(&["denylist", "check", "good.deny", "bad.deny"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.text().contains("bad.deny, line 2: invalid CID \"nonsense\""), "{ran:?}");
    assert!(ran.text().contains("bad.deny: 1 rules, 1 malformed lines"), "{ran:?}");
    assert!(place.fails(&["denylist", "check", "other.deny"]).contains("version 9 of the format is not supported"));
    let json = place.ok(&["denylist", "check", "--json", "good.deny"]);
    assert!(json.contains(r#""rules":2"#) && json.contains(r#""malformed":0"#), "{json}");
    assert!(!place.repo().exists());
}

#[test]
fn configured_layout_is_that_of_an_add_without_the_option() {
    let place = Place::new();
    place.write("repo/config.toml", b"[import]\nlayout = \"trickle\"\nchunker = \"size-256\"\n");
    place.write("long", &noise(60_000));
    let add = |option: &[&str]| place.ok(&[&["add", "-Q", "--only-hash", "long"][..], option].concat());
    let configured = add(&[]);
    assert_eq!(configured, add(&["--trickle"]));
    assert_ne!(configured, add(&["--trickle=false"]));
    for setting in ["hash = \"identity\"", "chunker = \"size-255\"", "sharding_threshold_bytes = 0"] {
        place.write("repo/config.toml", format!("[import]\n{setting}\n").as_bytes());
        assert!(place.fails(&["config", "show"]).contains("import"), "{setting}");
    }
}

#[test]
fn log_level_is_a_level_or_names_modules() {
    let place = Place::new();
    for level in ["info", "off", "warn,ipfrs_http=debug", "hyper=trace", "debug,h2[x]=off"] {
        place.ok(&["config", "set", "log.level", level]);
    }
    for level in ["inof", "info,hyper", "warn=", "hyper=", "warn=debug"] {
        let refused = place.fails(&["config", "set", "log.level", level]);
        assert!(refused.contains("is neither a level nor a module"), "{level}: {refused}");
    }
    assert_eq!(place.ok(&["config", "get", "log.level"]), "debug,h2[x]=off");
}

#[test]
fn a_port_may_be_used_for_both_families_and_commands_do_not_listen() {
    let place = Place::new();
    // Below the ports that the system gives to others: it is free again until the daemon listens there.
    let from = 20_000 + (std::process::id() % 10_000) as u16;
    let mut ports =
        (from..32_000).filter_map(|port| Some((std::net::TcpListener::bind(("127.0.0.1", port)).ok()?, port)));
    let (listener, port) = ports.next().unwrap();
    let addresses = format!("[\"/ip4/0.0.0.0/tcp/{port}\", \"/ip6/::/tcp/{port}\"]");
    place.ok(&["config", "set", "retrieval.bitswap.listen", &addresses]);
    place.ok(&["config", "set", "retrieval.bitswap.enabled", "true"]);
    // Another program has the port.
    place.ok(&["key", "list"]);
    assert!(place.fails(&["gateway", "start", "--port", "0"]).contains("cannot listen on"));
    drop(listener);
    drop(place.start(&[]));
}

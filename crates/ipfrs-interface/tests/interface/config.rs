//! Tests of the documented configuration file, the sources, and error messages.

use std::fs;
use std::path::Path;

use ipfrs_interface::{Config, Flag, Settings, Sources};

fn file(dir: &Path, text: &str) -> Sources {
    let path = dir.join("config.toml");
    fs::write(&path, text).unwrap();
    Sources { file: Some(path), ..Sources::default() }
}

/// Returns the error message for `text` as a file, without the path of the directory.
fn complaint(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let error = Config::load(&file(dir.path(), text)).unwrap_err();
    assert_eq!(error.kind(), ipfrs_core::ErrorKind::InvalidInput);
    error.message().replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn documented_file_is_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Config::load(&file(dir.path(), Config::DEFAULT_TEXT)).unwrap(), Config::default());
}

#[test]
fn documented_file_names_every_key_once() {
    // The effective configuration contains every key, set or not, in the order of the sections.
    let in_force = Settings::read(&Sources::default()).unwrap().to_toml().unwrap();
    let mut section = String::new();
    let mut expected = Vec::new();
    for line in in_force.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix('[') {
            Some(name) => section = name.trim_end_matches(']').to_owned(),
            None => expected.push(format!("{section}.{}", line.trim_start_matches("# ").split(' ').next().unwrap())),
        }
    }
    let mut named = Vec::new();
    for line in Config::DEFAULT_TEXT.lines() {
        let line = line.trim_start_matches("# ");
        // A comment may contain a list as an example.
        let name = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        match (name.filter(|name| !name.contains('"')), line.split_once(" = ")) {
            // A table within a section is the value of a key.
            (Some(name), _) if name.contains('.') => {
                section = name.to_owned();
                named.push(section.clone());
            }
            (Some(name), _) => section = name.to_owned(),
            (None, Some((key, _))) if !key.contains(' ') && !section.contains('.') => {
                named.push(format!("{section}.{key}"))
            }
            _ => {}
        }
    }
    expected.sort();
    named.sort();
    assert_eq!(named, expected);
}

#[test]
fn snippets_of_the_performance_guide_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::load(&file(
        dir.path(),
        r#"
        [server]
        host = "0.0.0.0"
        port = 8080
        workers = 16  # Set to number of CPU cores

        [concurrency]
        max_concurrent_tasks = 1000  # High parallelism

        [cache]
        enabled = true
        max_entries = 1000
        max_age_seconds = 31536000  # 1 year for immutable content

        [streaming]
        chunk_size = 65536
        flow_control = "aggressive"

        [batch]
        max_batch_size = 1000
        "#,
    ))
    .unwrap();
    assert_eq!((config.server.host.as_str(), config.server.port, config.server.workers), ("0.0.0.0", 8080, Some(16)));
    assert_eq!(config.concurrency.max_concurrent_tasks, 1000);
    assert_eq!((config.cache.max_entries, config.cache.max_age_seconds), (1000, 31_536_000));
    assert_eq!((config.streaming.chunk_size, config.batch.max_batch_size), (65_536, 1000));
}

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut sources = file(dir.path(), "[server]\nport = 1\nhost = \"::1\"\n[cache]\nmax_entries = 7\n");
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    sources.environment = vec![
        variable("IPFRS_SERVER_PORT", "2"),
        variable("IPFRS_CACHE_MAX_ENTRIES", "8"),
        variable("IPFRS_CACHE_ENABLED", "false"),
        variable("IPFRS_IMPORT_PROFILE", "unixfs-v1-2025"),
        // A directory whose name is a number is still a directory.
        variable("IPFRS_STORE_PATH", "2026"),
        variable("IPFRS_PATH", "/somewhere"),
        variable("IPFRS_FLEET_REGION", "eu"),
    ];
    sources.flags = vec![Flag { flag: "--port", key: ("server", "port"), value: "3".to_owned() }];
    let settings = Settings::read(&sources).unwrap();
    let config = settings.config().unwrap();
    assert_eq!((config.server.port, config.server.host.as_str()), (3, "::1"));
    assert_eq!((config.cache.max_entries, config.cache.enabled), (8, false));
    assert_eq!(config.store.path.as_deref(), Some(Path::new("2026")));
    assert_eq!(config.import.profile.to_string(), "unixfs-v1-2025");
    let shown = settings.to_toml().unwrap();
    assert!(shown.contains("port = 3  # --port\n"), "{shown}");
    assert!(shown.contains("max_entries = 8  # environment variable IPFRS_CACHE_MAX_ENTRIES\n"), "{shown}");
    assert!(shown.contains("config.toml, line 3\n"), "{shown}");
    assert!(shown.contains("# workers is not set\n"), "{shown}");
}

#[test]
fn unknown_keys_are_errors_with_line_and_suggestion() {
    let cases = [
        ("[server]\n\nprot = 1\n", "config.toml, line 3: unknown key server.prot: did you mean port?"),
        ("\n[cahce]\n", "config.toml, line 2: unknown section [cahce]: did you mean [cache]?"),
        (
            "[batch]\nzzz = 1\n",
            "line 2: unknown key batch.zzz: the keys of [batch] are max_batch_size, max_batch_bytes",
        ),
        ("[cluster]\n", "line 1: unknown section [cluster]: this version of ipfrs does not use it"),
        ("[log]\n[server]\nport = \"x\n", "config.toml, line 3: "),
        ("log = 1\n", "config.toml, line 1: log is a section: write [log], with its keys on the lines below"),
        ("\nmax_batch_size = 1\n", "line 2: max_batch_size is in no section: write it below the line [batch]"),
        ("port = 1\n", "line 1: port is in no section: write it below the line [server] or [public] or "),
    ];
    for (text, expected) in cases {
        let complaint = complaint(text);
        assert!(complaint.contains(expected), "{text:?} gave {complaint:?}");
    }
}

#[test]
fn unknown_variables_of_a_known_section_are_errors() {
    let environment = vec![("IPFRS_SERVER_PROT".to_owned(), "1".to_owned())];
    let error = Config::load(&Sources { environment, ..Sources::default() }).unwrap_err();
    assert_eq!(error.message(), "environment variable IPFRS_SERVER_PROT: unknown key server.prot: did you mean port?");
}

#[test]
fn config_text_overrides_environment_and_errors_name_line() {
    let environment =
        vec![("IPFRS_SERVER_PORT".to_owned(), "1".to_owned()), ("IPFRS_GRPC_PORT".to_owned(), "2".to_owned())];
    let load = |text: &str| {
        let text = Some(text.to_owned());
        Config::load(&Sources { environment: environment.clone(), text, ..Sources::default() })
    };
    let config = load("[server]\nport = 3\n").unwrap();
    assert_eq!((config.server.port, config.grpc.port), (3, Some(2)));
    assert_eq!(
        load("[server]\nprot = 3\n").unwrap_err().message(),
        "config, line 2: unknown key server.prot: did you mean port?"
    );
}

#[test]
fn misspelt_variables_are_errors_and_foreign_ones_ignored() {
    let load = |name: &str, value: &str| {
        let environment = vec![(name.to_owned(), value.to_owned())];
        Config::load(&Sources { environment, ..Sources::default() })
    };
    for (name, near) in [
        ("IPFRS_SEVER_PORT", "IPFRS_SERVER_PORT"),
        ("IPFRS_SERVERPORT", "IPFRS_SERVER_PORT"),
        ("IPFRS_COMPRESION_LEVEL", "IPFRS_COMPRESSION_LEVEL"),
        ("IPFRS_PAHT", "IPFRS_PATH"),
    ] {
        let message = load(name, "1").unwrap_err().message().to_owned();
        assert_eq!(message, format!("environment variable {name}: there is no such setting: did you mean {near}?"));
    }
    for (name, value) in [
        ("IPFRS_PATH", "/repo"),
        ("IPFRS_FLEET_REGION", "eu"),
        ("IPFRS_SERVICE_HOST", "10.0.0.1"),
        ("IPFRS_SERVICE_PORT_HTTP", "8080"),
        ("IPFRS_PORT", "tcp://10.0.0.1:8080"),
        ("IPFRS_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("IPFRS_STORE_SERVICE_HOST", "10.0.0.1"),
        ("IPFRS_STORE_PORT", "tcp://10.0.0.1:8080"),
        ("IPFRS_GRPC_PORT", "tcp://10.0.0.1:50051"),
    ] {
        let config = load(name, value).unwrap();
        assert_eq!(config, Config::default(), "{name}");
        // Variables that Kubernetes sets for services are no mistakes.
        let is_noted = name == "IPFRS_FLEET_REGION";
        assert_eq!(config.ignored_variables(), if is_noted { vec![name.to_owned()] } else { Vec::new() });
    }
}

#[test]
fn invalid_values_are_errors_with_line_and_range() {
    let cases = [
        ("[server]\nport = 70000\n", "config.toml, line 2: server.port = 70000: ", "an integer from 0 to 65535"),
        ("[server]\nport = \"http\"\n", "config.toml, line 2: server.port = \"http\": ", "an integer from 0 to 65535"),
        (
            "[gateway.hosts.\"a.b\"]\nsubdomains = 18446744073709551615\n",
            "config.toml, line 2: gateway.hosts.\"a.b\".subdomains = 18446744073709551615: ",
            "must fit into 64 bits",
        ),
        ("[cache]\nenabled = 1\n", "config.toml, line 2: cache.enabled = 1: ", "true or false"),
        ("[server]\nworkers = 0\n", "config.toml, line 2: server.workers = 0: ", "accepted values are 1 to 1024"),
        ("[batch]\n\nmax_batch_size = 0\n", "config.toml, line 3: batch.max_batch_size = 0: ", "1 to 100000"),
        ("[store]\nengine = \"s3\"\n", "config.toml, line 2: store.engine = \"s3\": ", "`pack` or `memory`"),
        ("[compression]\nlevel = 20\n", "line 2: compression.level = 20: ", "\"best\" or a number from 1 to 19"),
        ("[compression]\nlevel = \"high\"\n", "line 2: compression.level = \"high\": ", "\"fastest\", \"balanced\""),
        (
            "[compression]\nalgorithms = [\"lz4\"]\n",
            "line 2: compression.algorithms = [\"lz4\"]: ",
            "`zstd`, `br`, `gzip`",
        ),
        ("[compression]\ncache_bytes = 1099511627777\n", "line 2: compression.cache_bytes", "are 0 to 1099511627776"),
        ("[compression]\nalgorithms = []\n", "line 2: compression.algorithms = []: ", "enabled = false"),
        ("[compression]\nalgorithms = [\"br\", \"br\"]\n", "line 2: compression.algorithms", "br is listed twice"),
        (
            "[log]\nlevel = \"info,=\"\n",
            "config.toml, line 2: log.level = \"info,=\": ",
            "accepted values are error, warn",
        ),
        (
            "[server]\nmax_header_bytes = 1\n",
            "line 2: server.max_header_bytes = 1: ",
            "accepted values are 8192 to 1048576",
        ),
        (
            "[server]\nwrite_timeout_seconds = 0\n",
            "line 2: server.write_timeout_seconds = 0: ",
            "accepted values are 1 to 86400",
        ),
        ("[streaming]\nmax_dag_depth = 7\n", "line 2: streaming.max_dag_depth = 7: ", "use 8 to 16777216"),
        ("[gateway]\nretrieval_timeout_seconds = 0\n", "gateway.retrieval_timeout_seconds = 0: ", "are 1 to 86400"),
        ("[gateway]\nmax_request_seconds = 0\n", "gateway.max_request_seconds = 0: ", "are 1 to 31536000"),
        ("[gateway]\nroot_redirect = \"//b.example\"\n", "gateway.root_redirect = \"//b.example\": ", "such as /ipns/"),
        ("[gateway]\nroot_redirect = \"/a b\"\n", "gateway.root_redirect = \"/a b\": ", "percent-encoded"),
        ("[gateway]\nmax_concurrent_requests = 0\n", "gateway.max_concurrent_requests = 0: ", "are 1 to 1000000"),
        (
            "[gateway]\nmax_requests_per_client = 1000001\n",
            "gateway.max_requests_per_client = 1000001",
            "are 0 to 1000000",
        ),
        ("[tls]\nrequire_client_certificate = true\n", "tls.require_client_certificate", "needs enabled = true"),
        // The message names the wrong entry of a table.
        (
            "[gateway.hosts.\"a.org\"]\n[gateway.hosts.\"b.org\"]\nsubdomain = true\n",
            "config.toml, line 2: gateway.hosts.\"b.org\" = { subdomain = true }: ",
            "expected one of `subdomains`",
        ),
        (
            "[tls.acme]\ncontact = \"\"\naccept_terms = \"yes\"\n",
            "config.toml, line 3: tls.acme.accept_terms = \"yes\": ",
            "expected true or false",
        ),
        ("[tls.acme]\n\ndomains = [\"*.a.org\"]\n", "config.toml, line 3: tls.acme.domains: ", "not a public name"),
        ("[tls.acme]\ndomains = [\"192.0.2.1\"]\n", "config.toml, line 2: tls.acme.domains: ", "not a public name"),
        // A message without the value has the line too.
        ("[server]\n\nhosts = [\"a b\"]\n", "config.toml, line 3: server.hosts: \"a b\"", "give names without port"),
        ("[server]\nhosts = [\"a.org\", \"*.*\"]\n", "line 2: server.hosts: \"*.*\" ", "or [] for all names"),
        ("[ingest]\nuser = \"a\"\npassword_sha256 = \"b\"\n", "line 3: ingest.password_sha256: ", "64 hexadecimal"),
        ("[retrieval]\ngateways = [\"ftp://a\"]\n", "line 2: retrieval.gateways: ", "https://HOST"),
        ("[grpc]\nmax_concurrent_calls = 0\n", "grpc.max_concurrent_calls = 0: ", "are 1 to 1000000"),
        ("[grpc]\nmax_calls_per_client = 1000001\n", "grpc.max_calls_per_client = 1000001", "are 0 to 1000000"),
    ];
    for (text, place, accepted) in cases {
        let complaint = complaint(text);
        assert!(complaint.contains(place) && complaint.contains(accepted), "{text:?} gave {complaint:?}");
    }
}

#[test]
fn hosts_and_proxies_are_read_and_shown_with_origin() {
    let dir = tempfile::tempdir().unwrap();
    let mut sources = file(
        dir.path(),
        "[gateway]\ntrusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\n\n[gateway.hosts.\"example.com\"]\nsubdomains = true\n\n\
         [gateway.hosts.\"*.example.org\"]\npaths = [\"/ipfs\"]\ndeserialized = false\n",
    );
    let settings = Settings::read(&sources).unwrap();
    let config = settings.config().unwrap().gateway;
    let (com, org) = (&config.hosts["example.com"], &config.hosts["*.example.org"]);
    assert_eq!((com.subdomains, com.inline_dnslink, com.paths.len(), com.deserialized), (true, false, 2, None));
    assert_eq!((org.subdomains, org.paths.len(), org.deserialized), (false, 1, Some(false)));
    assert!(config.trusted_proxies[1].contains("10.1.2.3".parse().unwrap()));
    let shown = settings.to_toml().unwrap();
    assert!(shown.contains(r#"hosts = { "*.example.org" = { "#), "{shown}");
    assert!(shown.contains("config.toml, line 4"), "{shown}");
    // The output can be read again.
    let again = tempfile::tempdir().unwrap();
    assert_eq!(Config::load(&file(again.path(), &shown)).unwrap().gateway, config);

    let hosts = r#"{ "env.example" = { subdomains = true } }"#;
    sources.environment = vec![("IPFRS_GATEWAY_HOSTS".to_owned(), hosts.to_owned())];
    let hosts = Config::load(&sources).unwrap().gateway.hosts;
    assert_eq!(hosts.into_keys().collect::<Vec<_>>(), ["env.example"], "a key is set as a whole");
}

#[test]
fn wrong_hosts_and_proxies_are_errors_that_name_them() {
    for (text, named) in [
        ("[gateway.hosts.\"Example.com\"]", "gateway.hosts.\"Example.com\": write the name in lower case"),
        ("[gateway.hosts.\"example.com:80\"]", "without a port"),
        ("[gateway.hosts.\"example.com.\"]", "not a host name"),
        ("[gateway.hosts.\"exa mple\"]", "not a host name"),
        ("[gateway.hosts.\"x*.example\"]", "not a host name"),
        ("[gateway.hosts.\"*.*\"]", "consists only of *"),
        ("[gateway.hosts.\"127.0.0.1\"]\nsubdomains = true", "an address has no subdomains"),
        ("[gateway.hosts.\"::1\"]", "in brackets"),
        ("[gateway.hosts.\"example.com\"]\nsubdomain = true", "unknown field `subdomain`"),
        ("[gateway.hosts.\"example.com\"]\npaths = [\"/api\"]", "`/ipfs` or `/ipns`"),
        ("[gateway]\ntrusted_proxies = [\"localhost\"]", "\"localhost\" is neither an address"),
        ("[gateway]\ntrusted_proxies = \"127.0.0.1\"", "gateway.trusted_proxies"),
    ] {
        let complaint = complaint(text);
        assert!(complaint.contains(named) && complaint.starts_with("config.toml, line "), "{text}: {complaint}");
    }
}

#[test]
fn dnslinks_are_merged_from_file_and_ipfs_ns_map() {
    let cid = "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am";
    let dir = tempfile::tempdir().unwrap();
    let mut sources = file(
        dir.path(),
        &format!("[gateway.dnslink]\n\"One.example\" = \"/ipfs/{cid}\"\n\"two.example\" = \"/ipfs/{cid}\"\n"),
    );
    let map = "one.example:/ipns/k51qzi5uqu5dgutdk6i1ynyzgkqngpha5xpgia3a5qqp4jsh0u4csozksxel2r,three.example:/ipns/two.example";
    sources.environment = vec![("IPFS_NS_MAP".to_owned(), map.to_owned())];
    let settings = Settings::read(&sources).unwrap();
    let config = settings.config().unwrap();
    let links: Vec<_> = config.node().dnslink.into_iter().collect();
    let expected = [
        ("one.example", "/ipns/k51qzi5uqu5dgutdk6i1ynyzgkqngpha5xpgia3a5qqp4jsh0u4csozksxel2r".to_owned()),
        ("three.example", "/ipns/two.example".to_owned()),
        ("two.example", format!("/ipfs/{cid}")),
    ];
    assert_eq!(links, expected.map(|(domain, target)| (domain.to_owned(), target)));
    let shown = settings.to_toml().unwrap();
    assert!(shown.contains("config.toml, line 1 and environment variable IPFS_NS_MAP\n"), "{shown}");

    for (map, named) in [
        ("one.example", "environment variable IPFS_NS_MAP: \"one.example\" does not have the form domain:/ipfs/CID"),
        (
            "one.example:ipfs/x",
            "environment variable IPFS_NS_MAP: \"one.example:ipfs/x\" does not have the form domain",
        ),
        ("one.example:/ipfs/x", "environment variable IPFS_NS_MAP: gateway.dnslink = \"one.example\" to \"/ipfs/x\": "),
        ("a..b:/ipns/x.org", "environment variable IPFS_NS_MAP: gateway.dnslink = \"a..b\" to \"/ipns/x.org\": "),
    ] {
        let environment = vec![("IPFS_NS_MAP".to_owned(), map.to_owned())];
        let error = Config::load(&Sources { environment, ..Sources::default() }).unwrap_err();
        assert!(error.message().starts_with(named), "{map}: {error}");
    }
}

#[test]
fn resolvers_accept_one_or_a_list_and_name_invalid_ones() {
    let dir = tempfile::tempdir().unwrap();
    let text = r#"
        [dns]
        resolvers = ["1.1.1.1", "[::1]:5353", "https://dns.example/dns-query", "system"]
        suffix_resolvers = { "eth." = "https://dns.eth.limo/dns-query", "corp.example" = ["10.0.0.1", "10.0.0.2:53"] }
    "#;
    assert_ne!(Config::load(&file(dir.path(), text)).unwrap().dns, Config::default().dns);
    for (text, named) in [
        ("[dns]\nresolvers = []", "the list is empty"),
        ("[dns]\nresolvers = \"dns.example\"", "\"dns.example\" is not a resolver: use \"system\""),
        ("[dns]\nresolvers = \"https://\"", "\"https://\" is not a URL"),
        ("[dns]\nresolvers = 1", "expected \"system\", an address, a URL, or a list of them"),
        ("[dns]\nsuffix_resolvers = { \"a..b\" = \"system\" }", "dns.suffix_resolvers = \"a..b\": "),
        ("[dns]\nmin_ttl_seconds = 600", "dns.min_ttl_seconds = 600: exceeds dns.max_negative_ttl_seconds = 300"),
        ("[dns]\ntimeout_seconds = 0", "accepted values are 1 to 60"),
    ] {
        let complaint = complaint(text);
        assert!(complaint.contains(named) && complaint.starts_with("config.toml, line 2: "), "{text}: {complaint}");
    }
}

#[test]
fn queries_of_urls_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[dns]\nresolvers = [\"https://dns.example/q?token=hunter2\"]\n\
                suffix_resolvers = { \"eth.\" = \"https://dns.example/q?token=hunter2\" }\n\
                [log]\notlp_endpoint = \"http://127.0.0.1:4317/?token=hunter2\"\n";
    let settings = Settings::read(&file(dir.path(), text)).unwrap();
    let shown = settings.to_toml().unwrap();
    assert_eq!((shown.matches("?***").count(), shown.contains("hunter2")), (3, false), "{shown}");
    assert!(settings.config().unwrap().log.otlp_endpoint.ends_with("?token=hunter2"));
    let complaint = complaint("[retrieval]\nrouters = [\"https://r.example/?token=hunter2\"]\n");
    assert!(complaint.contains("https://r.example/?***\"") && !complaint.contains("hunter2"), "{complaint}");
}

#[cfg(feature = "bitswap")]
#[test]
fn private_gateway_serves_no_peers_without_a_private_network() {
    let of = |peers: &str| {
        format!("[auth]\nenabled = true\nprivate_gateway = true\n[retrieval.bitswap]\nenabled = true\n{peers}")
    };
    let complaint = complaint(&of(""));
    assert!(complaint.contains("line 4: retrieval.bitswap.serve: ") && complaint.contains("set serve = false"));
    let key = "ab".repeat(32);
    let public = of("").replace("private_gateway = true\n", "");
    let read_only = of("[store]\nread_only = true\n");
    for text in [of("serve = false\n"), of(&format!("private_network_key = \"{key}\"\n")), public, read_only] {
        let dir = tempfile::tempdir().unwrap();
        Config::load(&file(dir.path(), &text)).unwrap();
    }
}

#[cfg(feature = "bitswap")]
#[test]
fn key_of_a_private_network_is_not_shown() {
    let (dir, key) = (tempfile::tempdir().unwrap(), "ab".repeat(32));
    let text = format!("[retrieval.bitswap]\nprivate_network_key = \"{key}\"\n");
    let shown = Settings::read(&file(dir.path(), &text)).unwrap().to_toml().unwrap();
    assert!(shown.contains("private_network_key = \"***\"") && !shown.contains(&key), "{shown}");
}

#[test]
fn placeholders_of_credentials_are_refused_with_their_place() {
    let text = "[auth]\nenabled = true\n[auth.rpc.bob]\nsecret = \"bearer:hunter2\"\n\
                [dns]\nresolvers = \"https://r.example/q?token=hunter2\"\n\
                [retrieval]\ngateways = [\"https://me:hunter2@g.example\"]\n";
    let dir = tempfile::tempdir().unwrap();
    let shown = Settings::read(&file(dir.path(), text)).unwrap().to_toml().unwrap();
    let refused = complaint(&shown);
    assert!(refused.contains("auth.rpc.bob contains ***, which `config show` prints"), "{refused}");
    for (text, place) in [
        ("[auth.rpc.bob]\nsecret = \"***\"\n", "config.toml, line 1: auth.rpc.bob "),
        ("\n[auth.rpc]\n\"bob@example.org\" = { secret = \"***\" }\n", "line 3: auth.rpc.\"bob@example.org\" "),
        ("[dns]\nresolvers = \"https://r.example/q?***\"\n", "config.toml, line 2: dns.resolvers "),
        ("[retrieval]\n\ngateways = [\"https://***@g.example\"]\n", "config.toml, line 3: retrieval.gateways "),
        ("[ingest]\nuser = \"u\"\npassword_sha256 = \"***\"\n", "config.toml, line 3: ingest.password_sha256 "),
    ] {
        let refused = complaint(text);
        assert!(refused.contains(place) && refused.contains("write the credential itself"), "{refused}");
        Settings::read(&file(dir.path(), text)).unwrap().to_toml().unwrap_err();
    }
    // Asterisks in a path, and a password of asterisks, are no placeholders.
    for text in ["[store]\npath = \"a?***\"\n", "[retrieval]\ngateways = [\"https://me:***@g.example\"]\n"] {
        Config::load(&file(dir.path(), text)).unwrap();
    }
    let environment = vec![("IPFRS_AUTH_RPC".to_owned(), "{ bob = { secret = \"***\" } }".to_owned())];
    let refused = Config::load(&Sources { environment, ..Sources::default() }).unwrap_err();
    assert!(refused.message().starts_with("environment variable IPFRS_AUTH_RPC: auth.rpc.bob "), "{refused}");
}

//! Tests of changes of the configuration file.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use ipfrs_core::ErrorKind;
use ipfrs_interface::{Config, ConfigFile, Sources};

fn file(path: &Path) -> ConfigFile {
    let sources = Sources { file: Some(path.to_owned()), is_file_optional: true, ..Sources::default() };
    ConfigFile::new(&sources).unwrap()
}

#[test]
fn settings_change_and_everything_else_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, "# A.\n[server] # B.\n# C.\nport = 1 # D.\n# E.\nhost = \"::1\"\n\n[log]\nlevel='info'\n")
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = dir.path().join("link.toml");
    symlink("config.toml", &link).unwrap();
    let file = file(&link);
    file.set("server.port", "2").unwrap();
    file.set("server.workers", "3").unwrap();
    file.set("log.level", "warn").unwrap();
    file.set("retrieval.bitswap.serve", "false").unwrap();
    file.set("gateway.hosts.\"a.example\".subdomains", "true").unwrap();
    file.set("retrieval.bitswap.max_peers", "9").unwrap();
    file.set("api.hosts", "[\"b.example\"]").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "# A.\n[server] # B.\n# C.\nport = 2 # D.\n# E.\nhost = \"::1\"\nworkers = 3\n\n[log]\nlevel=\"warn\"\n\n\
         [retrieval]\nbitswap = { serve = false, max_peers = 9 }\n\n[gateway]\nhosts = { \"a.example\" = { subdomains = true } }\n\n\
         [api]\nhosts = [\"b.example\"]\n"
    );
    // Comments above a removed key may belong to another one.
    file.unset("server.port").unwrap();
    file.unset("server.port").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# A.\n[server] # B.\n# C.\n# E.\nhost = \"::1\"\nworkers = 3\n"), "{text}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn what_is_refused_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/config.toml");
    let file = file(&path);
    for (key, value, why) in [
        ("server.prot", "1", "did you mean port"),
        ("sever.port", "1", "did you mean [server]"),
        ("server", "1", "is not a key"),
        ("a..b", "1", "is not a key"),
        ("server.port", "65536", "65535"),
        ("server.port", "many", "65535"),
        ("server.port.x", "1", "server.port"),
        ("import.hash", "sha2-255", "import.hash"),
        ("gateway.max_ranges", "0", "1 to 1000"),
    ] {
        let error = file.set(key, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{key}: {error}");
        assert!(error.message().contains(why), "{key}: {error}");
    }
    assert_eq!(file.unset("server.prot").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(!path.exists());
    file.set("import.hash", "sha2-512").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "[import]\nhash = \"sha2-512\"\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // The environment takes precedence over the file, so that a change would have no effect.
    let environment = vec![("IPFRS_SERVER_PORT".to_owned(), "1".to_owned())];
    let sources = Sources { file: Some(path.clone()), environment, ..Sources::default() };
    let error = ConfigFile::new(&sources).unwrap().set("server.port", "2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("environment variable IPFRS_SERVER_PORT"), "{error}");
    // Placeholders are not written in place of credentials.
    for (key, value) in
        [("retrieval.routers", "[\"https://***@r.example\"]"), ("dns.resolvers", "[\"https://r.example/q?***\"]")]
    {
        assert_eq!(file.set(key, value).unwrap_err().kind(), ErrorKind::Conflict, "{key}");
    }
    // The daemon would not start.
    for (key, value) in [
        ("server.host", "0.0.0.0"),
        ("api.host", "[::]"),
        ("grpc.host", "192.0.2.1"),
        ("server.host", "a b"),
        ("api.unix_socket", "/nonexistent/socket"),
        ("api.unix_socket", "/etc/passwd"),
        ("store.filestore_root", "/nonexistent"),
    ] {
        assert!(file.set(key, value).is_err(), "{key} = {value}");
    }
    // Unless it would not start before either, as far as is known here: its environment may permit it.
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, "[server]\nhost = \"0.0.0.0\"\n").unwrap();
    file.set("server.port", "2").unwrap();
    fs::write(&path, text).unwrap();
    file.set("server.allow_unauthenticated", "true").unwrap();
    file.set("server.host", "0.0.0.0").unwrap();
    // Another program that changes the file excludes this one.
    let held = fs::File::open(path.parent().unwrap()).unwrap();
    held.lock().unwrap();
    assert_eq!(file.set("server.port", "2").unwrap_err().kind(), ErrorKind::Conflict);
    drop(held);
    assert!(file.set("server.port", "2").unwrap());
    assert!(!file.set("server.port", "2").unwrap());
    assert!(!file.unset("server.workers").unwrap());
}

#[test]
fn changes_at_the_same_time_are_all_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let keys = ["server.port", "server.workers", "batch.max_batch_size", "gateway.max_ranges", "graphql.max_depth"];
    std::thread::scope(|scope| {
        for key in keys {
            scope.spawn(|| file(&path).set(key, "7").unwrap());
        }
    });
    let settings = file(&path).settings().unwrap();
    for key in keys {
        assert_eq!(settings.value(key).unwrap().unwrap().as_integer(), Some(7), "{key}");
    }
}

#[test]
fn comments_stay_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let file = file(&path);
    for (before, set, unset, after) in [
        ("[gateway]\n# note\nmax_ranges = 9\n", None, Some("gateway.max_ranges"), "[gateway]\n# note\n"),
        (
            "[gateway]\n# note\nmax_ranges = 9\n\n# log\n[log]\nlevel = \"info\"\n",
            None,
            Some("gateway.max_ranges"),
            "[gateway]\n# note\n\n# log\n[log]\nlevel = \"info\"\n",
        ),
        (
            "[api]\nport = 5\n# host = \"1.2.3.4\"\n",
            Some(("import.cid_version", "1")),
            None,
            "[api]\nport = 5\n# host = \"1.2.3.4\"\n\n[import]\ncid_version = 1\n",
        ),
        (
            "[retrieval]\nenabled = true\n",
            Some(("retrieval.bitswap.serve", "false")),
            Some("retrieval.bitswap.serve"),
            "[retrieval]\nenabled = true\n",
        ),
        ("# top\n", Some(("log.level", "warn")), None, "# top\n\n[log]\nlevel = \"warn\"\n"),
        (
            "\u{feff}[log]\r\nlevel = 'info'\r\n",
            Some(("log.level", "warn")),
            None,
            "\u{feff}[log]\r\nlevel = \"warn\"\r\n",
        ),
        (
            "[gateway]\nhosts = { a = { subdomains = true }, b = {} } # hosts\n",
            Some(("gateway.hosts", "{ c = { subdomains = true } }")),
            None,
            "[gateway]\nhosts = { c = { subdomains = true } }\n",
        ),
        ("[auth.rpc.alice]\nsecret = \"bearer:x\"\npaths = []\n", Some(("auth.rpc", "{}")), None, "[auth]\nrpc = {}\n"),
    ] {
        fs::write(&path, before).unwrap();
        set.into_iter().for_each(|(key, value)| assert!(file.set(key, value).unwrap()));
        unset.into_iter().for_each(|key| assert!(file.unset(key).unwrap()));
        assert_eq!(fs::read_to_string(&path).unwrap(), after, "{before}");
    }
    // A link that leads nowhere is not replaced.
    let link = dir.path().join("link.toml");
    symlink("nowhere/config.toml", &link).unwrap();
    assert!(self::file(&link).set("server.port", "1").is_err());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    // A file of the user with the name of a draft is not touched.
    fs::write(dir.path().join("config.toml.new"), "mine").unwrap();
    file.set("server.port", "1").unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("config.toml.new")).unwrap(), "mine");
}

#[test]
fn only_regular_files_are_changed() {
    let dir = tempfile::tempdir().unwrap();
    // In place of a device, such as `/dev/null`, which only root could replace.
    let (path, link) = (dir.path().join("socket"), dir.path().join("link.toml"));
    let _listener = UnixListener::bind(&path).unwrap();
    symlink("socket", &link).unwrap();
    for path in [&path, &link] {
        let error = file(path).set("server.port", "1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("it is not a regular file; name another one with --config"), "{error}");
    }
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
}

#[test]
fn documented_file_can_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, Config::DEFAULT_TEXT).unwrap();
    let file = file(&path);
    file.set("retrieval.bitswap.listen", "[\"/ip4/127.0.0.1/tcp/0\"]").unwrap();
    file.set("import.cid_version", "1").unwrap();
    file.unset("server.port").unwrap();
    let (old, new) = (Config::DEFAULT_TEXT, fs::read_to_string(&path).unwrap());
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let added: Vec<_> = lines(&new).into_iter().filter(|line| !lines(old).contains(line)).collect();
    assert_eq!(added, ["cid_version = 1", "listen = [\"/ip4/127.0.0.1/tcp/0\"]"]);
    let removed: Vec<_> = lines(old).into_iter().filter(|line| !lines(&new).contains(line)).collect();
    assert_eq!(removed.len(), 2, "{removed:?}");
}

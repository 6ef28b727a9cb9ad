//! Snapshots of the help text of every command.

use crate::harness::Place;

#[test]
fn commands_of_kubo_without_a_counterpart_name_one() {
    let place = Place::new();
    for (word, instead) in [("daemon", "gateway start"), ("id", "key list"), ("init", "creates the repo")] {
        let ran = place.run(&[word]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains(&format!("in place of `ipfs {word}`: ")), "{}", ran.stderr);
        assert!(ran.stderr.contains(instead) && ran.stderr.matches("tip:").count() == 1, "{}", ran.stderr);
    }
}

#[test]
fn negative_values_of_options_are_explained() {
    let place = Place::new();
    for arguments in [["cat", "--length", "-1"], ["gateway", "start", "-2"]] {
        let ran = place.run(&arguments);
        assert_eq!(ran.code, Some(2));
        let tip = format!("tip: to give an option a negative value, write --option={}", arguments[2]);
        assert!(ran.stderr.contains(&tip) && ran.stderr.matches("tip:").count() == 1, "{}", ran.stderr);
    }
}

#[test]
fn help_of_every_command() {
    let place = Place::new();
    let commands: [&[&str]; 94] = [
        &[],
        &["gateway"],
        &["gateway", "start"],
        &["gateway", "status"],
        &["gateway", "stop"],
        &["add"],
        &["cat"],
        &["get"],
        &["ls"],
        &["tensor"],
        &["tensor", "ls"],
        &["tensor", "get"],
        &["tensor", "stat"],
        &["block"],
        &["block", "get"],
        &["block", "put"],
        &["block", "rm"],
        &["block", "stat"],
        &["dag"],
        &["dag", "import"],
        &["dag", "export"],
        &["dag", "stat"],
        &["dag", "get"],
        &["dag", "put"],
        &["dag", "resolve"],
        &["refs"],
        &["cid"],
        &["cid", "format"],
        &["cid", "inspect"],
        &["swarm"],
        &["swarm", "peers"],
        &["swarm", "connect"],
        &["stats"],
        &["migrate"],
        &["migrate", "kubo"],
        &["migrate", "export"],
        &["bench", "ingest"],
        &["files"],
        &["files", "ls"],
        &["files", "stat"],
        &["files", "read"],
        &["files", "write"],
        &["files", "mkdir"],
        &["files", "cp"],
        &["files", "mv"],
        &["files", "rm"],
        &["files", "flush"],
        &["files", "chcid"],
        &["files", "chmod"],
        &["files", "touch"],
        &["pin"],
        &["pin", "add"],
        &["pin", "rm"],
        &["pin", "ls"],
        &["pin", "update"],
        &["pin", "verify"],
        &["auth"],
        &["auth", "key"],
        &["auth", "key", "create"],
        &["auth", "key", "list"],
        &["auth", "key", "revoke"],
        &["auth", "whoami"],
        &["key"],
        &["key", "gen"],
        &["key", "list"],
        &["key", "rename"],
        &["key", "rm"],
        &["key", "import"],
        &["key", "export"],
        &["name"],
        &["name", "publish"],
        &["name", "resolve"],
        &["name", "inspect"],
        &["name", "get"],
        &["name", "put"],
        &["resolve"],
        &["repo"],
        &["repo", "backup"],
        &["repo", "restore"],
        &["repo", "gc"],
        &["repo", "stat"],
        &["repo", "verify"],
        &["bench"],
        &["bench", "http"],
        &["doctor"],
        &["config"],
        &["config", "init"],
        &["config", "show"],
        &["config", "check"],
        &["denylist"],
        &["denylist", "check"],
        &["completions"],
        &["man"],
        &["version"],
    ];
    for command in commands {
        let name = if command.is_empty() { "main".to_owned() } else { command.join("-") };
        insta::assert_snapshot!(name, place.ok(&[command, &["--help"]].concat()));
    }
}

#[test]
fn man_writes_a_page_for_each_command() {
    let place = Place::new();
    std::fs::create_dir(place.path("man1")).unwrap();
    place.ok(&["man", "man1"]);
    for page in ["ipfrs-cli", "ipfrs-cli-add", "ipfrs-cli-repo-backup"] {
        let text = std::fs::read_to_string(place.path(&format!("man1/{page}.1"))).unwrap();
        assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let backup = std::fs::read_to_string(place.path("man1/ipfrs-cli-repo-backup.1")).unwrap();
    assert!(backup.contains("without\\-keys"), "{backup}");
    assert!(place.fails(&["man", "missing"]).contains("create it first"));
}

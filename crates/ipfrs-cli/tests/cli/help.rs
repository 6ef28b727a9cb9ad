//! Snapshots of the help text of every command.

use crate::harness::Place;

#[test]
fn help_of_every_command() {
    let place = Place::new();
    let commands: [&[&str]; 56] = [
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
        &["pin"],
        &["pin", "add"],
        &["pin", "rm"],
        &["pin", "ls"],
        &["pin", "update"],
        &["pin", "verify"],
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
        &["repo", "gc"],
        &["repo", "stat"],
        &["repo", "verify"],
        &["bench"],
        &["bench", "http"],
        &["config"],
        &["config", "init"],
        &["config", "show"],
        &["config", "check"],
        &["denylist"],
        &["denylist", "check"],
        &["completions"],
        &["version"],
    ];
    for command in commands {
        let name = if command.is_empty() { "main".to_owned() } else { command.join("-") };
        insta::assert_snapshot!(name, place.ok(&[command, &["--help"]].concat()));
    }
}

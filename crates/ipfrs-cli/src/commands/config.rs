//! `config init|show|get|set|unset|check`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_interface::{AppliedBy, Config, ConfigFile};

use crate::args::{ConfigCommand, Globals};
use crate::output::Output;
use crate::session;

pub(super) fn run(globals: &Globals, command: &ConfigCommand, out: &mut Output) -> Result<()> {
    if globals.api.is_some() {
        bail!("the configuration is that of this machine: omit --api (a daemon shows its own at /v1/config)");
    }
    match command {
        ConfigCommand::Init { force } => init(globals, *force, out),
        ConfigCommand::Show => {
            let settings = session::settings(globals, Vec::new())?;
            if out.is_json() {
                return out.object(&settings.to_table()?);
            }
            out.bytes(settings.to_toml()?.as_bytes())
        }
        ConfigCommand::Get { key } => {
            let value = session::settings(globals, Vec::new())?.value(key)?;
            let value = value.with_context(|| match Config::description(key) {
                Some(text) => format!("{key} is not set. {text}"),
                None => format!("{key} is not set"),
            })?;
            if out.is_json() {
                return out.object(&serde_json::json!({ "key": key, "value": value }));
            }
            match value.as_str() {
                Some(text) => out.line(text),
                None => out.line(&value.to_string()),
            }
        }
        ConfigCommand::Set { key, value } => {
            let file = file(globals)?;
            let has_changed = file.set(key, value)?;
            changed(&file, key, has_changed, out)
        }
        ConfigCommand::Unset { key } => {
            let file = file(globals)?;
            let has_changed = file.unset(key)?;
            changed(&file, key, has_changed, out)
        }
        ConfigCommand::Check => {
            let config = session::settings(globals, Vec::new())?.config()?;
            config.check_hosts()?;
            config.check_references(&session::repo(globals)?)?;
            let file = session::config_file(globals)?;
            if out.is_json() {
                let ignored = config.ignored_variables();
                return out.object(&serde_json::json!({ "file": file, "valid": true, "ignored_variables": ignored }));
            }
            match file {
                Some(file) => out.line(&format!("{} is valid", file.display()))?,
                None => out.line("there is no configuration file: the defaults apply")?,
            }
            for variable in config.ignored_variables() {
                out.line(&format!("no setting has a name like the environment variable {variable}, which is ignored"))?;
            }
            Ok(())
        }
    }
}

/// Returns the configuration file that commands change. It may be invalid, and a change may mend it.
fn file(globals: &Globals) -> Result<ConfigFile> {
    ConfigFile::new(&session::sources(globals, Vec::new())?).context("there is no configuration file")
}

fn changed(file: &ConfigFile, key: &str, has_changed: bool, out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.object(&serde_json::json!({ "file": file.path(), "key": key, "changed": has_changed }));
    }
    if !has_changed {
        return out.line(&format!("{} has this already", file.path().display()));
    }
    let how = match Config::applied_by(key) {
        AppliedBy::Reload => "send SIGHUP to a running gateway to apply it",
        AppliedBy::ReloadOfDenylists => {
            "send SIGHUP to a running gateway to apply it, or restart one that was started without denylists"
        }
        AppliedBy::ReloadOfTls => {
            "send SIGHUP to a running gateway to apply it, or restart one that was started without TLS"
        }
        AppliedBy::Restart => "restart a running gateway to apply it",
    };
    out.line(&format!("changed {}: {how}", file.path().display()))
}

fn init(globals: &Globals, is_forced: bool, out: &mut Output) -> Result<()> {
    let file = session::config_path(globals)?;
    if globals.config.is_none() {
        let repo = session::repo(globals)?;
        fs::create_dir_all(&repo).with_context(|| format!("cannot create the repo {}", repo.display()))?;
    }
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).create(is_forced).create_new(!is_forced);
    let mut opened = match options.open(&file) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            bail!("{} already exists: edit it, or replace it with --force", file.display())
        }
        Err(e) => return Err(anyhow!("cannot write {}: {e}", file.display())),
    };
    if let Err(error) = opened.write_all(Config::DEFAULT_TEXT.as_bytes()) {
        // A part of it would be a configuration too. A device has no part of it.
        if opened.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let _ = fs::remove_file(&file);
        }
        bail!("cannot write {}: {error}", file.display());
    }
    if out.is_json() {
        return out.object(&serde_json::json!({ "file": file }));
    }
    out.line(&format!("wrote {}", file.display()))
}

//! Settings as written by the user, each with its origin for error messages.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use ipfrs_core::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use toml::de::DeTable;
use toml::{Table, Value};

use super::credentials::{HIDDEN, has_placeholder, hide_credentials, safe_text};
use super::entries::{large_integer, shown_name};
use super::file::parsed_key;
use super::known_names::{key_without_section, known_key, known_section, nearest};
use super::plain_words::in_plain_words;
use super::sources::{ENV_PREFIX, LINKS_VARIABLE};
use super::{Config, ConfigFile, Flag, SECTIONS, Sources};

/// Suffixes of variables that are not settings: the path of the repo, the token of a caller, and the password for
/// `bench ingest`.
const OTHER_VARIABLES: [&str; 3] = ["path", "token", "ingest_password"];
/// Suffixes that users could expect, and what to use instead.
const MISTAKEN_VARIABLES: [(&str, &str); 3] =
    [("repo", "IPFRS_PATH"), ("config", "the flag --config"), ("json", "the flag --json")];
/// Key that the links are added to.
const LINKS_KEY: (&str, &str) = ("gateway", "dnslink");

/// Origin of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    File {
        path: PathBuf,
        line: usize,
    },
    /// A change of the file that is not written yet.
    Change,
    /// Line of the text from the embedding program.
    Text(usize),
    Variable(String),
    Flag(&'static str),
    /// Two origins whose values were merged.
    Several(Box<[Origin; 2]>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Change => f.write_str("with this change"),
            Self::Text(line) => write!(f, "config, line {line}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => f.write_str(flag),
            Self::Several(both) => write!(f, "{} and {}", both[0], both[1]),
        }
    }
}

#[derive(Debug, Clone)]
struct Setting {
    value: Value,
    /// Original text from the environment or a flag. It may be meant as a string although it can be parsed as a
    /// number.
    text: Option<String>,
    origin: Origin,
    /// Origins of the entries of a table in a file or text.
    entries: BTreeMap<String, Origin>,
}

/// All settings that any source contains.
#[derive(Debug, Clone)]
pub struct Settings {
    by_key: BTreeMap<(&'static str, &'static str), Setting>,
    /// Environment variables that are named like settings, but resemble none.
    ignored: Vec<String>,
    sources: Sources,
}

impl Settings {
    /// Reads the file, the environment, the text and the flags, in this order. Names are checked here, and values by
    /// [`config`](Self::config).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a file or text that is not TOML, and for unknown sections and keys; the
    /// message contains the place and the nearest known name. Otherwise the file cannot be read.
    pub fn read(sources: &Sources) -> Result<Self> {
        let text = match sources.file.as_ref().map(|path| (path, fs::read_to_string(path))) {
            None => None,
            Some((_, Ok(text))) => Some(text),
            Some((_, Err(e))) if e.kind() == io::ErrorKind::NotFound && sources.is_file_optional => None,
            Some((path, Err(e))) => {
                return Err(Error::io(format_args!("cannot read the configuration {}", path.display()), e));
            }
        };
        let path = sources.file.clone().unwrap_or_default();
        Self::of(sources, text.as_deref(), |line| Origin::File { path: path.clone(), line })
    }

    /// Same as [`read`](Self::read), with `text` in place of the content of the file.
    pub(super) fn with_change(sources: &Sources, text: &str) -> Result<Self> {
        Self::of(sources, Some(text), |_| Origin::Change)
    }

    fn of(sources: &Sources, text: Option<&str>, origin: impl Fn(usize) -> Origin) -> Result<Self> {
        let mut settings = Self { by_key: BTreeMap::new(), ignored: Vec::new(), sources: sources.clone() };
        if let Some(text) = text {
            settings.add_toml(text, origin)?;
        }
        for (name, value) in &sources.environment {
            settings.add_variable(name, value)?;
        }
        for (_, value) in sources.environment.iter().filter(|(name, _)| name == LINKS_VARIABLE) {
            settings.add_links(value)?;
        }
        if let Some(text) = &sources.text {
            settings.add_toml(text, Origin::Text)?;
        }
        for Flag { flag, key: (section, key), value } in &sources.flags {
            let setting = from_text(value, Origin::Flag(flag));
            settings.by_key.insert((section, key), setting);
        }
        Ok(settings)
    }

    fn add_toml(&mut self, text: &str, origin: impl Fn(usize) -> Origin) -> Result<()> {
        let line_of = |offset: usize| text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1;
        let at = |offset: usize| origin(line_of(offset));
        let invalid_toml = |e: toml::de::Error| {
            let origin = at(e.span().map_or(0, |span| span.start));
            Error::invalid(format!("{origin}: {}", e.message().trim()))
        };
        let spanned_tables = DeTable::parse(text).map_err(invalid_toml)?;
        for (section, keys) in spanned_tables.get_ref() {
            for (key, value) in keys.get_ref().as_table().into_iter().flatten() {
                if let Some((offset, entry, number)) = large_integer(value) {
                    let (origin, section, key) = (at(offset), section.get_ref(), key.get_ref());
                    let why = "an integer must fit into 64 bits with a sign";
                    return Err(Error::invalid(format!("{origin}: {section}.{key}{entry} = {number}: {why}")));
                }
            }
        }
        let mut values: Table = toml::from_str(text).map_err(invalid_toml)?;
        for (name, spanned_table) in spanned_tables.get_ref() {
            let origin = at(name.span().start);
            let section = known_section(name.get_ref()).map_err(|why| {
                let is_key = spanned_table.get_ref().as_table().is_none();
                let why = is_key.then(|| key_without_section(name.get_ref())).flatten().unwrap_or(why);
                Error::invalid(format!("{origin}: {why}"))
            })?;
            let (Some(keys), Some(Value::Table(mut values))) =
                (spanned_table.get_ref().as_table(), values.remove(section.name))
            else {
                return Err(Error::invalid(format!(
                    "{origin}: {name} is a section: write [{name}], with its keys on the lines below",
                    name = section.name
                )));
            };
            for (name, spanned_value) in keys {
                let origin = at(name.span().start);
                let key =
                    known_key(section, name.get_ref()).map_err(|why| Error::invalid(format!("{origin}: {why}")))?;
                let inner = spanned_value.get_ref().as_table().into_iter().flatten();
                let entries = inner.map(|(name, _)| (name.get_ref().clone().into_owned(), at(name.span().start)));
                let entries = entries.collect();
                if let Some(value) = values.remove(key) {
                    self.by_key.insert((section.name, key), Setting { value, text: None, origin, entries });
                }
            }
        }
        Ok(())
    }

    /// Only notes variables that contain no known section and are not similar to a known key, because other programs
    /// may use them.
    fn add_variable(&mut self, name: &str, text: &str) -> Result<()> {
        let Some(rest) = name.strip_prefix(ENV_PREFIX).map(str::to_ascii_lowercase) else { return Ok(()) };
        let origin = Origin::Variable(name.to_owned());
        if OTHER_VARIABLES.contains(&rest.as_str()) {
            return Ok(());
        }
        if let Some((_, instead)) = MISTAKEN_VARIABLES.iter().find(|(mistaken, _)| *mistaken == rest) {
            return Err(Error::invalid(format!("{origin}: there is no such setting: use {instead}")));
        }
        for section in SECTIONS {
            let Some(key) = rest.strip_prefix(section.name).and_then(|rest| rest.strip_prefix('_')) else { continue };
            match known_key(section, key) {
                // A service may have the same name as a section.
                Ok(_) if is_service_link(name, text) => {}
                Ok(key) => drop(self.by_key.insert((section.name, key), from_text(text, origin))),
                Err(_) if is_service_link(name, text) => {}
                Err(why) => return Err(Error::invalid(format!("{origin}: {why}"))),
            }
            return Ok(());
        }
        if is_service_link(name, text) {
            return Ok(());
        }
        let keys =
            SECTIONS.iter().flat_map(|section| (section.keys)().iter().map(|key| format!("{}_{key}", section.name)));
        let variables: Vec<_> = keys.chain(OTHER_VARIABLES.map(str::to_owned)).collect();
        match nearest(&rest, &variables.iter().map(String::as_str).collect::<Vec<_>>()) {
            Some(near) => {
                let near = near.to_ascii_uppercase();
                Err(Error::invalid(format!("{origin}: there is no such setting: did you mean {ENV_PREFIX}{near}?")))
            }
            None => {
                self.ignored.push(name.to_owned());
                Ok(())
            }
        }
    }

    /// Adds `domain:/ipfs/CID,domain:/ipns/name` to the links from other sources.
    fn add_links(&mut self, text: &str) -> Result<()> {
        let mut links = Table::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((domain, target)) = pair.split_once(':').filter(|(_, target)| target.starts_with('/')) else {
                return Err(Error::invalid(format!(
                    "environment variable {LINKS_VARIABLE}: {pair:?} does not have the form domain:/ipfs/CID or domain:/ipns/name"
                )));
            };
            links.insert(domain.to_owned(), Value::String(target.to_owned()));
        }
        if links.is_empty() {
            return Ok(());
        }
        let origin = Origin::Variable(LINKS_VARIABLE.to_owned());
        match self.by_key.get_mut(&LINKS_KEY) {
            Some(Setting { value: Value::Table(existing), origin: first, .. }) => {
                existing.retain(|domain, _| !links.keys().any(|name| name.eq_ignore_ascii_case(domain)));
                existing.extend(links);
                *first = Origin::Several(Box::new([first.clone(), origin]));
            }
            // A value that is not a table is refused later.
            Some(_) => {}
            None => {
                let setting = Setting { value: Value::Table(links), text: None, origin, entries: BTreeMap::new() };
                self.by_key.insert(LINKS_KEY, setting);
            }
        }
        Ok(())
    }

    /// Whether any source sets the key.
    #[must_use]
    pub fn names(&self, section: &str, key: &str) -> bool {
        self.by_key.keys().any(|(of, named)| *of == section && *named == key)
    }

    /// Returns the environment variables that are named like settings, but resemble none.
    pub(super) fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Returns what sets a key and is not the file.
    pub(super) fn origin_besides_file(&self, section: &str, key: &str) -> Option<String> {
        let named = self.by_key.iter().find(|((of, named), _)| *of == section && *named == key);
        named
            .map(|(_, setting)| &setting.origin)
            .filter(|origin| !matches!(origin, Origin::File { .. } | Origin::Change))
            .map(Origin::to_string)
    }

    /// Returns the effective value of a key such as `server.port`, without credentials, if it is set or has a default.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an unknown section or key.
    pub fn value(&self, key: &str) -> Result<Option<Value>> {
        self.get(&parsed_key(key)?)
    }

    /// Same as [`value`](Self::value), for a key as a list of names.
    pub(super) fn get(&self, key: &[String]) -> Result<Option<Value>> {
        let [section, rest @ ..] = key else { return Ok(None) };
        let section = known_section(section).map_err(Error::invalid)?;
        if let [name, ..] = rest {
            known_key(section, name).map_err(Error::invalid)?;
        }
        let table = Value::Table(self.to_table()?);
        let found = key.iter().try_fold(&table, |value, name| value.get(name));
        Ok(found.cloned())
    }

    /// Returns the configuration file, if the sources have one.
    #[must_use]
    pub fn file(&self) -> Option<ConfigFile> {
        ConfigFile::new(&self.sources)
    }

    /// Returns the whole configuration, with defaults for all other keys. Checks types and ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]. The message contains the place, the key, the value and what is accepted.
    pub fn config(&self) -> Result<Config> {
        self.check_placeholders()?;
        let checked = Config::from_settings(self).and_then(|config| {
            config.validate().map_err(|error| self.locate(error))?;
            Ok(config)
        });
        checked.map_err(|error| Error::new(error.kind(), safe_text(error.message())))
    }

    /// Refuses what is shown in place of credentials. The output of `config show`, used as a file, would make it a
    /// secret that everyone knows.
    fn check_placeholders(&self) -> Result<()> {
        let mut settings = self.by_key.iter();
        let Some(((section, key), setting)) = settings.find(|(_, setting)| has_placeholder(&setting.value)) else {
            return Ok(());
        };
        let mut entries = setting.value.as_table().into_iter().flatten();
        let (origin, name) = match entries.find(|(_, value)| has_placeholder(value)) {
            Some((name, _)) => {
                let origin = setting.entries.get(name.as_str()).unwrap_or(&setting.origin);
                (origin, format!("{section}.{key}.{}", shown_name(name)))
            }
            None => (&setting.origin, format!("{section}.{key}")),
        };
        Err(Error::invalid(format!(
            "{origin}: {name} contains {HIDDEN}, which `config show` prints in place of credentials: write the credential \
             itself, or remove the key"
        )))
    }

    /// Returns one section, from its defaults and the settings.
    pub(crate) fn section<T: DeserializeOwned>(&self, section: &'static str) -> Result<T> {
        let values = self.values::<T>(section)?;
        T::deserialize(values).map_err(|e| Error::invalid(format!("[{section}]: {}", e.message())))
    }

    /// Returns the values of the keys of a section that are set, in the form that the section reads.
    pub(super) fn values<T: DeserializeOwned>(&self, section: &'static str) -> Result<Table> {
        let of_section = self.by_key.iter().filter(|((of, _), _)| *of == section);
        of_section.map(|(&(_, key), setting)| Ok((key.to_owned(), value_for::<T>(section, key, setting)?))).collect()
    }

    /// Prepends the place to a message of the form `section.key = value: why` or `section.key: why`.
    fn locate(&self, error: Error) -> Error {
        let name = error.message().split(' ').next().unwrap_or_default().trim_end_matches(':');
        let found = name.split_once('.').and_then(|(section, rest)| {
            // If the value of a key is a table, the message may name an entry of it.
            let (key, entry) = rest.split_once('.').unwrap_or((rest, ""));
            let (_, setting) = self.by_key.iter().find(|((a, b), _)| *a == section && *b == key)?;
            Some(setting.entries.get(entry.trim_matches('"')).unwrap_or(&setting.origin))
        });
        match found {
            Some(origin) => Error::new(error.kind(), format!("{origin}: {}", error.message())),
            None => error,
        }
    }

    /// Returns the effective configuration as TOML: every key, with the origin of each one that is set. Credentials in
    /// URLs and keys of private networks are replaced.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub fn to_toml(&self) -> Result<String> {
        let table = self.to_table()?;
        let mut text = String::new();
        for section in SECTIONS {
            let values = table.get(section.name).and_then(Value::as_table);
            text.push_str(&format!("[{}]\n", section.name));
            for key in (section.keys)() {
                match (values.and_then(|values| values.get(*key)), self.by_key.get(&(section.name, *key))) {
                    (Some(value), Some(setting)) => text.push_str(&format!("{key} = {value}  # {}\n", setting.origin)),
                    (Some(value), None) => text.push_str(&format!("{key} = {value}\n")),
                    (None, _) => text.push_str(&format!("# {key} is not set\n")),
                }
            }
            text.push('\n');
        }
        text.truncate(text.trim_end().len() + 1);
        Ok(text)
    }

    /// Returns the effective configuration as nested tables, without credentials. Keys without a default that are not
    /// set are omitted.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub fn to_table(&self) -> Result<Table> {
        self.config()?;
        let mut shown = Value::Table(self.table()?);
        hide_credentials(&mut shown);
        Ok(shown.as_table().cloned().unwrap_or_default())
    }

    /// Returns the effective configuration as JSON, without the credentials in URLs.
    pub(super) fn shown(&self) -> Result<String> {
        let mut values = Value::Table(self.table()?);
        hide_credentials(&mut values);
        serde_json::to_string(&values).map_err(|e| Error::internal("the configuration is not JSON").with_source(e))
    }

    fn table(&self) -> Result<Table> {
        let mut table: Table = toml::from_str(Config::DEFAULT_TEXT)
            .map_err(|e| Error::internal("the built-in configuration is invalid").with_source(e))?;
        for section in SECTIONS {
            let values = table.entry(section.name).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(values) = values else { continue };
            for (key, set) in (section.values)(self)? {
                match (values.get_mut(&key), set) {
                    // A table sets some of its keys.
                    (Some(Value::Table(defaults)), Value::Table(set)) => defaults.extend(set),
                    (_, value) => drop(values.insert(key, value)),
                }
            }
        }
        Ok(table)
    }
}

/// Whether Kubernetes or Docker set the variable for a service whose name has the same prefix:
/// `IPFRS_SERVICE_PORT=8080`, `IPFRS_PORT_8080_TCP_ADDR=10.0.0.1`, `IPFRS_PORT=tcp://10.0.0.1:8080`.
fn is_service_link(name: &str, text: &str) -> bool {
    ["_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"].iter().any(|part| name.contains(part))
        || ["tcp://", "udp://"].iter().any(|scheme| text.starts_with(scheme))
}

fn from_text(text: &str, origin: Origin) -> Setting {
    // As in the file: 8080, true, [1, 2], "text". Text that is not a TOML value is a string without quotes.
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok().filter(|table| table.len() == 1);
    let value = parsed.and_then(|mut table| table.remove("value"));
    let value = value.unwrap_or_else(|| Value::String(text.to_owned()));
    Setting { value, text: Some(text.to_owned()), origin, entries: BTreeMap::new() }
}

/// Returns the value of `setting` in a form that `T` accepts. Every section has defaults for all keys, so a single
/// key is a complete section, and an error relates to that key.
fn value_for<T: DeserializeOwned>(section: &str, key: &str, setting: &Setting) -> Result<Value> {
    let deserialize_alone =
        |value: &Value| T::deserialize(Table::from_iter([(key.to_owned(), value.clone())])).map(drop);
    let Err(error) = deserialize_alone(&setting.value) else { return Ok(setting.value.clone()) };
    if let Some(text) = &setting.text {
        let text = Value::String(text.clone());
        if deserialize_alone(&text).is_ok() {
            return Ok(text);
        }
    }
    if (section, key) == ("auth", "rpc") {
        // The value and the message may contain a secret, wherever it was written.
        let forms = "a table of users, each with `secret`, a text, and `paths`, a list of texts";
        return Err(Error::invalid(format!("{}: auth.rpc must be {forms}", setting.origin)));
    }
    if let Some(wrong) = wrong_entry(section, key, setting, deserialize_alone) {
        return Err(wrong);
    }
    let expected = in_plain_words(error.message());
    let mut value = setting.value.clone();
    hide_credentials(&mut value);
    Err(Error::new(ErrorKind::InvalidInput, format!("{}: {section}.{key} = {value}: {expected}", setting.origin)))
}

/// Returns the error for the first entry of a table that is not accepted by itself.
fn wrong_entry(
    section: &str,
    key: &str,
    setting: &Setting,
    accept: impl Fn(&Value) -> std::result::Result<(), toml::de::Error>,
) -> Option<Error> {
    setting.value.as_table()?.iter().find_map(|(name, entry)| {
        let mut alone = Value::Table(Table::from_iter([(name.clone(), entry.clone())]));
        let error = accept(&alone).err()?;
        hide_credentials(&mut alone);
        let origin = setting.entries.get(name).unwrap_or(&setting.origin);
        let shown = shown_name(name);
        let (value, expected) = (&alone[name.as_str()], in_plain_words(error.message()));
        Some(Error::invalid(format!("{origin}: {section}.{key}.{shown} = {value}: {expected}")))
    })
}

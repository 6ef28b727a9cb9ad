//! The directory of a repo: configuration, datastores and keys.

use std::env;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_core::Base;
use serde_json::Value;

use super::flatfs::{Flatfs, from_base32};
use super::leveldb::LevelDb;
use super::pins::PinStore;

/// Maximum wait for a daemon that may run on the repo.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Beginning of the names of key files.
const KEY_PREFIX: &str = "key_";
/// Maximum length of a key file, in bytes.
const MAX_KEY_BYTES: u64 = 64 * 1024;
/// Length of the key of a private network, in bytes.
const SWARM_KEY_BYTES: usize = 32;

/// A repo of Kubo on this machine.
#[derive(Debug)]
pub(crate) struct KuboRepo {
    path: PathBuf,
    pub(crate) config: Value,
}

impl KuboRepo {
    /// Opens a repo.
    ///
    /// # Errors
    /// If the directory is no repo of Kubo, or a daemon is running on it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = path.join("config");
        let text = fs::read_to_string(&file)
            .with_context(|| format!("{} is no repo of Kubo: cannot read {}", path.display(), file.display()))?;
        let config = serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))?;
        if let Some(address) = running_daemon(path) {
            bail!(
                "a daemon is running on {}: stop it, or use --from http://{address} to read through it",
                path.display()
            );
        }
        Ok(Self { path: path.to_owned(), config })
    }

    /// Opens the datastore with the blocks.
    pub(crate) fn blocks(&self) -> Result<Flatfs> {
        Flatfs::open(&self.datastore("/blocks", "flatfs", "blocks")?)
    }

    /// Opens the datastore with the pins.
    pub(crate) fn pins(&self) -> Result<PinStore> {
        PinStore::open(&self.datastore("/", "levelds", "datastore")?)
    }

    /// Checks that all blocks are in the datastore, and none in files (`ipfs add --nocopy`).
    ///
    /// # Errors
    /// With the number of the blocks that are in files.
    pub(crate) fn check_filestore(&self) -> Result<()> {
        let mut count = 0_u64;
        LevelDb::open(&self.datastore("/", "levelds", "datastore")?)?.scan(b"/filestore/", |_, _| {
            count += 1;
            Ok(())
        })?;
        if count > 0 {
            bail!(
                "{count} blocks of {} are in files (filestore), which only Kubo reads: start Kubo and use --from URL",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Returns the directory that contains the repo, which is the root of Kubo's filestore.
    pub(crate) fn parent(&self) -> Option<PathBuf> {
        Some(fs::canonicalize(&self.path).ok()?.parent()?.to_owned())
    }

    /// Returns the key of its private network in hexadecimal digits, if it is part of one.
    pub(crate) fn swarm_key(&self) -> Result<Option<String>> {
        let file = self.path.join("swarm.key");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
        };
        let mut lines = text.lines().map(str::trim).skip(1);
        let key = match (lines.next(), lines.next()) {
            (Some("/base16/"), Some(key)) => Base::Base16Lower.decode(key.to_ascii_lowercase()).ok(),
            (Some("/base64/"), Some(key)) => Base::Base64Pad.decode(key).ok(),
            _ => None,
        };
        match key.filter(|key| key.len() == SWARM_KEY_BYTES) {
            Some(key) => Ok(Some(Base::Base16Lower.encode(key))),
            None => bail!("{} is no key of {SWARM_KEY_BYTES} bytes in /base16/ or /base64/", file.display()),
        }
    }

    /// Returns the denylists that Kubo reads: those of the machine, of the user, and of the repo.
    pub(crate) fn denylists(&self) -> Vec<PathBuf> {
        let of_user = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let of_user = of_user.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")));
        let repo = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directories = [Some(PathBuf::from("/etc")), of_user].into_iter().flatten().map(|path| path.join("ipfs"));
        let mut all = Vec::new();
        for directory in directories.chain([repo]) {
            let files = fs::read_dir(directory.join("denylists")).into_iter().flatten().flatten();
            let lists = files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "deny"));
            let mut lists: Vec<_> = lists.collect();
            lists.sort();
            all.extend(lists);
        }
        all
    }

    /// Returns the directory of a datastore, which must have a certain type.
    fn datastore(&self, mount: &str, kind: &str, default: &str) -> Result<PathBuf> {
        let mounts = self.config.pointer("/Datastore/Spec/mounts").and_then(Value::as_array);
        let found = mounts.into_iter().flatten().find(|spec| spec["mountpoint"] == mount);
        let Some(spec) = found else {
            bail!("the datastore of {} is not flatfs with LevelDB: start Kubo and use --from URL", self.path.display())
        };
        // Measured datastores wrap another one.
        let spec = if spec["type"] == "measure" { &spec["child"] } else { spec };
        if spec["type"] != kind {
            bail!(
                "the datastore at {mount} of {} has the type {}, and only {kind} can be read: start Kubo and use --from URL",
                self.path.display(),
                spec["type"]
            );
        }
        Ok(self.path.join(spec["path"].as_str().unwrap_or(default)))
    }

    /// Returns the keys as names and libp2p protobufs.
    pub(crate) fn keys(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let directory = self.path.join("keystore");
        let mut keys = Vec::new();
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(keys),
            Err(e) => return Err(e).with_context(|| format!("cannot list {}", directory.display())),
        };
        for entry in entries {
            let entry = entry?;
            let file = entry.file_name();
            let name = file.to_str().and_then(|name| name.strip_prefix(KEY_PREFIX));
            let name = name.and_then(|name| String::from_utf8(from_base32(&name.to_uppercase())?).ok());
            let Some(name) = name else { continue };
            if entry.metadata()?.len() > MAX_KEY_BYTES {
                bail!("{} is too long for a key", entry.path().display());
            }
            keys.push((name, fs::read(entry.path()).with_context(|| format!("cannot read the key {file:?}"))?));
        }
        keys.sort();
        Ok(keys)
    }

    /// Returns the key of the node as a libp2p protobuf.
    pub(crate) fn identity(&self) -> Result<Option<Vec<u8>>> {
        use base64::Engine;
        let key = self.config.pointer("/Identity/PrivKey").and_then(Value::as_str);
        let decoded = key.map(|key| base64::engine::general_purpose::STANDARD.decode(key)).transpose();
        decoded.map_err(|_| anyhow!("Identity.PrivKey in {} is not base64", self.path.join("config").display()))
    }
}

/// Returns the address of a daemon that responds on a repo.
fn running_daemon(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path.join("api")).ok()?;
    // /ip4/127.0.0.1/tcp/5001
    let mut parts = text.trim().trim_start_matches('/').split('/');
    let (Some("ip4" | "ip6" | "dns" | "dns4"), Some(host), Some("tcp"), Some(port)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    use std::net::ToSocketAddrs;
    let socket = address.to_socket_addrs().ok()?.next()?;
    TcpStream::connect_timeout(&socket, PROBE_TIMEOUT).ok().map(|_| address)
}

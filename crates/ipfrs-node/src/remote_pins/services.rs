//! The pinning services of a node: `<repo>/pinning-services.json`, which only its owner can read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Error, ErrorKind, Result};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::off_workers;
use crate::private_file::{Exposed, read_private, write_private};

/// Name of the file in the repo.
const FILE: &str = "pinning-services.json";

/// Largest number of services.
const MAX_SERVICES: usize = 1_000;
/// Longest name, endpoint and key, in bytes.
const MAX_TEXT_BYTES: usize = 4_096;

/// A pinning service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinningService {
    /// Its name on this node.
    pub name: String,
    /// URL of its API, without `/pins`.
    pub endpoint: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    services: BTreeMap<String, SavedService>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedService {
    endpoint: String,
    key: Zeroizing<String>,
}

/// The file. It is read again for each use.
#[derive(Debug)]
pub(crate) struct PinningServices {
    path: Arc<Path>,
    /// Held during changes.
    changing: Arc<Mutex<()>>,
}

impl PinningServices {
    pub(crate) fn new(repo: &Path) -> Self {
        Self { path: repo.join(FILE).into(), changing: Arc::default() }
    }

    pub(super) async fn list(&self) -> Result<Vec<PinningService>> {
        let services = self.read().await?.services.into_iter();
        Ok(services.map(|(name, service)| PinningService { name, endpoint: service.endpoint }).collect())
    }

    /// Returns the endpoint and the key of a service.
    pub(super) async fn access(&self, name: &str) -> Result<(Url, Zeroizing<String>)> {
        if name.is_empty() {
            return Err(Error::invalid("remote pinning service name not specified"));
        }
        let unknown = || Error::not_found("service not known");
        let service = self.read().await?.services.remove(name).ok_or_else(unknown)?;
        Ok((parse_endpoint(&service.endpoint)?, service.key))
    }

    pub(super) async fn add(&self, name: &str, endpoint: &str, key: &str) -> Result<()> {
        let endpoint = parse_endpoint(endpoint)?;
        if let Some(long) = [name, endpoint.as_str(), key].iter().find(|text| text.len() > MAX_TEXT_BYTES) {
            return Err(Error::too_large(format!(
                "an argument has {} bytes, over the limit of {MAX_TEXT_BYTES}",
                long.len()
            )));
        }
        if name.is_empty() || key.chars().any(char::is_control) {
            return Err(Error::invalid("a service needs a name, and a key without control characters"));
        }
        let endpoint = endpoint.as_str().trim_end_matches('/').to_owned();
        let (name, service) = (name.to_owned(), SavedService { endpoint, key: key.to_owned().into() });
        self.change(move |services| {
            if services.contains_key(&name) {
                return Err(Error::new(ErrorKind::Conflict, format!("service already present: {name:?}")));
            }
            if services.len() == MAX_SERVICES {
                return Err(Error::too_large(format!("there are {MAX_SERVICES} services already: remove one")));
            }
            services.insert(name, service);
            Ok(true)
        })
        .await
    }

    pub(super) async fn remove(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.change(move |services| Ok(services.remove(&name).is_some())).await
    }

    /// Reads, changes and writes the file, one change after the other. `change` returns whether it changed anything. A
    /// change that has begun ends even if its client leaves.
    async fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, SavedService>) -> Result<bool> + Send + 'static,
    ) -> Result<()> {
        let changing = self.changing.clone().lock_owned().await;
        let path = PathBuf::from(&*self.path);
        off_workers(move || {
            let _changing = changing;
            let mut saved = read(&path)?;
            if !change(&mut saved.services)? {
                return Ok(());
            }
            let bytes = serde_json::to_vec_pretty(&saved).map(Zeroizing::new);
            let bytes =
                bytes.map_err(|e| Error::internal("the pinning services cannot be written as JSON").with_source(e))?;
            write_private(&path, &bytes).map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))
        })
        .await
    }

    async fn read(&self) -> Result<Saved> {
        let path = PathBuf::from(&*self.path);
        off_workers(move || read(&path)).await
    }
}

fn read(path: &Path) -> Result<Saved> {
    let Some(bytes) = read_private(path, Exposed::Refuse)? else { return Ok(Saved::default()) };
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::corrupt(format!("{FILE} in the repo is malformed: {e}: mend or remove it")))
}

/// Parses the URL of a service, and removes empty segments of its path.
fn parse_endpoint(text: &str) -> Result<Url> {
    let mut url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
        .ok_or_else(|| Error::invalid("service endpoint must be a valid HTTP URL"))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Error::invalid("service endpoint should be provided without any query parameters"));
    }
    let path = url.path().split('/').filter(|segment| !segment.is_empty()).collect::<Vec<_>>().join("/");
    if path == "pins" || path.ends_with("/pins") {
        return Err(Error::invalid("service endpoint should be provided without the /pins suffix"));
    }
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_kubo_reads_them() {
        for (text, endpoint) in [
            ("http://127.0.0.1:5000", "http://127.0.0.1:5000/"),
            ("https://example.com//api///v1/", "https://example.com/api/v1"),
            ("https://example.com/pins/v1", "https://example.com/pins/v1"),
        ] {
            assert_eq!(parse_endpoint(text).unwrap().as_str(), endpoint, "{text}");
        }
        for (text, why) in [
            ("example.com", "must be a valid HTTP URL"),
            ("xyz://example.com", "must be a valid HTTP URL"),
            ("", "must be a valid HTTP URL"),
            ("https://example.com/pins", "without the /pins suffix"),
            ("https://example.com/api/pins/", "without the /pins suffix"),
            ("https://example.com/?a=b", "without any query parameters"),
        ] {
            assert!(parse_endpoint(text).unwrap_err().to_string().contains(why), "{text}");
        }
    }
}

//! Denylist files: finding them, loading them and noticing changes.
//!
//! The files are examined twice a second. Change notifications from the kernel would save a few `stat` calls. They
//! would miss changes on network file systems and behind symlinks that are swapped, which is how containers mount
//! lists.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};
use tokio::time::sleep;

use super::list::List;
use super::metrics::DenylistMetrics;
use super::rules::{Denylists, Named, Shared};
use super::watched::{NewDenylists, Signature, Watched};
use crate::fingerprint::Fingerprints;

/// Interval at which the files are examined.
const PERIOD: Duration = Duration::from_millis(500);

/// Maximum number of periods that loading is postponed because the files keep changing. Usually a change is loaded
/// once the files have stayed the same for one period, so that a file is not read while it is being written.
const MAX_PATIENCE: u32 = 10;

/// Maximum number of malformed lines that are logged individually for each list.
const MAX_WARNINGS: usize = 10;

const READ_AHEAD_BYTES: usize = 256 * 1024;

/// Reads one list. The returned signature is taken before the content is read.
pub(super) fn read_list(path: &Path, fingerprints: &Fingerprints) -> Result<(List, Signature)> {
    let failed = |e| Error::io(format_args!("cannot read the denylist {}", path.display()), e);
    // Opening a pipe would block until a process opens its other end, so the file type is checked first.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::invalid(format!("the denylist {} is not a regular file", path.display())));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let list = List::read(BufReader::with_capacity(READ_AHEAD_BYTES, file), fingerprints);
    let list = list.map_err(|e| Error::new(e.kind(), format!("the denylist {}: {e}", path.display())))?;
    Ok((list, Signature::of(&metadata)))
}

/// One file of a source, as found by a survey.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    source: usize,
    path: PathBuf,
    signature: Option<Signature>,
}

impl Denylists {
    /// Loads the lists of `sources`: files, and directories, whose `*.deny` files are loaded in the order of their
    /// names. Paths are relative to the repo. Returns `None` if there are no sources.
    ///
    /// # Errors
    /// The message names the file or directory that is missing, cannot be read, or is not a denylist.
    pub(crate) async fn open(repo: &Path, sources: &[PathBuf], metrics: DenylistMetrics) -> Result<Option<Self>> {
        if sources.is_empty() {
            return Ok(None);
        }
        let denylists = Self(Arc::new(Shared::new(Vec::new(), metrics)));
        denylists.replace(denylists.read(repo, sources).await?).await?;
        let watching = denylists.watch();
        *denylists.0.watching.lock() = Some(watching);
        Ok(Some(denylists))
    }

    /// Reads the lists of `sources`, as for [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) async fn read(&self, repo: &Path, sources: &[PathBuf]) -> Result<NewDenylists> {
        let sources: Vec<_> = sources.iter().map(|source| repo.join(source)).collect();
        let this = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut watched = Vec::new();
            for (source, path) in sources.iter().enumerate() {
                for path in files_of(path)? {
                    let (list, signature) = this.load(&path, None)?;
                    watched.push(Watched { source, path, seen: Some(signature), list: Some(list), failure: None });
                }
            }
            Ok::<_, Error>(NewDenylists { sources, watched })
        });
        reading.await.map_err(|e| Error::internal("loading the denylists failed").with_source(e))?
    }

    /// Puts lists in force in place of all others, and watches their files from now on.
    ///
    /// # Errors
    /// The blocking thread failed.
    pub(super) async fn replace(&self, new: NewDenylists) -> Result<()> {
        let this = self.clone();
        // Waits while the files are being examined.
        let replacing = tokio::task::spawn_blocking(move || {
            let NewDenylists { sources, watched: new } = new;
            let mut watched = this.0.watched.lock();
            let is_left_out = |old: &&Watched| !new.iter().any(|new| new.path == old.path);
            for gone in watched.iter().filter(is_left_out) {
                this.0.metrics.removed(&gone.path);
                tracing::info!(denylist = %gone.path.display(), "denylist removed");
            }
            *this.0.sources.write() = sources;
            *watched = new;
            this.put_in_force(&watched);
            // Files may have changed since they were read.
            let seen = this.survey(&watched);
            this.take_over(&mut watched, seen);
        });
        replacing.await.map_err(|e| Error::internal("the denylists could not be replaced").with_source(e))
    }

    /// Stops watching the files.
    pub(crate) fn close(&self) {
        if let Some(watching) = self.0.watching.lock().take() {
            watching.abort();
        }
    }

    /// Loads a list from its file and logs the result. Problems that `before` already had are not logged again.
    fn load(&self, path: &Path, before: Option<&List>) -> Result<(Arc<List>, Signature)> {
        let begun = Instant::now();
        let (list, signature) = read_list(path, &self.0.fingerprints)?;
        let known = before.map_or(&[][..], List::problems);
        let is_new = |(line, error): &&(u32, Error)| {
            !known.iter().any(|(at, known)| (at, known.message()) == (line, error.message()))
        };
        for (line, error) in list.problems().iter().filter(is_new).take(MAX_WARNINGS) {
            tracing::warn!(denylist = %path.display(), line, %error, "ignored a line of a denylist that is not a rule");
        }
        let (name, rules, malformed) = (list.name(), list.count(), list.malformed());
        let milliseconds = begun.elapsed().as_millis();
        tracing::info!(denylist = %path.display(), name, rules, malformed, milliseconds, "denylist loaded");
        Ok((Arc::new(list), signature))
    }

    fn put_in_force(&self, watched: &[Watched]) {
        let named = |watched: &Watched| Some(Named { path: watched.path.clone(), list: watched.list.clone()? });
        let lists: Vec<_> = watched.iter().filter_map(named).collect();
        let counts: Vec<_> = lists.iter().map(|named| (named.path.clone(), named.list.count())).collect();
        self.exchange(lists);
        // Not before: the rules that a metric shows are in force.
        counts.iter().for_each(|(path, rules)| self.0.metrics.loaded(path, *rules));
    }

    /// Watches the files until the denylists are closed or dropped.
    fn watch(&self) -> tokio::task::JoinHandle<()> {
        let shared = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let (mut before, mut waited) = (Vec::new(), 0);
            loop {
                sleep(PERIOD).await;
                let Some(shared) = shared.upgrade() else { return };
                let reloading = tokio::task::spawn_blocking(move || {
                    let this = Self(shared);
                    let mut watched = this.0.watched.lock();
                    this.reload_changed(&mut watched, &mut before, &mut waited);
                    drop(watched);
                    (before, waited)
                });
                match reloading.await {
                    Ok(state) => (before, waited) = state,
                    Err(error) => return tracing::error!(%error, "denylists are no longer watched: restart the daemon"),
                }
            }
        })
    }

    /// Loads changed files once they have stopped changing.
    fn reload_changed(&self, watched: &mut Vec<Watched>, before: &mut Vec<Seen>, waited: &mut u32) {
        let seen = self.survey(watched);
        let is_same =
            |(watched, seen): (&Watched, &Seen)| (&watched.path, watched.seen) == (&seen.path, seen.signature);
        if watched.len() == seen.len() && watched.iter().zip(&seen).all(is_same) {
            (*before, *waited) = (Vec::new(), 0);
        } else if seen != *before && *waited < MAX_PATIENCE {
            (*before, *waited) = (seen, *waited + 1);
        } else {
            (*before, *waited) = (Vec::new(), 0);
            self.take_over(watched, seen);
        }
    }

    /// Returns the current files of all sources.
    fn survey(&self, watched: &[Watched]) -> Vec<Seen> {
        let mut all = Vec::new();
        for (source, path) in self.0.sources.read().iter().enumerate() {
            match files_of(path) {
                Ok(files) => all.extend(files.into_iter().map(|path| {
                    let signature = fs::metadata(&path).ok().map(|metadata| Signature::of(&metadata));
                    Seen { source, path, signature }
                })),
                // The source existed before, so its lists stay in force.
                Err(_) => {
                    let known = watched.iter().filter(|watched| watched.source == source);
                    all.extend(known.map(|known| Seen { source, path: known.path.clone(), signature: None }));
                }
            }
        }
        all
    }

    /// Loads new and changed files. If loading fails, the earlier rules stay in force. A file with invalid content is
    /// tried again once it changes; after any other error the next look tries again, because the cause may be
    /// temporary.
    fn take_over(&self, watched: &mut Vec<Watched>, seen: Vec<Seen>) {
        let mut known = std::mem::take(watched);
        let mut has_changed = false;
        for Seen { source, path, signature } in seen {
            let old = known.iter().position(|old| old.path == path && old.source == source);
            let old = old.map(|at| known.swap_remove(at));
            let (list, last_failure) = match old {
                Some(old) if old.seen == signature => {
                    watched.push(old);
                    continue;
                }
                Some(old) => (old.list, old.failure),
                None => (None, None),
            };
            match self.load(&path, list.as_deref()) {
                Ok((new, seen)) => {
                    has_changed = true;
                    watched.push(Watched { source, path, seen: Some(seen), list: Some(new), failure: None });
                }
                Err(error) => {
                    let is_of_content =
                        matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge);
                    let (seen, failure) = (signature.filter(|_| is_of_content), Some(error.to_string()));
                    if failure != last_failure {
                        self.0.metrics.reload_failed();
                        tracing::warn!(%error, "a denylist cannot be loaded: its previous rules stay in force");
                    }
                    watched.push(Watched { source, path, seen, list, failure });
                }
            }
        }
        for gone in known {
            has_changed = true;
            self.0.metrics.removed(&gone.path);
            tracing::info!(denylist = %gone.path.display(), "denylist removed");
        }
        if has_changed {
            self.put_in_force(watched);
        }
    }
}

/// Returns the files of a source.
pub(super) fn files_of(source: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| {
        let remedy = "create it, or remove it from gateway.denylists";
        Error::io(format_args!("cannot read the denylist {} ({remedy})", source.display()), e)
    };
    if !fs::metadata(source).map_err(failed)?.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(source).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "deny") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

impl Shared {
    fn new(sources: Vec<PathBuf>, metrics: DenylistMetrics) -> Self {
        Self {
            rules: Default::default(),
            generation: Default::default(),
            fingerprints: Fingerprints::default(),
            sources: RwLock::new(sources),
            watched: Mutex::default(),
            metrics,
            watching: Default::default(),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.get_mut().take() {
            watching.abort();
        }
    }
}

impl Denylists {
    /// Creates lists without files, for tests of their rules.
    #[cfg(test)]
    pub(super) fn of_texts(texts: &[&str], metrics: DenylistMetrics) -> Self {
        let shared = Shared::new(Vec::new(), metrics);
        let lists = texts.iter().enumerate().map(|(at, text)| {
            let list = List::read(std::io::Cursor::new(text), &shared.fingerprints).unwrap();
            Named { path: format!("{at}.deny").into(), list: Arc::new(list) }
        });
        let rules = super::rules::Rules::new(lists.collect());
        *shared.rules.write() = Arc::new(rules);
        Self(Arc::new(shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of this process is a file that `stat` and `open` accept but that cannot be read from its start.
    #[cfg(target_os = "linux")]
    #[test]
    fn unreadable_denylist_is_retried_and_logged_once() {
        let metrics = DenylistMetrics::new().unwrap();
        let denylists = Denylists(Arc::new(Shared::new(vec!["/proc/self/mem".into()], metrics.clone())));
        let mut watched = Vec::new();
        for _ in 0..3 {
            let seen = denylists.survey(&watched);
            assert!(
                seen[0]
                    .signature
                    .is_some_and(|signature| watched.iter().all(|at: &Watched| at.seen != Some(signature)))
            );
            denylists.take_over(&mut watched, seen);
        }
        assert!(watched[0].failure.is_some());
        assert_eq!(metrics.reload_failures.get(), 1);
    }

    #[test]
    fn invalid_denylist_is_read_again_only_after_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad.deny");
        fs::write(&path, "version: 2\n---\n").unwrap();
        let metrics = DenylistMetrics::new().unwrap();
        let denylists = Denylists(Arc::new(Shared::new(vec![path], metrics)));
        let mut watched = Vec::new();
        let seen = denylists.survey(&watched);
        denylists.take_over(&mut watched, seen);
        assert_eq!(watched[0].seen, denylists.survey(&watched)[0].signature);
    }
}

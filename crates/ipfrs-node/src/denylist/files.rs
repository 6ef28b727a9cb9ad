//! Where denylists lie, how they are loaded, and how changes of theirs are noticed.
//!
//! The files are looked at twice a second. Asking the kernel to tell of changes would save a few `stat` calls, and miss
//! changes on file systems of other machines and behind symlinks that are exchanged, which is how lists are mounted into
//! containers.

use std::fs::{self, File, Metadata};
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::time::sleep;

use super::list::List;
use super::{DenylistMetrics, Denylists, Named, Shared};
use crate::fingerprint::Fingerprints;

/// How often files are looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// A change is taken over once the files have stayed the same for a period: what is being written is not read half. What
/// changes all the time is read nevertheless after so many periods.
const MAX_PATIENCE: u32 = 10;

/// Lines that are no rules and are logged one by one, for each list.
const MAX_WARNINGS: usize = 10;

const READ_AHEAD_BYTES: usize = 256 * 1024;

/// What tells one state of a file from another: device, inode, size, and the time of the last change to any of these or
/// to the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Signature {
    fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Reads one list; the signature is from before.
pub(super) fn read_list(path: &Path, fingerprints: &Fingerprints) -> Result<(List, Signature)> {
    let failed = |e| Error::io(format_args!("cannot read the denylist {}", path.display()), e);
    // Before opening, which would wait for whoever writes to a pipe.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::invalid(format!("the denylist {} is no regular file", path.display())));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let list = List::read(BufReader::with_capacity(READ_AHEAD_BYTES, file), fingerprints);
    let list = list.map_err(|e| Error::new(e.kind(), format!("the denylist {}: {e}", path.display())))?;
    Ok((list, Signature::of(&metadata)))
}

/// A file as it was seen last, and the list that it gave.
#[derive(Debug)]
struct Watched {
    /// Which of the sources has brought it.
    source: usize,
    path: PathBuf,
    /// `None` where it could not be looked at.
    seen: Option<Signature>,
    /// The rules that are in force, be they of this state or of an earlier one; `None` where there was no list yet.
    list: Option<Arc<List>>,
    /// Why it could not be loaded when that was last tried.
    failure: Option<String>,
}

/// What a look at a source shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    source: usize,
    path: PathBuf,
    signature: Option<Signature>,
}

impl Denylists {
    /// Loads the lists of `sources`: files, and directories of files `*.deny`, which are taken in the order of their names;
    /// relative to the repo. `None` where there are no sources.
    ///
    /// # Errors
    /// Names the file or directory that is missing, cannot be read, or is not a denylist.
    pub(crate) async fn open(repo: &Path, sources: &[PathBuf], metrics: DenylistMetrics) -> Result<Option<Self>> {
        if sources.is_empty() {
            return Ok(None);
        }
        let sources = sources.iter().map(|source| repo.join(source)).collect();
        let loading = tokio::task::spawn_blocking(move || {
            let denylists = Self(Arc::new(Shared::new(sources, metrics)));
            let mut watched = Vec::new();
            for (source, path) in denylists.0.sources.iter().enumerate() {
                for path in files_of(path)? {
                    let (list, signature) = denylists.load(&path, None)?;
                    watched.push(Watched { source, path, seen: Some(signature), list: Some(list), failure: None });
                }
            }
            denylists.put_in_force(&watched);
            Ok((denylists, watched))
        });
        let (denylists, watched) =
            loading.await.map_err(|e| Error::internal("loading the denylists failed").with_source(e))??;
        let watching = denylists.watch(watched);
        *denylists.0.watching.lock() = Some(watching);
        Ok(Some(denylists))
    }

    /// Looks at the files no more.
    pub(crate) fn close(&self) {
        if let Some(watching) = self.0.watching.lock().take() {
            watching.abort();
        }
    }

    /// A list from its file, with the log lines about it: what was wrong `before` already is not told again.
    fn load(&self, path: &Path, before: Option<&List>) -> Result<(Arc<List>, Signature)> {
        let begun = Instant::now();
        let (list, signature) = read_list(path, &self.0.fingerprints)?;
        let known = before.map_or(&[][..], List::problems);
        let is_new = |(line, error): &&(u32, Error)| {
            !known.iter().any(|(at, known)| (at, known.message()) == (line, error.message()))
        };
        for (line, error) in list.problems().iter().filter(is_new).take(MAX_WARNINGS) {
            tracing::warn!(denylist = %path.display(), line, %error, "this line of a denylist is no rule and is passed over");
        }
        let (name, rules, malformed) = (list.name(), list.count(), list.malformed());
        let milliseconds = begun.elapsed().as_millis();
        tracing::info!(denylist = %path.display(), name, rules, malformed, milliseconds, "denylist loaded");
        Ok((Arc::new(list), signature))
    }

    fn put_in_force(&self, watched: &[Watched]) {
        let named = |watched: &Watched| Some(Named { path: watched.path.clone(), list: watched.list.clone()? });
        let lists: Vec<_> = watched.iter().filter_map(named).collect();
        lists.iter().for_each(|named| self.0.metrics.loaded(&named.path, named.list.count()));
        self.exchange(lists);
    }

    /// Looks at the files until the denylists are closed or gone.
    fn watch(&self, mut watched: Vec<Watched>) -> tokio::task::JoinHandle<()> {
        let shared = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let (mut before, mut waited) = (Vec::new(), 0);
            loop {
                sleep(PERIOD).await;
                let Some(shared) = shared.upgrade() else { return };
                let looking = tokio::task::spawn_blocking(move || {
                    Self(shared).look(&mut watched, &mut before, &mut waited);
                    (watched, before, waited)
                });
                match looking.await {
                    Ok(state) => (watched, before, waited) = state,
                    Err(error) => return tracing::error!(%error, "denylists are not looked at any more: restart"),
                }
            }
        })
    }

    /// Takes over what has changed, once it does so no more.
    fn look(&self, watched: &mut Vec<Watched>, before: &mut Vec<Seen>, waited: &mut u32) {
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

    /// What is there now.
    fn survey(&self, watched: &[Watched]) -> Vec<Seen> {
        let mut all = Vec::new();
        for (source, path) in self.0.sources.iter().enumerate() {
            match files_of(path) {
                Ok(files) => all.extend(files.into_iter().map(|path| {
                    let signature = fs::metadata(&path).ok().map(|metadata| Signature::of(&metadata));
                    Seen { source, path, signature }
                })),
                // It was there: its lists stay.
                Err(_) => {
                    let known = watched.iter().filter(|watched| watched.source == source);
                    all.extend(known.map(|known| Seen { source, path: known.path.clone(), signature: None }));
                }
            }
        }
        all
    }

    /// Loads what is new or has changed. Where that fails, the rules from before stay, and it is tried again: once the file
    /// changes where what it holds was wrong, else with the next look, since what could not be read now may be read then.
    fn take_over(&self, watched: &mut Vec<Watched>, seen: Vec<Seen>) {
        let mut known = std::mem::take(watched);
        let mut has_changed = false;
        for Seen { source, path, signature } in seen {
            let old = known.iter().position(|old| old.path == path && old.source == source);
            let old = old.map(|at| known.swap_remove(at));
            let (list, told) = match old {
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
                    if failure != told {
                        self.0.metrics.reload_failed();
                        tracing::warn!(%error, "a denylist cannot be loaded: its rules from before stay in force");
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

/// The files of a source.
pub(super) fn files_of(source: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| {
        let remedy = "put it there, or take it out of gateway.denylists";
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
            sources,
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
    /// Lists without files, for tests of what they mean.
    #[cfg(test)]
    pub(super) fn of_texts(texts: &[&str], metrics: DenylistMetrics) -> Self {
        let shared = Shared::new(Vec::new(), metrics);
        let lists = texts.iter().enumerate().map(|(at, text)| {
            let list = List::read(std::io::Cursor::new(text), &shared.fingerprints).unwrap();
            Named { path: format!("{at}.deny").into(), list: Arc::new(list) }
        });
        let rules = super::Rules::new(lists.collect());
        *shared.rules.write() = Arc::new(rules);
        Self(Arc::new(shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of this process is a file that can be looked at and opened, and not be read from its beginning.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_list_that_could_not_be_read_is_tried_again_and_told_of_once() {
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
    fn a_list_that_is_none_is_not_read_again_until_it_changes() {
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

//! Files and directories named on the command line, as bodies of requests.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use ipfrs_rpc::client::{Request, Source, WalkOptions, multipart, size_of_tree};

use crate::progress::Progress;

/// Files, directories and streams named on the command line.
#[derive(Debug)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    /// Returns the files that `paths` name. No path, and the path `-`, mean standard input.
    pub(crate) fn files(paths: &[PathBuf]) -> Result<Self> {
        Self::new(paths, false, &WalkOptions::default(), None)
    }

    /// Same as [`files`](Self::files), with directories if `is_recursive`. Standard input has the name `stdin_name`.
    pub(crate) fn new(
        paths: &[PathBuf],
        is_recursive: bool,
        options: &WalkOptions,
        stdin_name: Option<&str>,
    ) -> Result<Self> {
        let is_stdin = |path: &PathBuf| path == Path::new("-");
        if stdin_name.is_some() && !paths.is_empty() && !paths.iter().any(is_stdin) {
            bail!("--stdin-name needs standard input: give no path, or \"-\"");
        }
        if paths.is_empty() {
            return Ok(Self(vec![stdin(stdin_name)]));
        }
        let source = |path: &PathBuf| {
            if is_stdin(path) { Ok(stdin(stdin_name)) } else { tree(path, is_recursive, options) }
        };
        Ok(Self(paths.iter().map(source).collect::<Result<_>>()?))
    }

    /// Sends the absolute path of each file with it.
    pub(crate) fn send_paths(&mut self) {
        for source in &mut self.0 {
            if let Source::Tree { sends_paths, .. } = source {
                *sends_paths = true;
            }
        }
    }

    /// Starts a thread that computes the total size for `progress`. The upload reports unreadable files. The total is
    /// unknown if standard input is among the sources.
    pub(crate) fn measure(&self, progress: &Progress) {
        let trees = self.0.iter().map(|source| match source {
            Source::Reader { .. } => None,
            Source::Tree { path, options, .. } => Some((path.clone(), options.clone())),
        });
        let (Some(trees), true) = (trees.collect::<Option<Vec<_>>>(), progress.is_shown()) else { return };
        let progress = progress.clone();
        tokio::task::spawn_blocking(move || {
            progress.expect(trees.iter().map(|(path, options)| size_of_tree(path, options)).sum());
        });
    }

    /// Makes the sources the body of `request`, read from disk while the body is sent. `sent` is called with the
    /// number of bytes of content sent.
    pub(crate) fn upload(self, request: Request, sent: impl FnMut(u64) + Send + 'static) -> Result<Request> {
        let (media_type, pieces) = multipart(self.0, sent);
        Ok(request.with_upload(&media_type, pieces)?)
    }
}

fn stdin(file_name: Option<&str>) -> Source {
    let file_name = file_name.unwrap_or_default().to_owned();
    Source::Reader { file_name, content: Box::new(io::stdin()), name: "standard input" }
}

fn tree(path: &Path, is_recursive: bool, options: &WalkOptions) -> Result<Source> {
    let is_followed = options.follow_root || options.follow_all;
    let metadata = if is_followed { path.metadata() } else { path.symlink_metadata() };
    let metadata = metadata.map_err(|e| anyhow!("cannot read {}: {e}", path.display()))?;
    if metadata.is_dir() && !is_recursive {
        bail!("{} is a directory: use -r to add it recursively", path.display());
    }
    Ok(Source::Tree { path: path.to_owned(), options: options.clone(), sends_paths: false })
}

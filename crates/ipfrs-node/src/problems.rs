//! Problems of the repo that remain until the operator ends them.

use ipfrs_core::Result;

use crate::{Node, off_workers};

/// Number of files of a kind that are named.
#[cfg(any(feature = "keys", feature = "pinning"))]
const MAX_NAMED: usize = 10;

/// Returns the first problems of a kind, and how many more there are.
#[cfg(any(feature = "keys", feature = "pinning"))]
fn first_of(mut problems: Vec<String>, what: &str) -> Vec<String> {
    let more = problems.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        problems.truncate(MAX_NAMED);
        problems.push(format!("{more} more {what}"));
    }
    problems
}

impl Node {
    /// Returns the problems of the repo, with their remedies: lost pins, a lost root of the mutable files, lost blocks,
    /// a lost identity (if the repo is read-only), keys and pinning services that cannot be used, damaged pin requests,
    /// and damaged journals of objects. The node works nevertheless.
    ///
    /// # Errors
    /// If the pins, the losses, the keys or the list of journals cannot be read.
    pub async fn problems(&self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        if self.inner.pins.are_lost().await? {
            let what = "the store already had blocks when pins.redb was created, so older pins may be missing: restore \
                        pins.redb from a backup, or pin what must be kept and run `repo gc --force`";
            problems.push(what.to_owned());
        }
        problems.extend(self.inner.mutable_files.lost_root().await.map(str::to_owned));
        problems.extend(self.inner.identity.loss().map(str::to_owned));
        problems.extend(self.lost_blocks().await?);
        problems.extend(self.damaged_journals().await?);
        #[cfg(feature = "keys")]
        problems.extend(first_of(self.unusable_keys().await?, "keys that cannot be used"));
        #[cfg(feature = "pinning")]
        problems.extend(self.pinning_services().await.err().map(|error| error.public_message().into_owned()));
        #[cfg(feature = "pinning")]
        problems.extend(first_of(self.damaged_pin_requests().await?, "damaged pin requests"));
        Ok(problems)
    }

    /// Returns how blocks were lost, with the remedy, unless the operator has acknowledged the loss; see
    /// `ipfrs_store::PackStore::losses`.
    ///
    /// # Errors
    /// If the file with the losses cannot be read.
    pub async fn lost_blocks(&self) -> Result<Option<String>> {
        let losses = self.losses().await?;
        Ok((!losses.is_empty()).then(|| {
            format!(
                "blocks are lost: {}: restore the packs from a backup, or find out with `pin verify` what is \
                 incomplete; then remove the file lost-blocks in the directory of the store",
                losses.join("; ")
            )
        }))
    }

    /// Returns the losses of blocks that the operator has not acknowledged.
    pub(crate) async fn losses(&self) -> Result<Vec<String>> {
        match self.inner.pack.clone() {
            Some(pack) => off_workers(move || pack.losses()).await,
            None => Ok(Vec::new()),
        }
    }
}

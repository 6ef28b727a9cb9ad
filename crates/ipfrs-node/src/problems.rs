//! Problems of the repo that remain until the operator ends them.

use ipfrs_core::Result;

use crate::{Node, off_workers};

impl Node {
    /// Returns the problems of the repo, with their remedies: lost pins, a lost root of the mutable files, and lost
    /// blocks. The node works nevertheless.
    ///
    /// # Errors
    /// If the pins or the losses cannot be read.
    pub async fn problems(&self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        if self.inner.pins.are_lost().await? {
            let what = "the store already had blocks when pins.redb was created, so older pins may be missing: restore \
                        pins.redb from a backup, or pin what must be kept and run `repo gc --force`";
            problems.push(what.to_owned());
        }
        problems.extend(self.inner.mutable_files.lost_root().await.map(str::to_owned));
        problems.extend(self.lost_blocks().await?);
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

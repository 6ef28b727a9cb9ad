//! The part of a DAG that another one has too.

use std::collections::HashSet;
use std::sync::Arc;

use ipfrs_core::{Cid, CidList, Result};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::links;

use crate::dag::Reachable;

/// Maximum number of pairs of nodes that are compared. The rest is walked as if it were new.
const MAX_PAIRS: usize = 1_000_000;

/// Makes a walk of `to` skip each block, with everything below it, to which a node of `from` at the same place links as
/// well. Everything below `from` must be in the store. Only nodes that differ are read.
///
/// # Errors
/// A node cannot be read.
pub(super) async fn skip_common(
    store: &Arc<dyn BlockStore>,
    reachable: &mut Reachable,
    from: &Cid,
    to: &Cid,
) -> Result<()> {
    let mut pairs = vec![(*from, *to)];
    for _ in 0..MAX_PAIRS {
        let Some((from, to)) = pairs.pop() else { break };
        if from == to {
            reachable.skip(&to);
            continue;
        }
        // A leaf has no links, and a node that is missing or broken is what the walk reports.
        let (Some(old), Some(new)) = (links_of(store, &from).await?, links_of(store, &to).await?) else { continue };
        let kept: HashSet<Cid> = old.iter().collect();
        new.iter().filter(|link| kept.contains(link)).for_each(|link| reachable.skip(&link));
        // Replaced links are at the same place if the links before and after them are equal.
        let (old, new): (Vec<_>, Vec<_>) = (old.iter().collect(), new.iter().collect());
        let before = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[before..], &new[before..]);
        let after = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[..old.len() - after], &new[..new.len() - after]);
        pairs.extend(old.iter().copied().zip(new.iter().copied()).filter(|(_, new)| !kept.contains(new)));
    }
    Ok(())
}

/// Returns the links of a node in the store.
async fn links_of(store: &Arc<dyn BlockStore>, cid: &Cid) -> Result<Option<CidList>> {
    Ok(store.get(cid).await?.and_then(|block| links(cid, &block).ok()))
}

//! Gateway data kept with a path cache entry of the Node: the common headers of responses for the path.

use std::sync::OnceLock;

use http::HeaderMap;
use ipfrs_node::PathFacts;

use super::address::Address;

/// Gateway data of a path.
#[derive(Debug)]
pub(super) struct Known {
    /// Address of the content.
    pub(super) address: Address,
    /// Headers of partial responses for the file at the path; see [`super::range_response`].
    pub(super) part_head: OnceLock<HeaderMap>,
}

/// Returns the gateway data of `content_path`, creating it if `facts` has none yet.
pub(super) fn of<'a>(facts: &'a PathFacts, content_path: &str) -> Option<&'a Known> {
    let new = || Known { address: Address::of(content_path), part_head: OnceLock::new() };
    facts.front_end.get_or_init(|| Box::new(new())).downcast_ref()
}

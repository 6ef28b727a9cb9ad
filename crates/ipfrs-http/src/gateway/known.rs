//! What is kept with a path between requests, beside what the Node knows of it: what the heads of its answers have in common.

use std::sync::OnceLock;

use http::HeaderMap;
use ipfrs_node::PathFacts;

use super::address::Address;

/// What is kept with a path.
#[derive(Debug)]
pub(super) struct Known {
    /// Its address.
    pub(super) address: Address,
    /// The headers of answers with a part of the file that it leads to; see [`super::part`].
    pub(super) part_head: OnceLock<HeaderMap>,
}

/// What is kept with the path that `content_path` stands for, of which the Node knows `facts`.
pub(super) fn of<'a>(facts: &'a PathFacts, content_path: &str) -> Option<&'a Known> {
    let new = || Known { address: Address::of(content_path), part_head: OnceLock::new() };
    facts.front_end.get_or_init(|| Box::new(new())).downcast_ref()
}

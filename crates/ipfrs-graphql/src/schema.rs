//! The schema and its limits.

use async_graphql::Schema;
use ipfrs_middleware::Lifecycle;
use ipfrs_node::Node;

use crate::GraphQlConfig;
use crate::limits::{MAX_DIRECTIVES, MAX_RECURSION};
use crate::mutation::Mutation;
use crate::query::Query;
use crate::subscription::Subscription;

/// The schema with its resolvers. Clones share it.
pub(crate) type NodeSchema = Schema<Query, Mutation, Subscription>;

/// Creates the schema over a node.
pub(crate) fn schema(node: &Node, config: &GraphQlConfig, lifecycle: &Lifecycle) -> NodeSchema {
    let builder = Schema::build(Query, Mutation, Subscription)
        .limit_depth(config.max_depth)
        .limit_complexity(config.max_complexity)
        .limit_recursive_depth(MAX_RECURSION)
        .limit_directives(MAX_DIRECTIVES)
        .data(node.clone())
        .data(config.clone())
        .data(lifecycle.clone());
    if config.introspection { builder.finish() } else { builder.disable_introspection().disable_suggestions().finish() }
}

/// Returns the schema in the schema definition language.
#[must_use]
pub fn sdl() -> String {
    Schema::build(Query, Mutation, Subscription).finish().sdl()
}

#[cfg(test)]
mod tests {
    #[test]
    fn schema_is_as_published() {
        insta::assert_snapshot!(super::sdl());
    }
}

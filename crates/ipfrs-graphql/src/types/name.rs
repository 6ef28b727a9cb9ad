//! IPNS names of this node.

use async_graphql::{Context, Object};
use ipfrs_node::NamedKey;

use crate::context::{node, request};
use crate::error::{FieldResult, failed};
use crate::json::text_len;
use crate::scalars::Long;

/// An IPNS name whose key is in this repo.
pub(crate) struct Name(pub(crate) NamedKey);

/// An IPNS name whose key is in this repo.
#[Object]
impl Name {
    /// Local name of the key; self for the identity.
    async fn name(&self) -> &str {
        &self.0.name
    }

    /// The IPNS name.
    async fn id(&self) -> String {
        self.0.id.to_string()
    }

    /// The path that was last published, even if the record has expired; null if nothing was published.
    async fn value(&self, context: &Context<'_>) -> FieldResult<Option<String>> {
        let record = node(context)?.last_ipns_record(&self.0.id).await.map_err(failed)?;
        let Some(record) = record else { return Ok(None) };
        request(context)?.budget.take(text_len(record.value())).map_err(failed)?;
        Ok(Some(String::from_utf8_lossy(record.value()).into_owned()))
    }

    /// Sequence number of the last record.
    async fn sequence(&self, context: &Context<'_>) -> FieldResult<Option<Long>> {
        let record = node(context)?.last_ipns_record(&self.0.id).await.map_err(failed)?;
        Ok(record.map(|record| Long(record.sequence())))
    }
}

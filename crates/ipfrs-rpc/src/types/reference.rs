//! `refs`, `refs/local`, `repo/ls`.

use serde::{Deserialize, Serialize};

/// A line of `refs` and `refs/local`: a content ID or a text with it, or an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Reference {
    #[serde(rename = "Ref")]
    pub r#ref: String,
    pub err: String,
}

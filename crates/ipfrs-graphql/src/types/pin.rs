//! Pins.

use async_graphql::{Context, Enum, Object};
use ipfrs_node::{Pin as NodePin, PinFilter, PinMode};

use super::block::{Block, load};
use crate::error::FieldResult;
use crate::scalars::Cid;

/// Scope of a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub(crate) enum PinType {
    /// One block.
    Direct,
    /// A block and everything below it.
    Recursive,
}

impl From<PinMode> for PinType {
    fn from(mode: PinMode) -> Self {
        match mode {
            PinMode::Direct => Self::Direct,
            PinMode::Recursive => Self::Recursive,
        }
    }
}

impl From<PinType> for PinFilter {
    fn from(pin_type: PinType) -> Self {
        match pin_type {
            PinType::Direct => Self::Direct,
            PinType::Recursive => Self::Recursive,
        }
    }
}

/// A pin, which protects blocks from garbage collection.
pub(crate) struct Pin(pub(crate) NodePin);

/// A pin, which protects blocks from garbage collection.
#[Object]
impl Pin {
    /// Content ID that is pinned.
    async fn cid(&self) -> Cid {
        Cid(self.0.cid)
    }

    /// Scope of the pin.
    #[graphql(name = "type")]
    async fn pin_type(&self) -> PinType {
        self.0.mode.into()
    }

    /// Name of the pin; empty if it has none.
    async fn name(&self) -> &str {
        &self.0.name
    }

    /// The block; null if it is not in this store.
    async fn block(&self, context: &Context<'_>) -> FieldResult<Option<Block>> {
        load(context, self.0.cid).await
    }
}

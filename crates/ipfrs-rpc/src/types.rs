//! The JSON objects of the RPC API and of the native API.
//!
//! Field names are those of Kubo for `/api/v0`, and snake case for `/v1`. Content IDs are text, because the options of
//! a request select their base. Fields that only ipfrs sends are optional when they are read, so that clients also
//! work with Kubo.

#![expect(missing_docs, reason = "most fields are described by their names in the API")]

mod auth;
mod batch;
mod block;
mod commands;
mod dag;
mod failure;
mod files;
mod filestore;
mod import;
mod key;
mod listing;
mod multiformats;
mod name;
mod node;
mod peer;
mod pin;
mod pinning;
mod reference;
mod repo;
mod retrieval;
mod tensor;

pub use auth::{ApiKey, ApiKeys, AuthenticatedCaller, CreatedApiKey, NewApiKey};
pub use batch::{
    BatchBlock, BatchPutStatus, BlockBatch, BlockExistence, BlockExistences, CidList, FailedItem, NewBlock, PutBatch,
    RefusedItem, StoredBatch, StoredItem,
};
pub use block::{BlockStat, RemovedBlock};
pub use commands::{CommandOption, CommandTree, Dependency, LoggedCommand};
pub use dag::{
    CidLink, DagStat, DagStats, ImportedCar, ObjectChange, ObjectChanges, PatchedObject, ResolvedNode, StoredNode,
};
pub use failure::{Failure, RpcFailure};
pub use files::{FileEntry, FileList, FileStat, FlushedFile};
pub use filestore::FileReference;
pub use import::{Added, FileAttributes, ImportProgress, ImportedLine};
pub use key::{Key, Keys, RenamedKey, SignatureCheck, Signed};
pub use listing::{Link, Listing, Listings};
pub use multiformats::{CodeAndName, FormattedCid, InspectedBase, InspectedCid, InspectedCodec, InspectedHash};
pub use name::{InspectedRecord, PublishedName, RecordEntry, RecordValidation, ResolvedPath};
pub use node::{BandwidthTotals, Id, Version};
pub use peer::{
    AddressFilters, BitswapStat, BootstrapPeers, Ledger, Lines, PeerAddresses, PeerIdentity, Peering, PeeringChange,
    PingLine, PubsubState, RoutingEvent, SwarmAddresses, SwarmPeer, SwarmPeers, SwarmStream, Wantlist,
};
pub use pin::{BadNode, PinLine, PinProgress, PinnedLine, Pins, VerifiedPin};
pub use pinning::{
    PinResults, PinState, PinStatus, PinningError, PinningFailure, RemotePin, RemotePinCount, RemoteService,
    RemoteServices, RequestedPin, ServiceStat,
};
pub use reference::Reference;
pub use repo::{
    GcLine, GcProgress, GcSummary, RemovedKey, RepoSnapshot, RepoStat, RepoVersion, SnapshotPack, VerifyLine,
};
pub use retrieval::{RetrievalAttempt, RetrievalReport};
pub use tensor::{ElementStats, Tensor, TensorList, TensorStats, TensorStatsList};

/// Writes `null` for a list that is empty, as Kubo does for some.
fn empty_as_null<S: serde::Serializer, T: serde::Serialize>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&(!list.is_empty()).then_some(list), serializer)
}

/// Reads a value for which Kubo writes `null` if it is empty.
fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + serde::Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    <Option<T> as serde::Deserialize>::deserialize(deserializer).map(Option::unwrap_or_default)
}

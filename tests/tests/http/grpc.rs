//! The gRPC front-end, tested with clients that are generated from the public proto files.

mod blocks;
mod calls;
mod compressed;
mod dags;
mod directories;
mod ends;
mod files;
mod front_door;
mod reflected;
mod tensors;

use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use ipfrs_proto::block::v1::{PutBlockRequest, PutOptions};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::harness::TestGateway;

/// A content ID that no test stores.
pub(crate) const ABSENT: &str = "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am";

pub(crate) fn block_client(gateway: &TestGateway) -> BlockServiceClient<Channel> {
    BlockServiceClient::new(gateway.channel())
}

/// Returns a request that puts a block with default options.
pub(crate) fn raw(data: impl Into<Vec<u8>>) -> PutBlockRequest {
    PutBlockRequest { data: data.into().into(), ..PutBlockRequest::default() }
}

pub(crate) fn with_options(request: PutBlockRequest, change: impl FnOnce(&mut PutOptions)) -> PutBlockRequest {
    let mut options = PutOptions::default();
    change(&mut options);
    PutBlockRequest { options: Some(options), ..request }
}

/// Stores a raw block and returns its content ID.
pub(crate) async fn stored(gateway: &TestGateway, data: impl Into<Vec<u8>>) -> String {
    block_client(gateway).put_block(raw(data)).await.unwrap().into_inner().cid
}

/// Checks the code and the reason of a failed call, and that its details name `field`, if there is one.
pub(crate) fn assert_failed(status: &Status, code: Code, reason: &str, field: Option<&str>) {
    assert_eq!(status.code(), code, "{status}");
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status}"));
    assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, "ipfrs"));
    assert!(!details.request_info().unwrap().request_id.is_empty());
    let named = details.bad_request().map(|bad| bad.field_violations[0].field.clone());
    assert_eq!(named.as_deref(), field, "{status}");
}

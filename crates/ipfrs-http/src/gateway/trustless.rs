//! Hosts that serve only verifiable content (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>).

use super::format::Format;
use super::path::parts;
use crate::config::Namespace;

/// Message for other requests.
pub(super) const OFFER: &str = "this gateway serves only verifiable responses: a block (/ipfs/{cid}?format=raw), a CAR \
                                (/ipfs/{cid}[/path]?format=car) or the record of a name (/ipns/{key}?format=ipns-record); \
                                see https://specs.ipfs.tech/http-gateways/trustless-gateway/";

/// Whether the client can verify the requested content. A block does not prove that a path leads to it, and only the
/// record of a name proves what the name points to.
pub(super) fn is_verifiable(format: Format, content_path: &str) -> bool {
    let names = parts(content_path).count();
    match (Namespace::of_path(content_path), format) {
        (Some(Namespace::Ipfs), Format::Raw) => names == 2,
        (Some(Namespace::Ipfs), Format::Car) => true,
        (Some(Namespace::Ipns), Format::IpnsRecord) => names == 2,
        _ => false,
    }
}

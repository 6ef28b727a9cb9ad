//! `multibase/*`: encoding and decoding of bytes. `super::multipart` reads the file of the body.

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use ipfrs_core::multiformats::{decode_multibase, encode_multibase};
use ipfrs_core::{Base, Error};

use super::args::Args;
use super::cid::named_base;
use super::command_result::CommandResult;
use super::multipart::{self, Parts};
use super::output;
use crate::body::Whole;
use crate::error::RpcError;
use crate::state::AppState;

/// Maximum size of the data, in bytes. Bases that are not powers of two need time that grows with its square.
const MAX_BYTES: usize = 1024 * 1024;

/// Maximum size of data in a base that is no power of two, in bytes.
const MAX_SLOW_BYTES: usize = 16 * 1024;

/// `multibase/encode[?b=]`: encodes the file in the body.
pub(super) async fn encode(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let base = base(&args)?;
    let file = file(&state, request, "file").await?;
    check(base, file.bytes.len())?;
    Ok(respond(encode_multibase(base, &file.bytes), &args))
}

/// `multibase/decode`: decodes the file in the body.
pub(super) async fn decode(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let file = file(&state, request, "encoded_file").await?;
    Ok(respond(decoded(&file.bytes)?, &args))
}

/// `multibase/transcode[?b=]`: converts the file in the body to another base.
pub(super) async fn transcode(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let base = base(&args)?;
    let file = file(&state, request, "encoded_file").await?;
    let data = decoded(&file.bytes)?;
    check(base, data.len())?;
    Ok(respond(encode_multibase(base, &data), &args))
}

fn base(args: &Args) -> Result<Base, RpcError> {
    Ok(named_base(args.text("b").unwrap_or("base64url"))?)
}

async fn file(state: &AppState, request: Request, argument: &str) -> Result<Whole, RpcError> {
    let missing = || RpcError::Request(format!("file argument '{argument}' is required"));
    let boundary = multipart::boundary(request.headers())?.ok_or_else(missing)?;
    let mut parts = Parts::new(&state.memory, request.into_body(), boundary);
    let part = parts.next_file().await?.ok_or_else(missing)?;
    Ok(part.whole(MAX_BYTES, "the data", "convert it in the client").await?)
}

fn decoded(encoded: &[u8]) -> Result<Vec<u8>, Error> {
    // The code of a base that is no power of two.
    if let Some(b'k' | b'K' | b'z' | b'Z') = encoded.first() {
        check(Base::Base58Btc, encoded.len())?;
    }
    let failed = |e: Error| Error::new(e.kind(), format!("failed to decode multibase: {e}"));
    // As in Kubo, whose base58 has no empty text.
    if matches!(encoded, b"z" | b"Z") {
        return Err(failed(Error::invalid("zero length string")));
    }
    decode_multibase(encoded).map(|(_, data)| data).map_err(failed)
}

/// Refuses data that would keep a worker busy.
fn check(base: Base, bytes: usize) -> Result<(), Error> {
    let is_slow = matches!(base, Base::Base36Lower | Base::Base36Upper | Base::Base58Btc | Base::Base58Flickr);
    if is_slow && bytes > MAX_SLOW_BYTES {
        return Err(Error::too_large(format!(
            "{bytes} bytes are over the limit of {MAX_SLOW_BYTES} bytes in base36 and base58: use base32 or base64url"
        )));
    }
    Ok(())
}

fn respond(data: Vec<u8>, args: &Args) -> Response {
    let length = data.len() as u64;
    output::bytes(stream::iter([Ok(Bytes::from(data))]), length, args.takes_trailers)
}

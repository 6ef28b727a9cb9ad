//! The same bursts by the RPC: one `files/write` per message.

use std::process;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use ipfrs_rpc::client::{Attributes, Form, Request};

use super::{MIN_SAMPLES, Samples};
use crate::api::Api;

/// Maximum size of an empty response, in bytes.
const MAX_RESPONSE_BYTES: usize = 1024;

/// Measures bursts of `messages` calls.
pub(super) async fn measure(url: &str, bytes: u64, messages: u64, duration: Duration) -> Result<Samples> {
    let api = Api::remote(url, None)?;
    let path = format!("/ipfrs-bench-{}", process::id());
    let mut samples = Samples::new(1);
    let (mut offset, mut number) = (0, 0_u64);
    samples.begin();
    while samples.elapsed() < duration || samples.count() < MIN_SAMPLES {
        for _ in 0..messages {
            number += 1;
            let mut content = vec![0x5a; usize::try_from(bytes)?];
            for part in content.chunks_mut(4096) {
                let len = part.len().min(8);
                part[..len].copy_from_slice(&number.to_le_bytes()[..len]);
            }
            write(&api, &path, offset, &content).await?;
            offset += bytes;
        }
        samples.ended(1);
    }
    api.call(Request::command("files/rm").with_arg(path)).await?.bytes(MAX_RESPONSE_BYTES).await?;
    Ok(samples)
}

async fn write(api: &Api, path: &str, offset: u64, content: &[u8]) -> Result<()> {
    let mut form = Form::new();
    let head = form.file(b"data", Attributes::default());
    let body: Bytes = [head.as_bytes(), content, form.end().as_bytes()].concat().into();
    let request = Request::command("files/write").with_arg(path).with("create", true).with("offset", offset);
    api.call(request.with_body(&form.media_type(), body)?).await?.bytes(MAX_RESPONSE_BYTES).await?;
    Ok(())
}

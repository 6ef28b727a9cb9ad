//! `retrieve`.

use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, anyhow};
use ipfrs_rpc::client::{Request, escape_path};
use ipfrs_rpc::types::RetrievalReport;

use crate::api::Api;
use crate::args::RetrieveArgs;
use crate::output::{Output, printable};
use crate::progress::{Progress, Watched};

pub(super) async fn run(api: &Api, args: &RetrieveArgs, out: &mut Output) -> Result<()> {
    let path = api.settled(&args.path).await?;
    let progress = Progress::spinner(Watched { wanted: None, is_silent: out.is_json() }, "retrieving");
    let request = Request::post(format!("/v1/retrieve/{}", escape_path(path.as_bytes())?));
    let report: RetrievalReport = api.call(request.with("scope", args.scope.name())).await?.json().await?;
    progress.over();
    if out.is_json() {
        out.object(&report)?;
    } else {
        if args.trace {
            trace(&report, out)?;
        }
        if let (Some(cid), true) = (&report.cid, report.complete) {
            let RetrievalReport { blocks, bytes, duration_ms, .. } = report;
            out.line(&format!("{cid} {blocks} blocks, {bytes} bytes, {duration_ms} ms"))?;
        }
    }
    match report.error {
        None => Ok(()),
        Some(error) => Err(anyhow!(error)),
    }
}

fn trace(report: &RetrievalReport, out: &mut Output) -> Result<()> {
    for attempt in &report.attempts {
        let first_byte = attempt.first_byte_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        out.line(&format!(
            "{:>7} ms  first byte {:>6} ms  took {:>6} ms  {:>12} bytes  {:>6} blocks  {:<9}  {:<8} {}  {}{}",
            attempt.start_ms,
            first_byte,
            attempt.duration_ms,
            attempt.bytes,
            attempt.blocks,
            attempt.outcome,
            attempt.source,
            printable(&attempt.address),
            printable(&attempt.request),
            if attempt.detail.is_empty() { String::new() } else { format!("  ({})", printable(&attempt.detail)) },
        ))?;
    }
    Ok(())
}

//! `cat`.

use std::io::{self, IsTerminal};

use anyhow::Result;
use ipfrs_rpc::client::Request;

use crate::api::Api;
use crate::args::CatArgs;
use crate::output::Output;
use crate::progress::{Progress, Watched};

pub(super) async fn run(api: &Api, args: &CatArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("cat").with_args(&args.paths);
    let request = request.with_some("offset", args.offset).with_some("length", args.length);
    print(api, request, args.progress, out).await
}

/// Writes the body of a response to standard output.
pub(super) async fn print(api: &Api, request: Request, progress: Option<bool>, out: &mut Output) -> Result<()> {
    let mut response = api.call(request).await?;
    // If standard output is a terminal, the content itself shows the progress.
    let progress = Progress::bytes(Watched { wanted: progress, is_silent: io::stdout().is_terminal() });
    response.content_length().into_iter().for_each(|bytes| progress.expect(bytes));
    while let Some(bytes) = response.next().await? {
        out.bytes(&bytes)?;
        progress.done(bytes.len() as u64);
    }
    Ok(())
}

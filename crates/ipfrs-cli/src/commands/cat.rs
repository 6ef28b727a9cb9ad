//! `cat`.

use anyhow::Result;

use crate::api::{Api, Query};
use crate::args::CatArgs;
use crate::output::Output;

pub(super) async fn run(api: &Api, args: &CatArgs, out: &mut Output) -> Result<()> {
    let query = Query::new().with_args(&args.paths).with_some("offset", args.offset).with_some("length", args.length);
    let mut answer = api.call("cat", query, None).await?;
    while let Some(bytes) = answer.next().await? {
        out.bytes(&bytes)?;
    }
    Ok(())
}

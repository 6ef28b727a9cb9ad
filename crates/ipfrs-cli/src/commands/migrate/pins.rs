//! Moving of pins with their names.

use anyhow::Result;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::PinLine;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Report;
use super::source::Source;
use crate::api::Api;
use crate::kubo::pins::KuboPin;
use crate::progress::{Progress, Watched};

/// Number of pins of one request, if their names are equal.
const BATCH_PINS: usize = 200;
/// Number of pins that are read ahead.
const PINS_AHEAD: usize = 2 * BATCH_PINS;
/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Pins that a request can create together.
#[derive(Debug, Default)]
struct Batch {
    name: String,
    is_recursive: bool,
    cids: Vec<String>,
}

pub(super) async fn copy(
    source: &Source,
    api: &Api,
    wanted: Option<bool>,
    is_silent: bool,
    report: &mut Report,
) -> Result<()> {
    let progress = Progress::items(Watched { wanted, is_silent }, "pins");
    let (mut pins, task) = list(source).await?;
    let mut batch = Batch::default();
    while let Some(pin) = pins.recv().await {
        let fits = batch.name == pin.name && batch.is_recursive == pin.is_recursive && batch.cids.len() < BATCH_PINS;
        if !fits {
            add(api, &batch, &progress, report).await?;
            batch = Batch { name: pin.name, is_recursive: pin.is_recursive, cids: Vec::new() };
        }
        batch.cids.push(pin.cid);
    }
    add(api, &batch, &progress, report).await?;
    progress.over();
    task.await?
}

/// Lists all pins.
async fn list(source: &Source) -> Result<(mpsc::Receiver<KuboPin>, JoinHandle<Result<()>>)> {
    let (sender, pins) = mpsc::channel(PINS_AHEAD);
    let task = match source {
        Source::Repo(repo, _) => {
            let store = repo.pins()?;
            spawn_blocking(move || {
                store.scan(|pin| sender.blocking_send(pin).map_err(|_| anyhow::anyhow!("the migration has ended")))
            })
        }
        Source::Rpc(api) => {
            let request =
                |kind: &str| Request::query("pin/ls").with("type", kind).with("names", true).with("stream", true);
            let responses =
                [(true, api.call(request("recursive")).await?), (false, api.call(request("direct")).await?)];
            tokio::spawn(async move {
                for (is_recursive, mut response) in responses {
                    while let Some(line) = response.line::<PinLine>().await? {
                        let pin = KuboPin { cid: line.cid, is_recursive, name: line.name };
                        if sender.send(pin).await.is_err() {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            })
        }
    };
    Ok((pins, task))
}

/// Creates pins, all at once, or one by one if that fails.
async fn add(api: &Api, batch: &Batch, progress: &Progress, report: &mut Report) -> Result<()> {
    if batch.cids.is_empty() {
        return Ok(());
    }
    if pin(api, batch, &batch.cids).await.is_ok() {
        report.pins += batch.cids.len() as u64;
    } else {
        for cid in &batch.cids {
            match pin(api, batch, std::slice::from_ref(cid)).await {
                Ok(()) => report.pins += 1,
                Err(e) => report.fail(format!("pin {cid}: {e:#}")),
            }
        }
    }
    progress.done(batch.cids.len() as u64);
    Ok(())
}

async fn pin(api: &Api, batch: &Batch, cids: &[String]) -> Result<()> {
    let name = Some(&batch.name).filter(|name| !name.is_empty());
    let request = Request::command("pin/add").with_args(cids).with("recursive", batch.is_recursive);
    api.call(request.with_some("name", name)).await?.bytes(MAX_RESPONSE_BYTES).await?;
    Ok(())
}

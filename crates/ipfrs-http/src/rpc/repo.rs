//! `repo/gc`, `repo/stat`, `repo/verify`, `repo/version`.

use std::fmt::Write as _;
use std::num::NonZeroU64;

use axum::extract::State;
use ipfrs_core::{Cid, Error, Result, codec, new_cid};
use ipfrs_node::{GcEvent, GcReport, Repair, Repaired, Verified, Verifying};
use ipfrs_rpc::duration;
use ipfrs_rpc::types::{GcProgress, GcSummary, RemovedKey, RepoStat, RepoVersion, VerifyLine};
use tokio::sync::mpsc::channel;
use tokio::task::coop::consume_budget;

use super::args::{Args, Render};
use super::command_result::CommandResult;
use super::line_backlog::LineBacklog;
use super::{long_command, output};
use crate::error::part_text;
use crate::state::AppState;

/// Version of the repo's layout.
const REPO_VERSION: &str = "1";

/// Maximum number of progress events that wait to be written as lines.
const WAITING_EVENTS: usize = 4;

/// `repo/stat[?size-only=]` and `stats/repo`. With `size-only`, all but the sizes is empty, as in Kubo. `StorageMax`
/// is `store.max_bytes`; without a limit it is 2^64 - 1, as in Kubo. `DeadBytes` is the maximum that a compaction could
/// free, and sent only on request, because clients compare the fields.
pub(super) async fn stat(State(state): State<AppState>, args: Args) -> CommandResult {
    let stats = state.node.stats().await?;
    let is_whole = !args.is_set("size-only");
    Ok(output::object(RepoStat {
        repo_size: stats.disk_bytes,
        storage_max: NonZeroU64::new(state.node.store_limit()).map_or(u64::MAX, NonZeroU64::get),
        num_objects: Some(if is_whole { stats.blocks } else { 0 }),
        dead_bytes: args.is_set("dead-bytes").then_some(stats.dead_bytes),
        repo_path: Some(if is_whole { state.node.repo().display().to_string() } else { String::new() }),
        version: Some(if is_whole { format!("ipfrs-repo@{REPO_VERSION}") } else { String::new() }),
    }))
}

/// `repo/version`: returns the version of the repo's layout.
pub(super) async fn version() -> CommandResult {
    Ok(output::object(RepoVersion { version: REPO_VERSION.to_owned() }))
}

/// `repo/gc[?stream-errors=][&quiet=][&silent=][&progress=][&force=]`: removes unpinned blocks. Sends a line for each
/// removed block, unless `silent` is set; with `progress`, also progress lines and a summary. `force` runs gc even if
/// pins may have been lost. The lines for a client that reads slowly wait in memory. If they are too many, gc omits
/// some instead of waiting, and the response ends with an error. If the client disconnects, gc is aborted.
pub(super) async fn gc(State(state): State<AppState>, args: Args) -> CommandResult {
    let silent = args.is_set("silent");
    let progress = args.is_set("progress");
    let stream_errors = args.is_set("stream-errors");
    let force = args.is_set("force");
    let render = args.render;
    let memory = state.memory.reservation();
    long_command::answer(args.takes_trailers, state.config.idle_patience(), move |lines| async move {
        let (sender, mut events) = channel(WAITING_EVENTS);
        let mut backlog = LineBacklog::new(lines.clone(), memory);
        let reporting = async {
            loop {
                tokio::select! {
                    // A client that reads faster than gc removes blocks misses no line.
                    biased;
                    () = backlog.send_first() => {}
                    event = events.recv() => match event {
                        Some(event) => report_gc_event(&mut backlog, event, render, silent, progress).await?,
                        None => return Ok::<_, Error>(()),
                    },
                }
            }
        };
        let (collected, ()) = futures::try_join!(async { Ok(state.node.collect(force, sender).await) }, reporting)?;
        // From here on, the next run may begin.
        backlog.send_all().await?;
        let collected = match collected {
            Ok(collected) => collected,
            Err(e) if stream_errors => {
                lines.send(&RemovedKey { key: None, error: part_text(&e) }).await?;
                return Err(Error::new(e.kind(), "encountered errors during gc run"));
            }
            Err(e) => return Err(e),
        };
        if progress {
            lines.send(&summary(&collected)).await?;
        }
        let Some(first) = collected.damaged.first() else {
            return backlog.check_complete("read the response as it arrives, or use silent=true");
        };
        for pack in collected.damaged.iter().filter(|_| stream_errors) {
            let error = format!("{} is damaged at byte {}: {}", pack.path.display(), pack.offset, pack.reason);
            lines.send(&RemovedKey { key: None, error: part_text(&Error::corrupt(error)) }).await?;
        }
        Err(Error::corrupt(format!(
            "all other garbage was collected, but {} is damaged at byte {} ({}) and was kept with the readable part \
             of it: verify the repo",
            first.path.display(),
            first.offset,
            first.reason
        )))
    })
    .await
}

async fn report_gc_event(
    backlog: &mut LineBacklog,
    event: GcEvent,
    render: Render,
    silent: bool,
    progress: bool,
) -> Result<()> {
    let progress_line = |phase: &str, blocks| GcProgress { phase: phase.to_owned(), blocks };
    match event {
        GcEvent::Marked(blocks) if progress => backlog.offer(&progress_line("mark", Some(blocks)))?,
        GcEvent::Swept(blocks) if progress => backlog.offer(&progress_line("sweep", Some(blocks)))?,
        GcEvent::Compacting if progress => backlog.offer(&progress_line("compact", None))?,
        GcEvent::Removed(cids) if !silent => {
            for cid in &cids {
                consume_budget().await;
                backlog.push(&removed(cid, render)?).await?;
            }
        }
        GcEvent::Marked(_) | GcEvent::Swept(_) | GcEvent::Compacting | GcEvent::Removed(_) => {}
    }
    Ok(())
}

/// Returns the line for a removed block. Like Kubo, which stores blocks by hash, it names the block as a raw one.
fn removed(cid: &Cid, render: Render) -> Result<RemovedKey> {
    let cid = new_cid(1, codec::RAW, *cid.hash())?;
    Ok(RemovedKey { key: Some(render.link(&cid)?), error: String::new() })
}

fn summary(collected: &GcReport) -> GcSummary {
    GcSummary {
        kept_blocks: collected.kept,
        removed_blocks: collected.removed,
        removed_bytes: collected.removed_bytes,
        freed_bytes: collected.freed_bytes,
        seconds: collected.duration.as_secs_f64(),
    }
}

/// `repo/verify[?drop=][&heal=][&heal-timeout=]`: sends a line for each block that is corrupt or unreadable, and the
/// number of blocks checked so far. With `drop`, removes corrupt blocks; with `heal`, also retrieves them. Fails at the
/// end if any block is corrupt and was not repaired as requested, or cannot be read. Lines wait in memory as those of
/// gc, because other verifications are refused until this one has ended.
pub(super) async fn verify(State(state): State<AppState>, args: Args) -> CommandResult {
    let render = args.render;
    let repair = repair(&args)?;
    let memory = state.memory.reservation();
    long_command::answer(args.takes_trailers, state.config.idle_patience(), move |lines| async move {
        let (sender, mut events) = channel(WAITING_EVENTS);
        let mut backlog = LineBacklog::new(lines.clone(), memory);
        let reporting = async {
            loop {
                tokio::select! {
                    biased;
                    () = backlog.send_first() => {}
                    event = events.recv() => match event {
                        Some(event) => report_verified(&mut backlog, event, render).await?,
                        None => return Ok::<_, Error>(()),
                    },
                }
            }
        };
        let (verified, ()) = futures::try_join!(async { Ok(state.node.verify(repair, sender).await) }, reporting)?;
        // From here on, the next verification may begin.
        backlog.send_all().await?;
        let verified = verified?;
        if verified.corrupt + verified.unreadable == 0 {
            if let Some(lost) = state.node.lost_blocks().await? {
                return Err(Error::corrupt(format!("verify complete, all blocks validated, but {lost}")));
            }
            let msg = "verify complete, all blocks validated.".to_owned();
            return lines.send(&VerifyLine { msg, progress: 0 }).await;
        }
        let msg = verify_summary(&verified);
        let complete = backlog.check_complete("read the response as it arrives");
        let omitted = complete.as_ref().err().map_or_else(String::new, |error| format!("; {}", error.message()));
        match repair {
            Repair::None => {
                let remedy = match verified.corrupt {
                    0 => "they may be intact: remove the cause, and verify again",
                    _ => "remove them (repo/verify with drop) and add their content again, or use heal",
                };
                Err(Error::corrupt(format!("{msg}: {remedy}{omitted}")))
            }
            _ if verified.not_removed + verified.not_retrieved > 0 => Err(Error::corrupt(format!("{msg}{omitted}"))),
            _ => {
                lines.send(&VerifyLine { msg, progress: 0 }).await?;
                complete
            }
        }
    })
    .await
}

async fn report_verified(backlog: &mut LineBacklog, event: Verifying, render: Render) -> Result<()> {
    let (what, cid, outcome) = match event {
        Verifying::Checked(progress) => return backlog.offer(&VerifyLine { msg: String::new(), progress }),
        Verifying::Corrupt(cid, outcome) => ("corrupt", cid, outcome),
        Verifying::Unreadable(cid, outcome) => ("unreadable", cid, outcome),
    };
    let (cid, why, repair) = (render.cid(&cid)?, part_text(&outcome.0), repair_text(&outcome.1));
    backlog.push(&VerifyLine { msg: format!("block {cid} was {what} ({why}){repair}"), progress: 0 }).await
}

fn repair(args: &Args) -> Result<Repair> {
    let text = args.text_or_default("heal-timeout");
    if text.starts_with('-') {
        return Err(Error::invalid("heal-timeout must be >= 0"));
    }
    let invalid = || Error::invalid(format!("invalid heal-timeout: time: invalid duration {text:?}"));
    let longest = duration::parse(text).ok_or_else(invalid)?;
    Ok(match (args.is_set("heal"), args.is_set("drop")) {
        (true, _) => Repair::Retrieve(Some(longest).filter(|longest| !longest.is_zero())),
        (false, true) => Repair::Remove,
        (false, false) => Repair::None,
    })
}

fn repair_text(repaired: &Repaired) -> String {
    match repaired {
        Repaired::No => String::new(),
        Repaired::NotRemoved(why) => format!(", failed to remove ({})", part_text(why)),
        Repaired::Removed => ", removed".to_owned(),
        Repaired::Retrieved => ", removed, healed".to_owned(),
        Repaired::NotRetrieved(why) => format!(", removed, failed to heal ({})", part_text(why)),
    }
}

/// Returns the counts of corrupt blocks in the words of Kubo, with that of unreadable blocks.
fn verify_summary(verified: &Verified) -> String {
    let mut text = format!("verify complete, {} blocks corrupt", verified.corrupt);
    let counts = [
        (verified.unreadable, "unreadable"),
        (verified.removed, "removed"),
        (verified.not_removed, "failed to remove"),
        (verified.retrieved, "healed"),
        (verified.not_retrieved, "failed to heal"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        // Writing to a string does not fail.
        let _ = write!(text, ", {count} {what}");
    }
    text
}

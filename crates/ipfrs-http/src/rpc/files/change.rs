//! Changes of mutable files without content.

use axum::extract::State;
use futures::stream;
use ipfrs_core::Error;
use ipfrs_node::{CopySource, LinkName, Mtime, MutableAttribute, MutablePath};
use ipfrs_rpc::mode::unix_mode;
use ipfrs_rpc::types::FlushedFile;

use super::{cid_format, content, flushes, path, two};
use crate::error::{RpcError, part_text};
use crate::rpc::args::Args;
use crate::rpc::command_result::CommandResult;
use crate::rpc::output;
use crate::state::AppState;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// `files/mkdir?arg=path[&parents=][&cid-version=][&hash=][&flush=]`.
pub(in crate::rpc) async fn mkdir(State(state): State<AppState>, args: Args) -> CommandResult {
    let directory = path(args.one_path("path")?)?;
    let format = cid_format(&args)?;
    state.node.make_directory(&directory, args.is_set("parents"), format, flushes(&args)).await?;
    Ok(output::nothing().await)
}

/// `files/cp?arg=source&arg=dest[&force=][&parents=][&flush=]`.
pub(in crate::rpc) async fn cp(State(state): State<AppState>, args: Args) -> CommandResult {
    let (source, dest) = two(&args, "source", "dest")?;
    let from = match content(source) {
        Some(found) => CopySource::Content(state.node.content_path(found).await.map_err(|e| {
            Error::new(e.kind(), format!("cp: cannot get node from path {source}: {e}")).with_source(e)
        })?),
        None => CopySource::Mutable(path(source)?),
    };
    let parents = args.is_set("parents");
    state.node.copy_into_tree(&from, &path(dest)?, parents, args.is_set("force"), flushes(&args)).await?;
    Ok(output::nothing().await)
}

/// `files/mv?arg=source&arg=dest[&flush=]`.
pub(in crate::rpc) async fn mv(State(state): State<AppState>, args: Args) -> CommandResult {
    let (source, dest) = two(&args, "source", "dest")?;
    state.node.move_in_tree(&path(source)?, &path(dest)?, flushes(&args)).await?;
    Ok(output::nothing().await)
}

/// `files/rm?arg=path[&arg=...][&recursive=][&force=]`: like Kubo, sends a line for each path that was not removed, and
/// then fails. For clients without trailers, who would miss the failure, the lines are in the text of the error.
pub(in crate::rpc) async fn rm(State(state): State<AppState>, args: Args) -> CommandResult {
    if !flushes(&args) {
        let why = "files rm always flushes for safety. The --flush flag cannot be set to false for this command";
        return Err(Error::invalid(why).into());
    }
    let (recursive, force) = (args.is_set("recursive"), args.is_set("force"));
    let mut failures = Vec::new();
    for argument in args.required_paths("path")? {
        match path(argument) {
            Err(e) => failures.push(format!("{argument} is not a valid path: {e}")),
            Ok(path) => {
                let removed = state.node.remove_from_tree(&path, recursive, force).await;
                failures.extend(removed.err().map(|e| format!("{path}: {}", part_text(&e))));
            }
        }
    }
    if failures.is_empty() {
        return Ok(output::nothing().await);
    }
    let why = "can't remove some files";
    if !args.takes_trailers {
        return Err(Error::invalid(format!("{why}: {}", failures.join("; "))).into());
    }
    let lines = failures.iter().map(output::line).chain([Err(Error::invalid(why))]);
    Ok(output::objects(stream::iter(lines.collect::<Vec<_>>()), args.takes_trailers))
}

/// `files/flush[?arg=path]`: returns the content ID.
pub(in crate::rpc) async fn flush(State(state): State<AppState>, args: Args) -> CommandResult {
    let root = LinkName::from("/");
    let flushed = rooted(args.at_most_one_path("path")?.unwrap_or(&root))?;
    let cid = state.node.flush_tree(&flushed).await?;
    Ok(output::object(FlushedFile { cid: args.render.cid(&cid)? }))
}

/// `files/chcid?arg=path[&cid-version=][&hash=][&flush=]`.
pub(in crate::rpc) async fn chcid(State(state): State<AppState>, args: Args) -> CommandResult {
    let argument = args.one_path("path")?;
    if *argument == "/" {
        return Err(Error::invalid(
            "cannot change CID format of the MFS root; use 'ipfs config Import.CidVersion' and 'ipfs config \
             Import.HashFunction' instead",
        )
        .into());
    }
    state.node.set_cid_format(&rooted(argument)?, cid_format(&args)?, flushes(&args)).await?;
    Ok(output::nothing().await)
}

/// `files/chmod?arg=mode&arg=path`.
pub(in crate::rpc) async fn chmod(State(state): State<AppState>, args: Args) -> CommandResult {
    let (mode, file) = two(&args, "mode", "path")?;
    let file = path(file)?;
    let mode = MutableAttribute::Mode(unix_mode(go_mode(mode)?));
    state.node.set_mutable_attribute(&file, mode).await?;
    Ok(output::nothing().await)
}

/// `files/touch?arg=path[&mtime=][&mtime-nsecs=]`: as in Kubo, a time of 0 is the current time.
pub(in crate::rpc) async fn touch(State(state): State<AppState>, args: Args) -> CommandResult {
    let file = path(args.one_path("path")?)?;
    let nanos = args.number::<i64>("mtime-nsecs")?.unwrap_or(0);
    let attribute = match args.number::<i64>("mtime")?.unwrap_or(0) {
        0 => MutableAttribute::Now,
        seconds => MutableAttribute::Mtime(Mtime {
            seconds: seconds.saturating_add(nanos / NANOS_PER_SECOND),
            nanos: u32::try_from(nanos % NANOS_PER_SECOND).unwrap_or_default(),
        }),
    };
    state.node.set_mutable_attribute(&file, attribute).await?;
    Ok(output::nothing().await)
}

/// Returns a path that, as in Kubo, need not begin with a slash.
fn rooted(argument: &LinkName) -> Result<MutablePath, RpcError> {
    let absolute = [b"/", argument.as_bytes()].concat();
    Ok(MutablePath::parse(absolute)?)
}

/// Parses the octal mode of `chmod`, with the errors of Go's `strconv.ParseInt`.
fn go_mode(mode: &LinkName) -> Result<u32, Error> {
    let text = mode.to_string_lossy();
    let fault = |fault: &str| Error::invalid(format!("strconv.ParseInt: parsing {text:?}: {fault}"));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    if digits.is_empty() || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
        return Err(fault("invalid syntax"));
    }
    let number = i32::from_str_radix(&text, 8).map_err(|_| fault("value out of range"))?;
    Ok(number.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_parsed_as_go_does() {
        assert_eq!(go_mode(&"0644".into()).unwrap(), 0o644);
        assert_eq!(go_mode(&"-1".into()).unwrap(), u32::MAX);
        let error = |mode: &str| go_mode(&mode.into()).unwrap_err().to_string();
        assert_eq!(error("8"), "strconv.ParseInt: parsing \"8\": invalid syntax");
        assert_eq!(error(""), "strconv.ParseInt: parsing \"\": invalid syntax");
        assert_eq!(error("20000000000"), "strconv.ParseInt: parsing \"20000000000\": value out of range");
    }
}

//! `ls`: the entries of directories, and the links of other blocks.

use axum::extract::State;
use futures::{StreamExt, TryStreamExt, stream};
use ipfrs_core::{Error, Result, codec, timestamp};
use ipfrs_node::{Listed, ListedKind, ObjectKind};
use ipfrs_rpc::types::{Link, Listing, Listings};

use super::args::{Args, Render};
use super::command_result::CommandResult;
use super::paths::content_path;
use super::{attributes, output};
use crate::state::AppState;

/// Maximum number of entries of all paths in one JSON object, which is built in memory.
const MAX_LINKS: usize = 65_536;

/// Maximum size of their names and of the targets of symlinks, in bytes.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// Memory that an entry takes besides its texts, in bytes: as it was read, as a link and as JSON.
const ENTRY_BYTES: usize = 768;

/// Number of times that the texts of an entry are in memory.
const TEXT_COPIES: usize = 4;

/// Approximate size of an entry in JSON besides its texts, in bytes.
const LINK_JSON_BYTES: usize = 200;

/// How Go writes a time that is not set.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// `ls?arg=path[&arg=...][&resolve-type=][&size=][&stream=]`: lists directories. If neither types nor sizes are
/// requested, both are 0 except those of raw blocks.
pub(super) async fn ls(State(state): State<AppState>, args: Args) -> CommandResult {
    let resolve = args.bool("resolve-type").unwrap_or(true) || args.bool("size").unwrap_or(true);
    let streamed = args.is_set("stream");
    let paths = args.required_paths("ipfs-path")?;
    let mut listings = Vec::with_capacity(paths.len());
    let (mut memory, mut taken) = (state.memory.reservation(), 0);
    for path in paths {
        let object = state.node.resolve(content_path(&state.node, path).await?).await?.whole()?;
        taken += state.node.object_bytes(&object);
        memory.grow_to(taken)?;
        if matches!(object.kind, ObjectKind::Other) && !has_known_links(object.cid.codec()) {
            return Err(object.not_unixfs("use dag/get to see its links").await.into());
        }
        let entries = match resolve {
            true => state.node.list_complete(&object),
            false => state.node.list(&object, 0).map_ok(unresolved).boxed(),
        };
        listings.push((path.to_string_lossy().into_owned(), entries));
    }
    let (takes_trailers, render) = (args.takes_trailers, args.render);
    if streamed {
        let lines = stream::iter(listings).flat_map(move |(path, entries)| {
            // Held until all paths are listed.
            let _ = &memory;
            entries.map(move |entry| {
                let links = vec![link(render, entry?)?];
                output::line(&Listings { objects: vec![Listing { hash: path.clone(), links }] })
            })
        });
        let mut lines = lines.boxed();
        // An error of the first line is that of the command.
        let first = lines.next().await.transpose()?;
        let lines = stream::iter(first.map(Ok)).chain(lines);
        return Ok(output::objects(lines.boxed(), takes_trailers));
    }
    let mut listed = Vec::with_capacity(listings.len());
    let (mut links_left, mut text_left) = (MAX_LINKS, MAX_TEXT_BYTES);
    for (path, mut listing) in listings {
        let mut entries = Vec::new();
        while let Some(entry) = listing.try_next().await? {
            let text = entry.name.len() + entry.target.len();
            let (Some(links), Some(bytes)) = (links_left.checked_sub(1), text_left.checked_sub(text)) else {
                let what = match links_left {
                    0 => format!("{MAX_LINKS} entries"),
                    _ => format!("{MAX_TEXT_BYTES} bytes of names"),
                };
                return Err(
                    Error::too_large(format!("up to {path} there are more than {what}: use stream=true")).into()
                );
            };
            (links_left, text_left) = (links, bytes);
            taken += ENTRY_BYTES + TEXT_COPIES * text;
            memory.grow_to(taken)?;
            entries.push(entry);
        }
        listed.push((path, entries));
    }
    let bytes = (MAX_LINKS - links_left) * LINK_JSON_BYTES + (MAX_TEXT_BYTES - text_left);
    Ok(output::rendered(bytes, move || output::large_object(listings_of(render, listed)?, memory)).await?)
}

/// Returns an entry whose target was not read, as Kubo does: only that of a raw block is known to be a file, whose size
/// is that in the link.
fn unresolved(entry: Listed) -> Listed {
    match entry.cid.codec() {
        codec::RAW => Listed { kind: ListedKind::File, ..entry },
        _ => Listed { size: 0, ..entry },
    }
}

/// Returns the listings of all paths, each sorted by name.
fn listings_of(render: Render, listed: Vec<(String, Vec<Listed>)>) -> Result<Listings> {
    let objects = listed.into_iter().map(|(hash, mut entries)| -> Result<Listing> {
        // Shards are ordered by hash. The stable sort keeps the order of entries without names.
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let links = entries.into_iter().map(|entry| link(render, entry)).collect::<Result<_>>()?;
        Ok(Listing { hash, links })
    });
    Ok(Listings { objects: objects.collect::<Result<_>>()? })
}

/// Whether blocks of a codec, which are not UnixFS, can be listed by their links.
fn has_known_links(codec: u64) -> bool {
    use codec::{CBOR, DAG_CBOR, DAG_JOSE, DAG_JSON, GIT_RAW, JSON};
    matches!(codec, DAG_CBOR | DAG_JSON | DAG_JOSE | GIT_RAW | CBOR | JSON)
}

fn link(render: Render, entry: Listed) -> Result<Link> {
    let mode = entry.attributes.mode.map(|mode| attributes::go_mode(mode, entry.kind));
    let mod_time = entry.attributes.mtime.and_then(|mtime| timestamp::format(mtime.seconds, mtime.nanos));
    let r#type = match entry.kind {
        ListedKind::Directory => Link::DIRECTORY,
        ListedKind::File => Link::FILE,
        ListedKind::Symlink => Link::SYMLINK,
        ListedKind::Unknown => 0,
    };
    let hash = render.cid(&entry.cid)?;
    let (name, target) = (&entry.name, &entry.target);
    Ok(Link {
        name: name.to_string_lossy().into_owned(),
        hash,
        size: entry.size,
        r#type,
        target: target.to_string_lossy().into_owned(),
        name_bytes: output::name_bytes(name),
        target_bytes: output::name_bytes(target),
        mode: mode.or(Some(0)),
        mod_time: mod_time.or_else(|| Some(NO_TIME.to_owned())),
    })
}

//! `migrate export`: CAR files of all pins and mutable files, and a list of the pins, for Kubo.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::pin::pin;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream};
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Cid, parse_cid};
use ipfrs_rpc::client::{Request, Response};
use ipfrs_rpc::types::{FileStat, PinLine};
use ipfrs_stream::car::{CarLimits, CarReader, header};
use serde::Serialize;

use super::super::ls::Entries;
use super::super::stage::Stage;
use super::car::{self, Written};
use crate::api::Api;
use crate::args::MigrateExportArgs;
use crate::output::{Output, printable_name};
use crate::progress::{Progress, Watched};
use crate::runtime::{Interrupted, interrupted};

/// Number of roots in one CAR file.
const CAR_ROOTS: usize = 1_000;
/// Name of the list of pins.
const PINS: &str = "pins.ndjson";
/// Name of the list of the mutable files.
const FILES: &str = "files.ndjson";
/// Name of the script that imports everything.
const SCRIPT: &str = "import.sh";
/// The script: `dag import` pins the roots of the CARs, and the rest gives names to pins and restores the files.
const IMPORT: &str = r#"#!/bin/sh
# Imports this directory into Kubo. Needs `ipfs` and `jq`. It can be run again if it was interrupted.
set -e
cd "$(dirname "$0")"
for tool in ipfs jq; do
  command -v "$tool" >/dev/null || { echo "$0 needs $tool: nothing was imported" >&2; exit 1; }
done
commands="$(mktemp)"
trap 'rm -f "$commands"' EXIT
for car in pins-*.car; do [ ! -e "$car" ] || ipfs dag import "$car"; done
for car in direct-*.car files.car; do [ ! -e "$car" ] || ipfs dag import --pin-roots=false "$car"; done
jq -r 'select(.Type == "direct" or .Name) |
  @sh "ipfs pin add --recursive=\(.Type != "direct") --name=\(.Name // "") \(.Cid)"' pins.ndjson >"$commands"
. "$commands"
put() {
  [ "$(ipfs files stat --hash "/$2" 2>/dev/null)" = "$1" ] || ipfs files cp "/ipfs/$1" "/$2"
}
put_bytes() { name="$(printf %s "$2" | base64 -d; printf x)"; put "$1" "${name%x}"; }
jq -r 'if .NameBytes then @sh "put_bytes \(.Cid) \(.NameBytes)" else @sh "put \(.Cid) \(.Name)" end' \
  files.ndjson >"$commands"
. "$commands"
"#;

/// Totals of an export.
#[derive(Debug, Default, Serialize)]
struct Exported {
    pins: u64,
    cars: u64,
    bytes: u64,
}

/// Line of the list of the mutable files.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ExportedFile {
    name: String,
    /// The name in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    cid: String,
}

pub(super) async fn run(api: &Api, args: &MigrateExportArgs, out: &mut Output) -> Result<()> {
    let shown = printable_name(args.directory.as_os_str());
    let progress = Progress::items(Watched { wanted: args.progress, is_silent: out.is_json() }, "pins");
    if fs::symlink_metadata(&args.directory).is_ok() {
        bail!("cannot create the directory {shown}: it must not exist");
    }
    let stage = Stage::new(&args.directory, false)?;
    let root = stage.root();
    // An interrupt drops the stage, which removes what is incomplete.
    let Exported { pins, cars, bytes } = tokio::select! {
        exported = export_all(api, &root, &progress) => exported?,
        interrupt = interrupted() => {
            interrupt?;
            return Err(Interrupted("interrupted: nothing was exported").into());
        }
    };
    stage.commit()?;
    progress.over();
    if out.is_json() {
        return out.object(&Exported { pins, cars, bytes });
    }
    out.line(&format!("exported {pins} pins and the mutable files in {cars} CAR files ({bytes} bytes) to {shown}"))?;
    out.line(&format!("import them into Kubo with `sh {shown}/{SCRIPT}`"))
}

/// Writes everything to a new `directory`.
async fn export_all(api: &Api, directory: &Path, progress: &Progress) -> Result<Exported> {
    fs::create_dir(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut exported = Exported::default();
    let mut list = create(&directory.join(PINS))?;
    for (kind, prefix) in [("recursive", "pins"), ("direct", "direct")] {
        let request = Request::query("pin/ls").with("type", kind).with("names", true).with("stream", true);
        let mut response = api.call(request).await?;
        let mut roots = Vec::new();
        while let Some(pin) = response.line::<PinLine>().await? {
            roots.push(parse_cid(&pin.cid)?);
            serde_json::to_writer(&mut list, &pin)?;
            list.write_all(b"\n")?;
            if roots.len() == CAR_ROOTS {
                export(api, directory, prefix, &std::mem::take(&mut roots), progress, &mut exported).await?;
            }
        }
        if !roots.is_empty() {
            export(api, directory, prefix, &roots, progress, &mut exported).await?;
        }
    }
    finish(list)?;
    let stat: FileStat = api.call(Request::query("files/stat").with_arg("/")).await?.json().await?;
    let root = parse_cid(&stat.hash)?;
    let mut file = create(&directory.join("files.car"))?;
    write(&mut file, &header(&[root]), &mut exported)?;
    append(api, &root, &mut file, &mut Written::default(), &mut exported).await?;
    finish(file)?;
    exported.cars += 1;
    let mut files = create(&directory.join(FILES))?;
    let mut entries = Entries::of(api, format!("/ipfs/{root}").as_ref()).await?;
    while let Some(entry) = entries.next().await? {
        let file = ExportedFile { name: entry.name, name_bytes: entry.name_bytes, cid: entry.hash };
        serde_json::to_writer(&mut files, &file)?;
        files.write_all(b"\n")?;
    }
    finish(files)?;
    fs::write(directory.join(SCRIPT), IMPORT)?;
    File::open(directory)?.sync_all()?;
    Ok(exported)
}

/// Writes a CAR of several pins.
async fn export(
    api: &Api,
    directory: &Path,
    prefix: &str,
    roots: &[Cid],
    progress: &Progress,
    exported: &mut Exported,
) -> Result<()> {
    exported.cars += 1;
    let mut file = create(&directory.join(format!("{prefix}-{:05}.car", exported.cars)))?;
    write(&mut file, &header(roots), exported)?;
    // Versions of a directory share most of their blocks.
    let mut written = Written::default();
    for root in roots {
        if prefix == "pins" {
            append(api, root, &mut file, &mut written, exported).await?;
        } else {
            let request = Request::query("block/get").with_arg(root.to_string());
            let block = api.call(request).await?.bytes(MAX_BIG_BLOCK_BYTES).await?;
            let mut section = Vec::new();
            car::put_section(&mut section, root, block.into());
            write(&mut file, &section, exported)?;
        }
        exported.pins += 1;
        progress.done(1);
    }
    finish(file)
}

/// Appends the blocks of a DAG that are not written yet.
async fn append(
    api: &Api,
    root: &Cid,
    file: &mut BufWriter<File>,
    written: &mut Written,
    exported: &mut Exported,
) -> Result<()> {
    let cannot = || format!("cannot export {root}");
    let request = Request::query("dag/export").with_arg(root.to_string());
    let response: Response = api.call(request).await.with_context(cannot)?;
    let pieces = pin!(stream::unfold(response, async |mut response| {
        let piece = response.next().await.transpose()?;
        Some((piece, response))
    }));
    let limits = CarLimits { max_block: MAX_BIG_BLOCK_BYTES, ..CarLimits::default() };
    let mut blocks = CarReader::new(pieces, limits);
    while let Some(block) = blocks.next().await {
        let block = block.with_context(cannot)?;
        if written.add(block.cid()) {
            let mut section = Vec::new();
            car::put_section(&mut section, block.cid(), block.data().clone());
            write(file, &section, exported)?;
        }
    }
    Ok(())
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create_new(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

fn write(file: &mut BufWriter<File>, bytes: &[u8], exported: &mut Exported) -> Result<()> {
    exported.bytes += bytes.len() as u64;
    file.write_all(bytes).context("cannot write a CAR file")
}

fn finish(file: BufWriter<File>) -> Result<()> {
    let file = file.into_inner().context("cannot write a file")?;
    file.sync_all().context("cannot sync a file")
}

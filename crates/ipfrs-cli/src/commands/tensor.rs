//! `tensor ls|get|stat`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ipfrs_rpc::client::{Request, Response, escape_path};
use ipfrs_rpc::types::{ElementStats, TensorList, TensorStatsList};
use serde_json::json;

use super::stage::{Stage, inside};
use crate::api::Api;
use crate::args::{TensorCommand, TensorGetArgs, TensorLsArgs, TensorStatArgs};
use crate::output::{Output, printable, printable_name};
use crate::progress::{Progress, Watched};
use crate::runtime::{Interrupted, interrupted};

/// Maximum width, in characters, of a cell that counts for the width of its column. A longer cell shifts only the
/// rest of its own row.
const MAX_CELL_WIDTH: usize = 60;

pub(super) async fn run(api: &Api, command: TensorCommand, out: &mut Output) -> Result<()> {
    match command {
        TensorCommand::Ls(args) => list(api, &args, out).await,
        TensorCommand::Get(args) => get(api, &args, out).await,
        TensorCommand::Stat(args) => stat(api, &args, out).await,
    }
}

/// Returns a request for tensors of the file at `path`.
async fn request(api: &Api, path: &OsStr, names: &[String]) -> Result<Request> {
    let path = api.settled(path).await?;
    let request = Request::get(format!("/v1/tensor/{}", escape_path(path.as_bytes())?));
    Ok(names.iter().fold(request, |request, name| request.with("name", name)))
}

async fn list(api: &Api, args: &TensorLsArgs, out: &mut Output) -> Result<()> {
    let request = request(api, &args.path, &[]).await?.with("info", "");
    let TensorList { tensors, .. } = api.call(request).await?.json().await?;
    if out.is_json() {
        return tensors.iter().try_for_each(|tensor| out.object(tensor));
    }
    let rows = tensors.iter().map(|tensor| {
        let (size, offset) = (tensor.size_bytes.to_string(), tensor.offset.to_string());
        [shown_name(&tensor.name), tensor.dtype.clone(), shape(&tensor.shape), size, offset]
    });
    table(["NAME", "DTYPE", "SHAPE", "BYTES", "OFFSET"], rows.collect(), 3, out)
}

async fn stat(api: &Api, args: &TensorStatArgs, out: &mut Output) -> Result<()> {
    let progress = Progress::spinner(Watched { wanted: None, is_silent: out.is_json() }, "computing statistics");
    let request = request(api, &args.path, &args.names).await?.with("stats", "");
    let TensorStatsList { tensors, .. } = api.call(request).await?.json().await?;
    progress.over();
    if out.is_json() {
        return tensors.iter().try_for_each(|tensor| out.object(tensor));
    }
    let rows = tensors.iter().map(|tensor| {
        let ElementStats { count, nan, inf, zero, min, max, mean, std } = tensor.elements;
        let [count, nan, inf, zero] = [count, nan, inf, zero].map(|count| count.to_string());
        let [min, max, mean, std] = [min, max, mean, std].map(number);
        [shown_name(&tensor.name), tensor.dtype.clone(), count, min, max, mean, std, nan, inf, zero]
    });
    let heads = ["NAME", "DTYPE", "COUNT", "MIN", "MAX", "MEAN", "STD", "NAN", "INF", "ZERO"];
    table(heads, rows.collect(), 2, out)
}

async fn get(api: &Api, args: &TensorGetArgs, out: &mut Output) -> Result<()> {
    let request = async || {
        let request = request(api, &args.path, &args.names).await?;
        api.call(request.with("format", &args.format).with_some("slice", args.slice.as_ref())).await
    };
    if args.output.as_deref() == Some(Path::new("-")) {
        let mut response = request().await?;
        while let Some(bytes) = response.next().await? {
            out.bytes(&bytes)?;
        }
        return Ok(());
    }
    let target = target(args)?;
    let stage = Stage::new(&target, true)?;
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent: out.is_json() });
    let fetch = async {
        let mut response: Response = request().await?;
        let header = |name| Some(response.header(name).to_owned()).filter(|value| !value.is_empty());
        let (dtype, shape) = (header("x-tensor-dtype"), header("x-tensor-shape"));
        stage.save(&mut response, &progress).await?;
        Ok::<_, anyhow::Error>((dtype, shape))
    };
    // An interrupt drops the stage, which removes the incomplete file.
    let (dtype, shape) = tokio::select! {
        outcome = fetch => outcome?,
        interrupt = interrupted() => {
            interrupt?;
            return Err(Interrupted("interrupted: nothing was saved").into());
        }
    };
    stage.commit()?;
    progress.over();
    let dims: Option<Vec<u64>> = shape.as_deref().map(|shape| shape.split(',').flat_map(str::parse).collect());
    if out.is_json() {
        return out.object(&json!({ "path": target.to_string_lossy(), "dtype": dtype, "shape": dims }));
    }
    // The bytes alone do not reveal the type and shape.
    let what = dtype.zip(dims).map(|(dtype, dims)| format!(" ({dtype} {})", self::shape(&dims)));
    out.line(&format!("saved {}{}", printable_name(target.as_os_str()), what.unwrap_or_default()))
}

/// Returns the name of the tensor, or else the last component of the path, with the extension of the format. The file
/// is placed in the directory given by -o, if there is one.
fn target(args: &TensorGetArgs) -> Result<PathBuf> {
    let directory = match &args.output {
        None => Path::new(""),
        Some(output) if output.is_dir() => output,
        Some(output) => return Ok(output.clone()),
    };
    let name = match args.names.as_slice() {
        [name] if !name.is_empty() => name.as_str().into(),
        _ => {
            let mut parts = args.path.as_bytes().rsplit(|byte| *byte == b'/');
            String::from_utf8_lossy(parts.find(|part| !part.is_empty()).unwrap_or_default())
        }
    };
    // The name is untrusted: control characters could manipulate the terminal of a user who lists the file.
    let name = name.replace(|c: char| c == '/' || c.is_control(), "_");
    let extension = match args.format.as_str() {
        "raw" => "bin",
        "arrow" => "arrows",
        format => format,
    };
    // A name of a file in this format already has the extension.
    let has_it = Path::new(&name).extension().is_some_and(|found| found == extension);
    let name = if has_it { name } else { format!("{name}.{extension}") };
    inside(directory, name.as_ref())
}

/// Returns the name to print. The tensor of an `.npy` file has no name.
fn shown_name(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { printable(name) }
}

fn shape(shape: &[u64]) -> String {
    let dims: Vec<_> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", dims.join(","))
}

/// Formats a number with few digits.
fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value == 0.0 || (1e-4..1e7).contains(&value.abs()) => {
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Some(value) => format!("{value:.6e}"),
    }
}

/// Prints rows below column headings. Columns from index `numbers` on are right-aligned.
fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>, numbers: usize, out: &mut Output) -> Result<()> {
    let mut widths = heads.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            let wanted = cell.chars().count();
            *width = if wanted > MAX_CELL_WIDTH { *width } else { (*width).max(wanted) };
        }
    }
    let line = |cells: Vec<&str>| {
        let cells = cells.into_iter().zip(widths).enumerate();
        let cells = cells.map(
            |(at, (cell, width))| {
                if at < numbers { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            },
        );
        cells.collect::<Vec<_>>().join("  ")
    };
    out.line(line(heads.to_vec()).trim_end())?;
    rows.iter().try_for_each(|row| out.line(line(row.iter().map(String::as_str).collect()).trim_end()))
}

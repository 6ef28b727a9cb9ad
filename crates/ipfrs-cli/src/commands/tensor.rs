//! `tensor ls|get|stat`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use axum::body::Body;
use axum::http::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::stage::{Stage, inside};
use crate::answer::Answer;
use crate::api::{Api, Query};
use crate::args::{TensorCommand, TensorGetArgs, TensorLsArgs, TensorStatArgs};
use crate::output::{Output, printable, printable_name};
use crate::progress::{Progress, Watched};
use crate::runtime::Interrupted;
use crate::uri::gateway_path;

/// Maximum width, in characters, of a cell that counts for the width of its column. A longer cell shifts only the
/// rest of its own row.
const MAX_CELL_WIDTH: usize = 60;

/// An entry of a tensor listing.
#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    size_bytes: u64,
    offset: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fortran_order: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    big_endian: bool,
}

/// Statistics of a tensor.
#[derive(Debug, Serialize, Deserialize)]
struct Summed {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    size_bytes: u64,
    count: u64,
    nan: u64,
    inf: u64,
    zero: u64,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    std: Option<f64>,
}

/// The fields of a response about tensors that this program uses.
#[derive(Debug, Deserialize)]
struct Tensors<T> {
    tensors: Vec<T>,
}

pub(super) async fn run(api: &Api, command: TensorCommand, out: &mut Output) -> Result<()> {
    match command {
        TensorCommand::Ls(args) => list(api, &args, out).await,
        TensorCommand::Get(args) => get(api, &args, out).await,
        TensorCommand::Stat(args) => stat(api, &args, out).await,
    }
}

async fn request(api: &Api, path: &OsStr, query: Query) -> Result<Response<Body>> {
    let path = api.settled(path).await?;
    api.get(&format!("/v1/tensor{}", gateway_path(&path)), query).await
}

fn named(names: &[String]) -> Query {
    names.iter().fold(Query::new(), |query, name| query.with("name", name))
}

async fn list(api: &Api, args: &TensorLsArgs, out: &mut Output) -> Result<()> {
    let answer = Answer::new(request(api, &args.path, Query::new().with("info", "")).await?);
    let Tensors { tensors } = answer.whole::<Tensors<Listed>>().await?;
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
    let answer = Answer::new(request(api, &args.path, named(&args.names).with("stats", "")).await?);
    let Tensors { tensors } = answer.whole::<Tensors<Summed>>().await?;
    progress.over();
    if out.is_json() {
        return tensors.iter().try_for_each(|tensor| out.object(tensor));
    }
    let rows = tensors.iter().map(|tensor| {
        let [count, nan, inf, zero] =
            [tensor.count, tensor.nan, tensor.inf, tensor.zero].map(|count| count.to_string());
        let [min, max, mean, std] = [tensor.min, tensor.max, tensor.mean, tensor.std].map(number);
        [shown_name(&tensor.name), tensor.dtype.clone(), count, min, max, mean, std, nan, inf, zero]
    });
    let heads = ["NAME", "DTYPE", "COUNT", "MIN", "MAX", "MEAN", "STD", "NAN", "INF", "ZERO"];
    table(heads, rows.collect(), 2, out)
}

async fn get(api: &Api, args: &TensorGetArgs, out: &mut Output) -> Result<()> {
    let query = named(&args.names).with("format", &args.format).with_some("slice", args.slice.as_ref());
    if args.output.as_deref() == Some(Path::new("-")) {
        let mut answer = Answer::new(request(api, &args.path, query).await?);
        while let Some(bytes) = answer.next().await? {
            out.bytes(&bytes)?;
        }
        return Ok(());
    }
    let target = target(args)?;
    let stage = Stage::new(&target, true)?;
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent: out.is_json() });
    let fetch = async {
        let response = request(api, &args.path, query).await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (dtype, shape) = (header("x-tensor-dtype"), header("x-tensor-shape"));
        stage.save(&mut Answer::new(response), &progress).await?;
        Ok::<_, anyhow::Error>((dtype, shape))
    };
    // An interrupt drops the stage, which removes the incomplete file.
    let (dtype, shape) = tokio::select! {
        outcome = fetch => outcome?,
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.context("cannot listen for signals")?;
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

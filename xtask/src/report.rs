//! `cargo xtask bench-report`: runs all comparing bench targets on this machine and updates docs/PERFORMANCE.md.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::places::{target, workspace};
use crate::plot::Chart;

/// Bench targets that compare, in the order in which they run.
const TARGETS: [&str; 4] = ["peers", "stores", "grpc", "retrieval"];
const DOCUMENT: &str = "docs/PERFORMANCE.md";
/// Bench target that attacks, and the document for its figures. It runs only if it is selected.
const HOSTILE: (&str, &str) = ("hostile", "docs/SECURITY.md");
/// Bench target that compares a built `ipfrs-cli` with Kubo, and its package. It runs only if it is selected.
const KUBO: (&str, &str) = ("kubo", "ipfrs-benches-kubo");
/// Package of the other targets.
const PACKAGE: &str = "ipfrs-benches";
const PLOTS: &str = "docs/plots";
/// Markers around the charts in the document.
const BEGIN: &str = "<!-- plots:begin -->";
const END: &str = "<!-- plots:end -->";

/// Figures that a target wrote with `--json`; only the fields that are drawn.
#[derive(Deserialize)]
struct Figures {
    sections: Vec<Section>,
}

#[derive(Deserialize)]
struct Section {
    circumstances: String,
    charts: Vec<Chart>,
}

/// Runs the targets sequentially and draws their figures. `selected` lists targets, each as `TARGET` or as
/// `TARGET:PART,...` with the parts to measure. An empty list selects all targets.
///
/// # Errors
/// Returns an error if a target does not exist or fails. The figures of the other targets are written and drawn
/// nevertheless.
pub(crate) fn measure(selected: &[&str]) -> Result<()> {
    fs::create_dir_all(directory()?)?;
    let mut runs = Vec::new();
    for selected in if selected.is_empty() { &TARGETS[..] } else { selected } {
        let (name, parts) = selected.split_once(':').map_or((*selected, None), |(name, parts)| (name, Some(parts)));
        let known = [&TARGETS[..], &[HOSTILE.0, KUBO.0]].concat();
        ensure!(known.contains(&name), "unknown target {name:?}: use one of {}", known.join(", "));
        runs.push((name, parts));
    }
    let runs_only_attacks = runs.iter().all(|(name, _)| *name == HOSTILE.0);
    let mut failed = Vec::new();
    for (name, parts) in runs {
        if let Err(error) = run(name, parts) {
            eprintln!("xtask: {error:#}");
            failed.push(name);
        }
    }
    let drawn = if runs_only_attacks { Ok(()) } else { draw() };
    ensure!(failed.is_empty(), "failed completely or in part: {}", failed.join(", "));
    drawn
}

fn run(name: &str, parts: Option<&str>) -> Result<()> {
    let json = figures_of(name)?;
    // Remove the results of earlier runs unless only some parts are measured.
    if parts.is_none() && json.exists() {
        fs::remove_file(&json).with_context(|| format!("cannot remove {}", json.display()))?;
    }
    let json = json.to_str().context("the build's directory has a name that is not UTF-8")?;
    // It measures the program of the user, or that of a release build.
    if name == KUBO.0 && env::var_os("GATEWAY").is_none() {
        crate::cargo("report", &["build", "--release", "--package", "ipfrs-cli"], &[])?;
    }
    let package = if name == KUBO.0 { KUBO.1 } else { PACKAGE };
    let bench = ["bench", "--package", package, "--bench", name, "--"];
    let document = if name == HOSTILE.0 { HOSTILE.1 } else { DOCUMENT };
    let options = ["--require-peers", "--write", document, "--json", json];
    let only: Vec<_> = parts.into_iter().flat_map(|parts| ["--only", parts]).collect();
    crate::cargo("report", &[&bench[..], &options, &only].concat(), &[])
}

/// Redraws the charts from the figures of the last runs. The document keeps all other charts: those of parts without
/// figures on this machine, and those of parts that no longer exist. Their lines are removed by hand.
///
/// # Errors
/// Returns an error if there are no figures at all or a chart cannot be written.
pub(crate) fn draw() -> Result<()> {
    let workspace = workspace()?;
    let (document, plots) = (workspace.join(DOCUMENT), workspace.join(PLOTS));
    fs::create_dir_all(&plots).with_context(|| format!("cannot create {}", plots.display()))?;
    let (mut pictures, mut has_figures) = (shown(&document)?, false);
    for name in TARGETS.into_iter().chain([KUBO.0]) {
        let json = figures_of(name)?;
        if !json.exists() {
            continue;
        }
        has_figures = true;
        let text = fs::read(&json).with_context(|| format!("cannot read {}", json.display()))?;
        let figures: Figures = serde_json::from_slice(&text).with_context(|| format!("{}", json.display()))?;
        for (circumstances, chart) in figures.sections.into_iter().flat_map(drawn) {
            let file = format!("{}.svg", chart.name);
            let path = plots.join(&file);
            fs::write(&path, chart.svg(&circumstances)).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("xtask: report: {}", path.display());
            insert(&mut pictures, chart.title, file);
        }
    }
    ensure!(has_figures, "there is no data to plot: run `cargo xtask bench-report` first");
    remove_others(&plots, &pictures)?;
    show(&document, &pictures)
}

/// Replaces the title of the picture with this file, or appends the picture.
fn insert(pictures: &mut Vec<(String, String)>, title: String, file: String) {
    match pictures.iter().position(|(_, other)| *other == file) {
        Some(index) => pictures[index].0 = title,
        None => pictures.push((title, file)),
    }
}

fn drawn(section: Section) -> impl Iterator<Item = (String, Chart)> {
    section.charts.into_iter().map(move |chart| (section.circumstances.clone(), chart))
}

/// Returns the directory in which the targets write their figures.
fn directory() -> Result<PathBuf> {
    Ok(target()?.join("bench-report"))
}

fn figures_of(name: &str) -> Result<PathBuf> {
    Ok(directory()?.join(format!("{name}.json")))
}

/// Removes charts of earlier runs that the document does not show.
fn remove_others(plots: &Path, pictures: &[(String, String)]) -> Result<()> {
    for entry in fs::read_dir(plots)? {
        let path = entry?.path();
        let is_shown = pictures.iter().any(|(_, file)| path.file_name() == Some(OsStr::new(file)));
        if !is_shown && path.extension() == Some(OsStr::new("svg")) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns the text of the document before, between and after the markers.
fn parts(document: &Path) -> Result<[String; 3]> {
    let text = fs::read_to_string(document).with_context(|| format!("cannot read {}", document.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let Some((before, (between, after))) = parts else {
        bail!("{} has no lines {BEGIN} and {END}", document.display())
    };
    Ok([before, between, after].map(str::to_owned))
}

/// Returns the titles and files of the charts in the document.
fn shown(document: &Path) -> Result<Vec<(String, String)>> {
    let [_, between, _] = parts(document)?;
    let picture = |line: &str| {
        let (title, file) = line.strip_prefix("![")?.strip_suffix(')')?.split_once("](plots/")?;
        Some((title.to_owned(), file.to_owned()))
    };
    Ok(between.lines().filter_map(picture).collect())
}

/// Inserts the charts into the document between the markers.
fn show(document: &Path, pictures: &[(String, String)]) -> Result<()> {
    let [before, _, after] = parts(document)?;
    let images: String = pictures.iter().map(|(title, file)| format!("![{title}](plots/{file})\n\n")).collect();
    fs::write(document, format!("{before}{BEGIN}\n{images}{END}{after}"))
        .with_context(|| format!("cannot write {}", document.display()))
}

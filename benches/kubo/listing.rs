//! Listings of one large directory.

use std::fs;

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{Bound, Client, Goal, Table, add_directory};
use serde::Deserialize;

use crate::Findings;
use crate::rpc::{Streamed, values};
use crate::servers::{Server, Site};

/// Size of a file in the directory, in bytes.
const FILE_BYTES: usize = 8;
/// Maximum time until the first byte of our listings, in milliseconds.
const FIRST_BYTE_MS: Bound = Bound::AtMost(100.0);

/// Commands that list the directory, with `ROOT` in place of its content ID, and the type of their responses.
const COMMANDS: [(&str, Names); 4] = [
    ("files/ls?arg=/listed", files_names),
    ("files/ls?arg=/listed&long=true", files_names),
    ("ls?arg=ROOT&stream=true&resolve-type=false&size=false", ls_names),
    ("ls?arg=ROOT&stream=true", ls_names),
];

/// Returns the names in a response, in order.
type Names = fn(&[u8]) -> Result<Vec<String>>;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    name: String,
}

/// Response of `files/ls`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entries {
    entries: Vec<Named>,
}

/// A value in the response of `ls`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    objects: Vec<Links>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Links {
    links: Vec<Named>,
}

pub(crate) fn measure(site: &Site) -> Result<Findings> {
    let (mut rows, mut goals) = (Vec::new(), Vec::new());
    let [shared, large] = [site.options.kubo_entries, site.options.entries];
    let mut roots = Vec::new();
    for server in site.servers() {
        roots.push(list(site, server, shared, &mut rows, &mut goals).with_context(|| server.name())?);
    }
    ensure!(roots.iter().all(|root| *root == roots[0]), "the directories have different content IDs: {roots:?}");
    if large != shared {
        list(site, Server::Ours(&site.ours), large, &mut rows, &mut goals)?;
    }
    let columns = [
        "entries",
        "server",
        "command",
        "first byte, ms",
        "entries/s",
        "peak memory, MiB",
        "anonymous afterwards, MiB",
    ];
    let table = Table::new("Listings of a directory, the first after a start", columns, rows);
    Ok(Findings { tables: vec![table], charts: Vec::new(), goals })
}

/// Lists a directory of `count` entries with each command, and returns its content ID.
fn list(
    site: &Site,
    server: Server<'_>,
    count: usize,
    rows: &mut Vec<Vec<String>>,
    goals: &mut Vec<Goal>,
) -> Result<String> {
    eprintln!("kubo: listing: {count} entries of {}", server.name());
    let repo = site.scratch("listing");
    let daemon = server.create(&repo)?;
    let mut client = Client::connect(daemon.address)?;
    let content = |entry: usize| format!("{entry:0width$}", width = FILE_BYTES).into_bytes();
    let added = add_directory(&mut client, count, FILE_BYTES, name, content)?;
    let root = added.last().context("no directory was added")?.clone();
    daemon.rpc()?.call(&format!("files/cp?arg=/ipfs/{root}&arg=/listed"), None)?;
    drop(daemon);
    for (command, names) in COMMANDS {
        // Without caches of earlier commands, and with a peak of its own. Kubo is killed after `files/ls` with `long`:
        // when it ends, it flushes every file that it has listed, for minutes.
        let daemon = server.start(&repo)?;
        let Streamed { body, first, total } = daemon.rpc()?.stream(&command.replace("ROOT", &root))?;
        let memory = daemon.memory()?;
        check(names(&body)?, count).context(command)?;
        let first_ms = first.as_secs_f64() * 1e3;
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
        rows.push(vec![
            count.to_string(),
            server.name(),
            format!("`{command}`"),
            format!("{first_ms:.1}"),
            format!("{:.0}", count as f64 / total.as_secs_f64()),
            mib(memory.peak_resident),
            mib(memory.anonymous),
        ]);
        if server.is_ours() && count == site.options.entries {
            goals.push(Goal {
                what: format!("`{command}` of {count} entries: first byte, ms"),
                figure: first_ms,
                bound: FIRST_BYTE_MS,
            });
        }
    }
    fs::remove_dir_all(&repo)?;
    Ok(root)
}

/// Returns the name of an entry.
fn name(entry: usize) -> String {
    format!("entry-{entry:07}")
}

fn files_names(body: &[u8]) -> Result<Vec<String>> {
    let listed: Entries = serde_json::from_slice(body).context("the response has unexpected JSON")?;
    Ok(listed.entries.into_iter().map(|entry| entry.name).collect())
}

fn ls_names(body: &[u8]) -> Result<Vec<String>> {
    let pages: Vec<Page> = values(body)?;
    let links = pages.into_iter().flat_map(|page| page.objects).flat_map(|object| object.links);
    Ok(links.map(|entry| entry.name).collect())
}

/// Checks that every entry is listed once.
fn check(mut names: Vec<String>, count: usize) -> Result<()> {
    names.sort_unstable();
    ensure!(names.len() == count, "{} entries are listed in place of {count}", names.len());
    let wrong = names.iter().enumerate().find(|(index, listed)| **listed != name(*index));
    ensure!(wrong.is_none(), "an entry is missing or listed twice: {wrong:?}");
    Ok(())
}

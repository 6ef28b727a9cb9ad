//! Durable addition of files: a large file, compared with `dd` to the same disk, and many small files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{
    Bound, Client, GatewayProcess, Goal, Multipart, Profile, Series, Table, add_file, get, process::memory, random,
    settle,
};

use crate::figures::Measurement;
use crate::site::Site;

const SMALL_FILES: usize = 10_000;
const SMALL_FILE_BYTES: usize = 4 * 1_024;
/// Minimum ratio to dd's MB/s.
const GOAL: Bound = Bound::AtLeast(0.6);
/// Minimum number of files per second.
const SMALL_GOAL: Bound = Bound::AtLeast(20_000.0);

#[derive(Default)]
pub(crate) struct Uploads {
    /// Megabytes per second.
    dd: Series,
    large: Series,
    /// Files per second.
    small: Series,
    peak_resident_mib: Series,
    anonymous_mib: Series,
}

impl Uploads {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn large(&mut self, site: &Site, client: &mut Client, is_first: bool) -> Result<()> {
        let megabytes = site.large_bytes() as f64 / 1e6;
        let mut file = site.large_file()?;
        settle();
        let start = Instant::now();
        let cid = add_file(client, Profile::DagPb, &mut file)?;
        self.large.push(megabytes / start.elapsed().as_secs_f64());
        if is_first {
            client.send(&get(&format!("/ipfs/{cid}")))?;
            client.compare(200, site.large_file()?).context("the large file was returned with different bytes")?;
        }
        Ok(())
    }

    fn small(&mut self, client: &mut Client, is_first: bool) -> Result<()> {
        let content = |index: usize| random(index as u64, SMALL_FILE_BYTES);
        let mut form = Multipart::default();
        (0..SMALL_FILES).for_each(|index| form.file(&content(index)));
        let start = Instant::now();
        let cids = form.send(client, Profile::DagPb)?;
        self.small.push(SMALL_FILES as f64 / start.elapsed().as_secs_f64());
        if is_first {
            for (index, cid) in cids.iter().enumerate() {
                client.send(&get(&format!("/ipfs/{cid}")))?;
                client
                    .compare(200, content(index).as_slice())
                    .context("a small file was returned with different bytes")?;
            }
        }
        Ok(())
    }
}

impl Measurement for Uploads {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        // The gateway uses all cores here, as in production.
        site.cores.for_anything()?;
        let copy = site.scratch("dd");
        // The first run makes the host provide memory again, the second one is measured.
        let seconds = [dd(site.large_path(), &copy)?, dd(site.large_path(), &copy)?];
        self.dd.push(site.large_bytes() as f64 / 1e6 / seconds[1]);
        fs::remove_file(copy)?;
        // Each round uses an empty repo, because the store does not write a block that it already has.
        let repo = site.scratch("uploads");
        let gateway = GatewayProcess::start(&repo, None)?;
        add_file(&mut Client::connect(gateway.address())?, Profile::DagPb, &mut site.large_file()?)?;
        drop(gateway);
        fs::remove_dir_all(&repo)?;
        let gateway = GatewayProcess::start(&repo, None)?;
        let mut client = Client::connect(gateway.address())?;
        self.large(site, &mut client, round == 0)?;
        self.small(&mut client, round == 0)?;
        let memory = memory(gateway.pid())?;
        self.peak_resident_mib.push(memory.peak_resident as f64 / f64::from(1 << 20));
        self.anonymous_mib.push(memory.anonymous as f64 / f64::from(1 << 20));
        drop(gateway);
        site.cores.for_clients()?;
        fs::remove_dir_all(&repo).with_context(|| format!("cannot remove {}", repo.display()))
    }

    fn tables(&self) -> Vec<Table> {
        let ratio = self.large.median() / self.dd.median();
        let row = |what: &str, figure| vec![what.to_owned(), figure];
        vec![Table::new(
            "Uploads, durable when answered",
            ["what", "figure"],
            [
                row("dd conv=fdatasync of the large file, MB/s", self.dd.show(0)),
                row("add of the large file, one connection, MB/s", self.large.show(0)),
                row("add / dd", format!("{ratio:.2}")),
                row("add of 10,000 files of 4 KiB in one request, files/s", self.small.show(0)),
                row("gateway, peak resident (VmHWM, mapped packs included), MiB", self.peak_resident_mib.show(0)),
                row("gateway, anonymous at the end (RssAnon), MiB", self.anonymous_mib.show(0)),
            ],
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        vec![
            Goal {
                what: "add of the large file, MB/s: ipfrs / dd conv=fdatasync".to_owned(),
                figure: self.large.median() / self.dd.median(),
                bound: GOAL,
            },
            Goal {
                what: "add of 10,000 files of 4 KiB in one request: files/s".to_owned(),
                figure: self.small.median(),
                bound: SMALL_GOAL,
            },
        ]
    }
}

/// Returns the seconds that dd takes to write the file durably.
fn dd(from: &Path, to: &Path) -> Result<f64> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    let mut command = Command::new("dd");
    command.arg(format!("if={}", from.display())).arg(format!("of={}", to.display()));
    command.args(["bs=1M", "conv=fdatasync", "status=none"]).stdin(Stdio::null());
    settle();
    let start = Instant::now();
    let status = command.status().context("cannot run dd")?;
    ensure!(status.success(), "dd failed: {status}");
    Ok(start.elapsed().as_secs_f64())
}

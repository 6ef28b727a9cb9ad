//! Files, relayed by a gateway with an empty store and directly from nginx.

use std::fs::File;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipfrs_benches::process::cpu_seconds;
use ipfrs_benches::{Axis, Bound, Chart, Client, Goal, Line, Point, Profile, Series, Table, add_file, get};

use crate::Figures;
use crate::network::{Distance, Servers};
use crate::options::Options;

/// Rates in Mbit/s and round-trip times in milliseconds.
const RATES: [u32; 2] = [100, 1_000];
const ROUND_TRIPS: [u64; 3] = [0, 40, 80];
/// Downloads that take longer than this are measured at one distance only: 40 ms.
const LONG_SECONDS: f64 = 2.0;
const LONG_ROUND_TRIP: u64 = 40;
/// Required ratio of relayed to direct downloads, and delay of the first byte in round trips.
const GOAL: f64 = 1.05;
const FIRST_BYTE_GOAL: f64 = 1.2;

/// Downloads of one file over one distance.
struct Download {
    distance: Distance,
    file: usize,
    direct: Series,
    relayed: Series,
    /// Time by which the first byte of the body is later, in seconds.
    later: Series,
    /// CPU time of the relaying gateway, in seconds per GB.
    cpu: Series,
}

impl Download {
    fn ratio(&self) -> f64 {
        self.relayed.median() / self.direct.median()
    }

    /// Returns the delay of the first byte in round trips.
    fn round_trips_later(&self) -> f64 {
        self.later.median() / self.distance.round_trip.as_secs_f64()
    }
}

fn distances() -> Vec<Distance> {
    let mut distances = vec![Distance { round_trip: Duration::ZERO, mbit_per_second: None }];
    for rate in RATES {
        let far = |ms| Distance { round_trip: Duration::from_millis(ms), mbit_per_second: Some(rate) };
        distances.extend(ROUND_TRIPS.map(far));
    }
    distances
}

/// Returns the downloads to measure, without those that are too long.
fn downloads(options: &Options, servers: &Servers) -> Vec<Download> {
    let mut downloads = Vec::new();
    for distance in distances() {
        for (file, (_, bytes)) in servers.files.iter().enumerate() {
            let seconds = distance.seconds(*bytes);
            let is_once = distance.round_trip == Duration::from_millis(LONG_ROUND_TRIP);
            if seconds <= options.max_seconds && (seconds <= LONG_SECONDS || is_once) {
                let [direct, relayed, later, cpu] = Default::default();
                downloads.push(Download { distance, file, direct, relayed, later, cpu });
            }
        }
    }
    downloads
}

/// Measures all downloads.
pub(crate) fn measure(options: &Options, servers: &Servers) -> Result<Figures> {
    let mut paths = Vec::new();
    for (path, bytes) in &servers.files {
        let cid = add_file(&mut Client::connect(servers.origin.address())?, Profile::DagPb, &mut File::open(path)?)?;
        let name = path.file_name().and_then(|name| name.to_str()).context("a file without a name")?;
        paths.push((format!("/{name}"), format!("/ipfs/{cid}"), *bytes));
    }
    let networks = distances().into_iter().map(|distance| {
        let nginx = distance.to(servers.nginx.servers()[0].1)?;
        Ok((distance, nginx, distance.to(servers.origin.address())?))
    });
    let networks: Vec<(Distance, SocketAddr, SocketAddr)> = networks.collect::<Result<_>>()?;
    let mut downloads = downloads(options, servers);
    for round in 0..options.rounds {
        for download in &mut downloads {
            let (direct_path, relayed_path, bytes) = &paths[download.file];
            let mib = bytes >> 20;
            eprintln!("retrieval: round {} of {}: {mib} MiB, {}", round + 1, options.rounds, download.distance.name());
            let network = networks.iter().find(|(distance, ..)| *distance == download.distance);
            let (_, nginx, origin) = network.context("a distance without a network")?;
            let direct = || time(*nginx, direct_path, *bytes);
            let relayed = || {
                servers.with_relay(*origin, |relay| {
                    let before = cpu_seconds(&[relay.pid()])?;
                    let times = time(relay.address(), relayed_path, *bytes)?;
                    Ok((times, cpu_seconds(&[relay.pid()])? - before))
                })
            };
            // The first of both alternates.
            let (direct, (relayed, cpu)) = if round % 2 == 0 {
                let direct = direct()?;
                (direct, relayed()?)
            } else {
                let relayed = relayed()?;
                (direct()?, relayed)
            };
            download.direct.push(direct.1.as_secs_f64());
            download.relayed.push(relayed.1.as_secs_f64());
            download.later.push(relayed.0.as_secs_f64() - direct.0.as_secs_f64());
            download.cpu.push(cpu / (*bytes as f64 / 1e9));
        }
    }
    let sizes: Vec<u64> = servers.files.iter().map(|(_, bytes)| bytes >> 20).collect();
    Ok(Figures {
        goals: goals(&downloads),
        tables: vec![table(&downloads, &sizes)],
        charts: vec![chart(&downloads, &sizes)],
    })
}

/// Returns the times until the first byte of the body and until the end, of a download over a new connection.
fn time(server: SocketAddr, path: &str, bytes: u64) -> Result<(Duration, Duration)> {
    let start = Instant::now();
    let mut client = Client::connect(server)?;
    let connected = start.elapsed();
    let first = client.time_first_byte(&get(path), bytes)?;
    Ok((connected + first, start.elapsed()))
}

fn table(downloads: &[Download], sizes: &[u64]) -> Table {
    let row = |download: &Download| {
        let later = match download.distance.round_trip.is_zero() {
            true => format!("{:.1} ms", download.later.median() * 1e3),
            false => format!("{:.2} round trips", download.round_trips_later()),
        };
        vec![
            download.distance.name(),
            format!("{} MiB", sizes[download.file]),
            download.direct.show(3),
            download.relayed.show(3),
            format!("{:.2}", download.ratio()),
            later,
            format!("{:.1}", download.cpu.median()),
        ]
    };
    Table::new(
        "Files: relayed by a gateway with an empty store, and directly from nginx",
        ["round trip, rate", "size", "direct, s", "relayed, s", "ratio", "first byte later", "CPU s/GB"],
        downloads.iter().map(row),
    )
}

fn chart(downloads: &[Download], sizes: &[u64]) -> Chart {
    let lines = distances().into_iter().enumerate().map(|(color, distance)| {
        let points = downloads.iter().filter(|download| download.distance == distance);
        let point = |download: &Download| Point::one((sizes[download.file] << 20) as f64, download.ratio());
        Line { name: distance.name(), color, is_dashed: color >= 6, points: points.map(point).collect() }
    });
    Chart {
        name: "retrieval".to_owned(),
        title: "Relayed cold downloads, as multiples of the direct time".to_owned(),
        x: Axis::bytes("size of the file"),
        y: Axis::logarithmic("relayed / direct"),
        lines: lines.collect(),
    }
}

fn goals(downloads: &[Download]) -> Vec<Goal> {
    let worst = |of: &dyn Fn(&Download) -> Option<f64>| downloads.iter().filter_map(of).max_by(f64::total_cmp);
    let far = worst(&|download| download.distance.mbit_per_second.map(|_| download.ratio()));
    let near = worst(&|download| download.distance.mbit_per_second.is_none().then(|| download.ratio()));
    let first = worst(&|download| (!download.distance.round_trip.is_zero()).then(|| download.round_trips_later()));
    let goal = |what: &str, figure: Option<f64>, most| {
        figure.map(|figure| Goal { what: format!("Relayed files: {what}"), figure, bound: Bound::AtMost(most) })
    };
    [
        goal("time / direct, worst at a limited rate", far, GOAL),
        goal("time / direct, worst over loopback", near, GOAL),
        goal("first byte, round trips later, worst", first, FIRST_BYTE_GOAL),
    ]
    .into_iter()
    .flatten()
    .collect()
}

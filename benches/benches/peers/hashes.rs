//! SHA2-256 on one core, as the gateway computes it, compared with `openssl speed`.

use std::env;
use std::hint::black_box;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{Bound, Goal, Series, Table, process::version, random, seconds_each};
use ipfrs_core::hash::HashFunction;

use crate::figures::Measurement;
use crate::site::Site;

/// First argument of a child of this program that hashes.
pub(crate) const HASH: &str = "hash";

const MESSAGE_BYTES: usize = 256 * 1_024;
/// Number of messages that are hashed together.
const MESSAGES: usize = 16;
const TIME: Duration = Duration::from_millis(500);
/// Makes OpenSSL and AWS-LC ignore the SHA extensions of the machine: bit 29 of EBX in CPUID leaf 7.
const WITHOUT_EXTENSIONS: (&str, &str) = ("OPENSSL_ia32cap", ":~0x20000000");
/// Required ratios to aws-lc-rs hashing one message at a time without the extensions: with AVX-512, and with AVX2
/// alone.
const GOALS: [Bound; 2] = [Bound::AtLeast(4.0), Bound::AtLeast(2.5)];

pub(crate) struct Hashes {
    openssl_version: Option<String>,
    /// The machine as it is, and without its SHA extensions.
    machines: Vec<Machine>,
}

#[derive(Default)]
struct Machine {
    name: &'static str,
    environment: Option<(&'static str, &'static str)>,
    /// All figures are in MB/s.
    openssl: Series,
    one_by_one: Series,
    side_by_side: Series,
}

impl Hashes {
    pub(crate) fn new() -> Result<Self> {
        let plain = Machine { name: "as it is", ..Machine::default() };
        let without =
            Machine { name: "without SHA extensions", environment: Some(WITHOUT_EXTENSIONS), ..Machine::default() };
        let has_extensions = cfg!(target_arch = "x86_64");
        let machines = [plain].into_iter().chain([without].into_iter().filter(|_| has_extensions)).collect();
        Ok(Self { openssl_version: version("openssl", "version", "openssl", false)?, machines })
    }
}

/// Prints the MB/s of messages hashed one by one and of messages hashed together.
pub(crate) fn hash() -> Result<()> {
    let messages: Vec<_> = (0..MESSAGES).map(|seed| random(seed as u64, MESSAGE_BYTES)).collect();
    let messages: Vec<_> = messages.iter().map(Vec::as_slice).collect();
    let megabytes = (MESSAGES * MESSAGE_BYTES) as f64 / 1e6;
    let function = HashFunction::Sha2_256;
    let one_by_one = seconds_each(TIME, || {
        for message in &messages {
            black_box(function.digest(black_box(message))?);
        }
        Ok(())
    })?;
    let side_by_side = seconds_each(TIME, || {
        black_box(function.digests(black_box(&messages))?);
        Ok(())
    })?;
    writeln!(io::stdout(), "{} {}", megabytes / one_by_one, megabytes / side_by_side).context("cannot measure")
}

impl Machine {
    fn output(&self, command: &mut Command) -> Result<String> {
        let output = command.envs(self.environment).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{command:?} cannot be run"))?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(told)
    }

    fn measure(&mut self, has_openssl: bool) -> Result<()> {
        let told = self.output(Command::new(env::current_exe()?).arg(HASH))?;
        let figures: Vec<f64> = told.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
        let [one_by_one, side_by_side] = figures[..] else { bail!("hashing printed {told:?}") };
        self.one_by_one.push(one_by_one);
        self.side_by_side.push(side_by_side);
        if has_openssl {
            let bytes = MESSAGE_BYTES.to_string();
            let arguments = ["speed", "-mr", "-seconds", "1", "-bytes", &bytes, "-evp", "sha256"];
            let told = self.output(Command::new("openssl").args(arguments))?;
            // `+F:25:sha256:616300544.00`: bytes per second.
            let rate = told.lines().find_map(|line| line.strip_prefix("+F:")?.rsplit(':').next()?.parse::<f64>().ok());
            self.openssl.push(rate.with_context(|| format!("openssl speed printed {told:?}"))? / 1e6);
        }
        Ok(())
    }
}

impl Measurement for Hashes {
    fn round(&mut self, _site: &Site, _round: usize) -> Result<()> {
        let has_openssl = self.openssl_version.is_some();
        self.machines.iter_mut().try_for_each(|machine| machine.measure(has_openssl))
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.machines.iter().flat_map(|machine| {
            let openssl = self.openssl_version.as_ref().map(|version| {
                let words: Vec<_> = version.split_whitespace().take(2).collect();
                (format!("openssl speed, {}", words.join(" ")), &machine.openssl)
            });
            let ours = [
                ("aws-lc-rs, one after the other".to_owned(), &machine.one_by_one),
                (format!("ipfrs, {MESSAGES} lanes"), &machine.side_by_side),
            ];
            openssl.into_iter().chain(ours).map(|(who, series)| vec![machine.name.to_owned(), who, series.show(0)])
        });
        vec![Table::new("SHA2-256 of messages of 256 KiB, one core (no socket)", ["machine", "who", "MB/s"], rows)]
    }

    fn goals(&self) -> Vec<Goal> {
        let bound = |machine: &&Machine| machine.environment.and(bound());
        let bounds = self.machines.iter().filter_map(|machine| Some((machine, bound(&machine)?)));
        let goals = bounds.map(|(machine, bound)| Goal {
            what: format!("SHA2-256 of 256 KiB {}: multi-buffer / one after the other", machine.name),
            figure: machine.side_by_side.median() / machine.one_by_one.median(),
            bound,
        });
        goals.collect()
    }
}

/// Returns the goal for the vector units of this machine, or `None` if it has neither AVX-512 nor AVX2.
#[cfg(target_arch = "x86_64")]
fn bound() -> Option<Bound> {
    let [avx512, avx2] = GOALS;
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
        return Some(avx512);
    }
    is_x86_feature_detected!("avx2").then_some(avx2)
}

#[cfg(not(target_arch = "x86_64"))]
fn bound() -> Option<Bound> {
    None
}

//! Value parsers for arguments. They use the same parsers as the daemon, so that mistakes are reported before
//! anything is sent.
//!
//! Most values remain text, and the server receives them as the user typed them.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::http::{HeaderName, HeaderValue, Uri};
use ipfrs_core::uri_as_path;
use ipfrs_interface::{HashFunction, Scope, ServerConfig, codec};

/// Longest duration that an argument may specify.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// Checks that `text` parses as a `T`, and returns it unchanged.
pub(super) fn as_a<T: FromStr>(text: &str) -> Result<String, T::Err> {
    text.parse::<T>().map(|_| text.to_owned())
}

/// Checks the name of a hash function.
pub(super) fn hash_function(text: &str) -> Result<String> {
    HashFunction::from_name(text)?;
    Ok(text.to_owned())
}

/// Parses permissions, which are octal with or without a leading 0, into the form that the daemon takes for octal.
pub(super) fn permissions(text: &str) -> Result<String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777 && !digits.starts_with('+'));
    let mode = mode.with_context(|| format!("{text:?} is not octal permissions: use a number such as 0644"))?;
    Ok(format!("0{mode:o}"))
}

/// Checks the name of a codec.
pub(super) fn codec(text: &str) -> Result<String> {
    codec::parse(text)?;
    Ok(text.to_owned())
}

/// Parses a number of threads, within the limits of the configuration.
pub(super) fn workers(text: &str) -> Result<usize> {
    let workers = text.parse()?;
    ServerConfig { workers: Some(workers), ..ServerConfig::default() }.validate()?;
    Ok(workers)
}

/// Parses a duration: a number followed by `ms`, `s`, `m` or `h`. The default unit is seconds.
pub(super) fn duration(text: &str) -> Result<Duration> {
    let (number, unit) = number_and_unit(text);
    let unit_seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => bail!("{unit:?} is not a unit of time: use ms, s, m or h"),
    };
    let number: f64 = number.parse().with_context(|| format!("{text:?} does not begin with a number"))?;
    let seconds = number * unit_seconds;
    if !(0.001..=MAX_DURATION.as_secs_f64()).contains(&seconds) {
        bail!("the duration must be 1ms to 24h");
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a whole number of seconds with a unit: `s`, `m`, `h` or `d`.
pub(super) fn long_duration(text: &str) -> Result<Duration> {
    let (number, unit) = number_and_unit(text);
    let unit_seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => bail!("{unit:?} is not a unit of time: use s, m, h or d"),
    };
    let number: u64 = number.parse().with_context(|| format!("{text:?} does not begin with a whole number"))?;
    let seconds = number.checked_mul(unit_seconds).context("the duration is too long")?;
    Ok(Duration::from_secs(seconds))
}

/// Checks the name of a scope.
pub(super) fn scope(text: &str) -> Result<String> {
    as_a::<Scope>(text).map_err(Into::into)
}

/// Parses a number of bytes, with decimal (`kB`, `MB`, `GB`) or binary (`KiB`, `MiB`, `GiB`) units in any case.
pub(super) fn size(text: &str) -> Result<u64> {
    let (number, unit) = number_and_unit(text);
    let unit_bytes: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => bail!("{unit:?} is not a unit of bytes: use B, kB, MB, GB, KiB, MiB or GiB"),
    };
    let number: u64 = number.parse().with_context(|| format!("{text:?} does not begin with a whole number"))?;
    match number.checked_mul(unit_bytes) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => bail!("the size must be at least one byte and below 16 EiB"),
    }
}

/// Splits `text` before the first letter.
fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    (number.trim(), unit)
}

/// Parses a rate in requests per second.
pub(super) fn rate(text: &str) -> Result<f64> {
    let rate: f64 = text.parse()?;
    if !(0.001..=1_000_000.0).contains(&rate) {
        bail!("the rate must be 0.001 to 1,000,000 requests per second");
    }
    Ok(rate)
}

/// Checks a content path below `/ipfs`.
pub(super) fn ipfs_path(text: &str) -> Result<String> {
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    if uri_as_path(text.as_bytes()).starts_with(b"/ipns/") || is_url {
        bail!("expected a content ID or a path below one: pass paths such as /ipns/NAME with --path");
    }
    Ok(text.to_owned())
}

/// Checks the path of a URL, percent-encoded and with an optional query.
pub(super) fn url_path(text: &str) -> Result<String> {
    if !text.starts_with('/') {
        bail!("a path must start with \"/\": pass content IDs with --cid");
    }
    let uri = text.parse::<Uri>().context("not a URL path: percent-encode spaces and non-ASCII characters")?;
    Ok(uri.to_string())
}

/// Parses a header of the form `NAME: VALUE`.
pub(super) fn header(text: &str) -> Result<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':').context("a header must have the form \"NAME: VALUE\"")?;
    Ok((name.trim().parse()?, value.trim().parse()?))
}

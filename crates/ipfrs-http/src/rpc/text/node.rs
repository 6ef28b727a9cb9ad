//! The texts of commands about the node, its peers and its store.

use std::fmt::Write as _;

use ipfrs_core::timestamp;
use ipfrs_rpc::types::Id;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::writing::{Done, MONTHS, columns, end, escaped, items, line, listed, number, text};
use crate::rpc::args::Args;

/// Default format of `files/stat`.
const STATE: &str = "<hash>\nSize: <size>\nCumulativeSize: <cumulsize>\nChildBlocks: <childs>\nType: <type>\n\
                     Mode: <mode> (<mode-octal>)\nMtime: <mtime>";
const NOT_SET: &str = "not set";

/// Writes a size with a unit, as Go's `humanize.Bytes`.
fn human(bytes: u64) -> String {
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit < 6 {
        value /= 1000.0;
        unit += 1;
    }
    let rounded = (value * 10.0 + 0.5).floor() / 10.0;
    let unit = ["B", "kB", "MB", "GB", "TB", "PB", "EB"][unit];
    if rounded < 10.0 { format!("{rounded:.1} {unit}") } else { format!("{rounded:.0} {unit}") }
}

/// Writes JSON on several lines.
pub(super) fn indented(out: &mut String, value: &impl Serialize, indent: &[u8]) -> Done {
    let mut bytes = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(indent)));
    written.map_err(|e| e.to_string())?;
    out.push_str(&String::from_utf8_lossy(&bytes));
    out.push('\n');
    Ok(())
}

pub(super) fn config_value(value: &Value, args: &Args, out: &mut String) -> Done {
    match value["Value"].as_str() {
        _ if args.arguments().len() == 2 => Ok(()),
        Some(text) => end(writeln!(out, "{}", text.trim_matches('\n'))),
        None => indented(out, &value["Value"], b"  "),
    }
}

pub(super) fn identity(value: &Value, args: &Args, out: &mut String) -> Done {
    let Some(format) = args.text("format") else {
        // The fields have the order of the type, unlike those of a value.
        let identity = Id::deserialize(value).map_err(|e| e.to_string())?;
        indented(out, &identity, b"\t")?;
        out.push('\n');
        return Ok(());
    };
    let lines = |values: &Value| items(values).map(text).collect::<Vec<_>>().join("\n");
    let formatted = format
        .replace("<id>", text(&value["ID"]))
        .replace("<aver>", text(&value["AgentVersion"]))
        .replace("<pubkey>", text(&value["PublicKey"]))
        .replace("<addrs>", &lines(&value["Addresses"]))
        .replace("<protocols>", &lines(&value["Protocols"]))
        .replace("\\n", "\n")
        .replace("\\t", "\t");
    out.push_str(&formatted);
    Ok(())
}

pub(super) fn version(value: &Value, args: &Args, out: &mut String) -> Done {
    let (version, commit) = (text(&value["Version"]), text(&value["Commit"]));
    let with_commit = if commit.is_empty() { version.to_owned() } else { format!("{version}-{commit}") };
    let shown = if args.is_set("commit") { with_commit.as_str() } else { version };
    end(if args.is_set("all") {
        let [repo, system, golang] = ["Repo", "System", "Golang"].map(|key| text(&value[key]));
        writeln!(
            out,
            "Kubo version: {with_commit}\nRepo version: {repo}\nSystem version: {system}\nGolang version: {golang}"
        )
    } else if args.is_set("repo") {
        writeln!(out, "{}", text(&value["Repo"]))
    } else if args.is_set("number") {
        writeln!(out, "{shown}")
    } else {
        writeln!(out, "ipfs version {shown}")
    })
}

pub(super) fn dependency(value: &Value, _: &Args, out: &mut String) -> Done {
    let replaced = match text(&value["ReplacedBy"]) {
        "" => String::new(),
        by => format!(" => {by}"),
    };
    end(writeln!(out, "{}@{}{replaced}", text(&value["Path"]), text(&value["Version"])))
}

pub(super) fn repo(value: &Value, args: &Args, out: &mut String) -> Done {
    let size = |bytes: &Value| if args.is_set("human") { human(number(bytes)) } else { number(bytes).to_string() };
    let is_all = !args.is_set("size-only");
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![format!("{name}:"), value]);
    if is_all {
        row("NumObjects", number(&value["NumObjects"]).to_string());
    }
    row("RepoSize", size(&value["RepoSize"]));
    row("StorageMax", size(&value["StorageMax"]));
    if is_all {
        row("RepoPath", text(&value["RepoPath"]).to_owned());
        row("Version", text(&value["Version"]).to_owned());
    }
    columns(out, &rows, 0);
    Ok(())
}

pub(super) fn checked(value: &Value, _: &Args, out: &mut String) -> Done {
    end(match text(&value["Msg"]) {
        "" => write!(out, "{} blocks processed.\r", number(&value["Progress"])),
        message if message.len() < 20 => writeln!(out, "{message}             "),
        message => writeln!(out, "{message}"),
    })
}

pub(super) fn ledger(value: &Value, _: &Args, out: &mut String) -> Done {
    let (ratio, peer) = (value["Value"].as_f64().unwrap_or(0.0), text(&value["Peer"]));
    let [exchanges, sent, received] = ["Exchanged", "Sent", "Recv"].map(|key| number(&value[key]));
    end(write!(
        out,
        "Ledger for {peer}\nDebt ratio:\t{ratio:.6}\nExchanges:\t{exchanges}\nBytes sent:\t{sent}\n\
         Bytes received:\t{received}\n\n"
    ))
}

pub(super) fn bitswap(value: &Value, args: &Args, out: &mut String) -> Done {
    let size = |key: &str| match args.is_set("human") {
        true => human(number(&value[key])),
        false => number(&value[key]).to_string(),
    };
    let blocks = |key: &str| number(&value[key]);
    let wanted: Vec<_> = items(&value["Wantlist"]).map(|key| text(&key["/"])).collect();
    let peers: Vec<_> = items(&value["Peers"]).map(text).collect();
    let lines = [
        "bitswap status".to_owned(),
        format!("\tblocks received: {}", blocks("BlocksReceived")),
        format!("\tblocks sent: {}", blocks("BlocksSent")),
        format!("\tdata received: {}", size("DataReceived")),
        format!("\tdata sent: {}", size("DataSent")),
        format!("\tdup blocks received: {}", blocks("DupBlksReceived")),
        format!("\tdup data received: {}", size("DupDataReceived")),
        format!("\twantlist [{} keys]", wanted.len()),
    ];
    let wanted = wanted.into_iter().map(|key| format!("\t\t{key}"));
    let partners = format!("\tpartners [{}]", peers.len());
    let peers = peers.into_iter().filter(|_| args.is_set("verbose")).map(|peer| format!("\t\t{peer}"));
    lines.into_iter().chain(wanted).chain([partners]).chain(peers).try_for_each(|line| end(writeln!(out, "{line}")))
}

pub(super) fn peers(value: &Value, _: &Args, out: &mut String) -> Done {
    for peer in items(&value["Peers"]) {
        end(write!(out, "{}/p2p/{}", text(&peer["Addr"]), text(&peer["Peer"])))?;
        if !text(&peer["Latency"]).is_empty() {
            end(write!(out, " {}", text(&peer["Latency"])))?;
        }
        match number(&peer["Direction"]) {
            1 => out.push_str(" inbound"),
            2 => out.push_str(" outbound"),
            _ => {}
        }
        out.push('\n');
        for stream in items(&peer["Streams"]) {
            let protocol = Some(text(&stream["Protocol"])).filter(|name| !name.is_empty());
            end(writeln!(out, "  {}", protocol.unwrap_or("<no protocol name>")))?;
        }
    }
    Ok(())
}

pub(super) fn peer_addresses(value: &Value, _: &Args, out: &mut String) -> Done {
    for (peer, addresses) in value["Addrs"].as_object().into_iter().flatten() {
        end(writeln!(out, "{peer} ({})", items(addresses).count()))?;
        listed(out, "\t", addresses)?;
    }
    Ok(())
}

pub(super) fn steady_peers(value: &Value, _: &Args, out: &mut String) -> Done {
    for peer in items(&value["Peers"]) {
        line(out, &peer["ID"])?;
        listed(out, "\t", &peer["Addrs"])?;
    }
    Ok(())
}

/// The level of one part is printed without its name.
pub(super) fn log_levels(value: &Value, _: &Args, out: &mut String) -> Done {
    if !text(&value["Message"]).is_empty() {
        out.push_str(text(&value["Message"]));
        return Ok(());
    }
    let levels: Vec<_> = value["Levels"].as_object().into_iter().flatten().collect();
    let is_one = levels.len() == 1;
    levels.into_iter().try_for_each(|(name, level)| match is_one {
        true => line(out, level),
        false => end(writeln!(out, "{name}: {}", text(level))),
    })
}

pub(super) fn pinning_services(value: &Value, args: &Args, out: &mut String) -> Done {
    let row = |service: &Value| {
        let mut row = vec![text(&service["Service"]).to_owned(), text(&service["ApiEndpoint"]).to_owned()];
        let (stat, pins) = (&service["Stat"], &service["Stat"]["PinCount"]);
        match pins.is_object() {
            _ if !args.is_set("stat") => {}
            true => {
                let [queued, pinning, pinned, failed] =
                    ["Queued", "Pinning", "Pinned", "Failed"].map(|key| number(&pins[key]));
                row.push(format!("{queued}/{pinning}/{pinned}/{failed}"));
            }
            false => row.push(text(&stat["Status"]).to_owned()),
        }
        row
    };
    columns(out, &items(&value["RemoteServices"]).map(row).collect::<Vec<_>>(), 1);
    Ok(())
}

pub(super) fn ping(value: &Value, _: &Args, out: &mut String) -> Done {
    end(match (text(&value["Text"]), value["Success"] == true) {
        ("", true) => writeln!(out, "Pong received: time={:.2} ms", number(&value["Time"]) as f64 / 1e6),
        ("", false) => writeln!(out, "Pong failed"),
        (text, _) => writeln!(out, "{text}"),
    })
}

pub(super) fn inspected_cid(value: &Value, _: &Args, out: &mut String) -> Done {
    if !text(&value["errorMsg"]).is_empty() {
        return Err(text(&value["errorMsg"]).to_owned());
    }
    let is_v0 = number(&value["version"]) == 0;
    let (codec, hash, base) = (&value["multicodec"], &value["multihash"], &value["multibase"]);
    let (codec_name, codec_code) = (text(&codec["name"]), number(&codec["code"]));
    let (hash_name, hash_code) = (text(&hash["name"]), number(&hash["code"]));
    let (length, implicit) = (number(&hash["length"]), if is_v0 { ", implicit" } else { "" });
    let prefix = if is_v0 { "implicit" } else { text(&base["prefix"]) };
    end(write!(
        out,
        "CID:        {}\nVersion:    {}\nMultibase:  {} ({prefix})\nMulticodec: {codec_name} ({codec_code:#x}{implicit})\n\
         Multihash:  {hash_name} ({hash_code:#x}{implicit})\n  Length:   {length} bytes\n  Digest:   {}\n",
        text(&value["cid"]),
        number(&value["version"]),
        text(&base["name"]),
        text(&hash["digest"]),
    ))?;
    match text(&value["cidV0"]) {
        "" if codec_code != 0x70 => {
            end(writeln!(out, "CIDv0:      not possible, requires dag-pb (0x70), got {codec_name} ({codec_code:#x})"))?
        }
        "" if hash_code != 0x12 => {
            end(writeln!(out, "CIDv0:      not possible, requires sha2-256 (0x12), got {hash_name} ({hash_code:#x})"))?
        }
        "" if length != 32 => {
            end(writeln!(out, "CIDv0:      not possible, requires 32-byte digest, got {length}"))?;
        }
        "" => {}
        cid => end(writeln!(out, "CIDv0:      {cid}"))?,
    }
    end(writeln!(out, "CIDv1:      {}", text(&value["cidV1"])))
}

/// Kubo writes a table for each line of the response.
pub(super) fn dag_sizes(value: &Value, _: &Args, out: &mut String) -> Done {
    let dags: Vec<_> = items(&value["DagStats"]).collect();
    let width = dags.first().map_or(0, |dag| text(&dag["Cid"]).len());
    end(writeln!(out, "\n{:width$}\t{:15}\tSize", "CID", "Blocks"))?;
    for dag in dags {
        let blocks = number(&dag["NumBlocks"]).to_string();
        end(writeln!(out, "{}\t{blocks:15}\t{}", text(&dag["Cid"]), number(&dag["Size"])))?;
    }
    let (total, shared) = (number(&value["TotalSize"]), number(&value["SharedSize"]));
    end(write!(
        out,
        "\nSummary\nTotal Size: {total} ({})\nUnique Blocks: {}\nShared Size: {shared} ({})\nRatio: {:.6}\n\n\n",
        human(total),
        number(&value["UniqueBlocks"]),
        human(shared),
        value["Ratio"].as_f64().unwrap_or(0.0),
    ))
}

pub(super) fn file_state(value: &Value, args: &Args, out: &mut String) -> Done {
    let format = match args.text("format") {
        _ if args.is_set("hash") => "<hash>",
        _ if args.is_set("size") => "<cumulsize>",
        format => format.unwrap_or(STATE),
    };
    let mode = value["Mode"].as_str().and_then(|octal| u32::from_str_radix(octal, 8).ok()).filter(|mode| *mode != 0);
    let seconds = value["Mtime"].as_i64().filter(|seconds| *seconds > 0);
    let or_not_set = |text: Option<String>| text.unwrap_or_else(|| NOT_SET.to_owned());
    let nanoseconds = number(&value["MtimeNsecs"]);
    let formatted = format
        .replace("<hash>", text(&value["Hash"]))
        .replace("<size>", &number(&value["Size"]).to_string())
        .replace("<cumulsize>", &number(&value["CumulativeSize"]).to_string())
        .replace("<childs>", &number(&value["Blocks"]).to_string())
        .replace("<type>", text(&value["Type"]))
        .replace("<mode>", &or_not_set(mode.map(|mode| mode_text(mode, text(&value["Type"])))))
        .replace("<mode-octal>", &or_not_set(mode.map(|mode| format!("0{:o}", mode & 0o777))))
        .replace("<mtime>", &or_not_set(seconds.and_then(date)))
        .replace("<mtime-secs>", &or_not_set(seconds.map(|seconds| seconds.to_string())))
        .replace("<mtime-nsecs>", &or_not_set(seconds.map(|_| nanoseconds.to_string())));
    end(writeln!(out, "{formatted}"))?;
    if value["WithLocality"] == true {
        let (local, all) = (number(&value["SizeLocal"]), number(&value["CumulativeSize"]));
        let share = 100.0 * local as f64 / all as f64;
        end(writeln!(out, "Local: {} of {} ({share:.2}%)", human(local), human(all)))?;
    }
    Ok(())
}

/// Writes permission bits as `-rw-r--r--`, those of a symlink with `l` and those of a directory with `d`.
fn mode_text(mode: u32, kind: &str) -> String {
    let letters = "rwxrwxrwx".chars().enumerate();
    let bits = letters.map(|(at, letter)| if mode & (0o400 >> at) == 0 { '-' } else { letter });
    let first = match kind {
        "symlink" => 'l',
        "directory" => 'd',
        _ => '-',
    };
    std::iter::once(first).chain(bits).collect()
}

/// Writes a time as `2 Jan 2006, 15:04:05 UTC`.
fn date(seconds: i64) -> Option<String> {
    let formatted = timestamp::format(seconds, 0)?;
    let (day, time) = formatted.split_once('T')?;
    let mut parts = day.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?.parse::<usize>().ok()?, parts.next()?.parse::<u32>().ok()?);
    Some(format!("{day} {} {year}, {} UTC", MONTHS.get(month.checked_sub(1)?)?, escaped(time.trim_end_matches('Z'))))
}

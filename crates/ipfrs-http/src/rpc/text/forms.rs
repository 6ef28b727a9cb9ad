//! The texts of commands.

use std::fmt::Write as _;

use serde_json::Value;

use super::writing::{Done, columns, end, escaped, items, line, link, listed, number, text};
use super::{difference, listing, node, reports, structures};
use crate::rpc::args::Args;

/// Writes the text of a response, or of one of its lines. An error ends the response.
pub(in crate::rpc) type Form = fn(&Value, &Args, &mut String) -> Done;

/// Returns the form of a command, if it has one.
pub(in crate::rpc) fn of(path: &str) -> Option<Form> {
    Some(match path {
        "add" => structures::added,
        "bitswap/ledger" => node::ledger,
        "bitswap/stat" | "stats/bitswap" => node::bitswap,
        "bitswap/wantlist" => wantlist,
        "block/put" => |value, _, out| line(out, &value["Key"]),
        "block/rm" => structures::removed_block,
        "block/stat" => block,
        "bootstrap/add" => |value, _, out| bootstrap(out, "added ", value),
        "bootstrap" | "bootstrap/list" => |value, _, out| bootstrap(out, "", value),
        "bootstrap/rm" | "bootstrap/rm/all" => |value, _, out| bootstrap(out, "removed ", value),
        "cid/base32" | "cid/format" => structures::formatted_cid,
        "cid/bases" | "multibase/list" => bases,
        "cid/codecs" | "cid/hashes" => codecs,
        "cid/inspect" => node::inspected_cid,
        "commands" => reports::commands,
        "config" => node::config_value,
        "config/profile/apply" => difference::settings,
        "config/show" => |value, _, out| node::indented(out, value, b"  "),
        "dag/import" => imported,
        "dag/put" => |value, _, out| line(out, link(&value["Cid"])),
        "dag/resolve" => resolved_node,
        "dag/stat" => node::dag_sizes,
        "diag/cmds" => reports::logged_commands,
        // Kubo prints these strings without an end of the line.
        "diag/healthy" | "files/rm" => |value, _, out| {
            out.push_str(text(value));
            Ok(())
        },
        "diag/sys" => |value, _, out| end(writeln!(out, "{value}")),
        "files/flush" => |value, _, out| line(out, &value["Cid"]),
        "files/ls" => files,
        "files/stat" => node::file_state,
        "filestore/dups" | "refs" | "refs/local" | "repo/ls" => reference,
        "filestore/ls" => reports::reference,
        "filestore/verify" => reports::verified_reference,
        "id" => node::identity,
        "key/gen" | "key/import" => |value, _, out| line(out, &value["Id"]),
        "key/list" | "key/ls" | "key/rm" => keys,
        "key/rename" => renamed,
        "key/sign" => structures::signature,
        "key/verify" => structures::checked_signature,
        "log/level" => node::log_levels,
        "log/ls" | "swarm/addrs/listen" | "swarm/addrs/local" | "swarm/connect" | "swarm/disconnect"
        | "swarm/filters" => |value, _, out| listed(out, "", &value["Strings"]),
        "ls" => listing::directory,
        "name/inspect" => reports::record,
        "name/publish" => published,
        "name/pubsub/state" => {
            |value, _, out| end(writeln!(out, "{}", if value["Enabled"] == true { "enabled" } else { "disabled" }))
        }
        "name/put" => |value, args, out| if args.is_set("quiet") { Ok(()) } else { line(out, &value["Name"]) },
        "name/resolve" | "resolve" => |value, _, out| line(out, &value["Path"]),
        "object/diff" => changes,
        "object/patch/add-link" | "object/patch/rm-link" => |value, _, out| line(out, &value["Hash"]),
        "pin/add" => pinned,
        "pin/ls" => pins,
        "pin/remote/add" => remote_pin,
        "pin/remote/ls" => |value, _, out| {
            let row = [&value["Cid"], &value["Status"], &value["Name"]].map(|cell| escaped(text(cell)));
            end(writeln!(out, "{}", row.join("\t")))
        },
        "pin/remote/service/ls" => node::pinning_services,
        "pin/rm" => |value, _, out| listed(out, "unpinned ", &value["Pins"]),
        "pin/update" => {
            |value, _, out| end(writeln!(out, "updated {} to {}", text(&value["Pins"][0]), text(&value["Pins"][1])))
        }
        "pin/verify" => verified,
        "ping" => node::ping,
        "provide/clear" => |value, args, out| match args.is_set("quiet") {
            true => Ok(()),
            false => end(writeln!(out, "removed {} items from provide queue", number(value))),
        },
        "pubsub/reset" => |value, args, out| match args.nonempty_text("peer") {
            Some(peer) => end(writeln!(out, "No validator state found for peer {peer}")),
            None => end(writeln!(out, "Reset validator state for {} peer(s)", number(&value["deleted"]))),
        },
        "repo/gc" => removed,
        "repo/stat" | "stats/repo" => node::repo,
        "repo/verify" => node::checked,
        "repo/version" => |value, args, out| {
            let before = if args.is_set("quiet") { "" } else { "ipfs repo version " };
            end(writeln!(out, "{before}fs-repo@{}", text(&value["Version"])))
        },
        "routing/findpeer" => reports::found_peer,
        "routing/findprovs" => reports::provider,
        // The text of a record is not UTF-8, and is not written here.
        "routing/get" => |_, _, _| Ok(()),
        "routing/put" => reports::stored_record,
        "stats/bw" => structures::bandwidth,
        "swarm/addrs" => node::peer_addresses,
        "swarm/peering/add" => |value, _, out| peering(out, "add", value),
        "swarm/peering/ls" => node::steady_peers,
        "swarm/peering/rm" => |value, _, out| peering(out, "remove", value),
        "swarm/peers" => node::peers,
        "version" => node::version,
        "version/deps" => node::dependency,
        _ => return None,
    })
}

fn block(value: &Value, _: &Args, out: &mut String) -> Done {
    end(write!(out, "Key: {}\nSize: {}\n", text(&value["Key"]), number(&value["Size"])))
}

fn bootstrap(out: &mut String, before: &str, value: &Value) -> Done {
    let mut peers: Vec<_> = items(&value["Peers"]).map(text).collect();
    peers.sort_unstable();
    peers.into_iter().try_for_each(|peer| end(writeln!(out, "{before}{peer}")))
}

fn wantlist(value: &Value, _: &Args, out: &mut String) -> Done {
    items(&value["Keys"]).try_for_each(|key| line(out, link(key)))
}

fn bases(value: &Value, args: &Args, out: &mut String) -> Done {
    let mut bases: Vec<_> = items(value).map(|base| (number(&base["Code"]), text(&base["Name"]))).collect();
    // A lower-case letter comes before the same one in upper case.
    let lower =
        |code: u64| u32::try_from(code).ok().and_then(char::from_u32).map_or(code, |c| c.to_ascii_lowercase().into());
    bases.sort_by_key(|(code, _)| (lower(*code), std::cmp::Reverse(*code)));
    for (code, name) in bases {
        let prefix = u32::try_from(code).ok().and_then(char::from_u32).filter(|c| !c.is_control()).unwrap_or(' ');
        end(match (args.is_set("prefix"), args.is_set("numeric")) {
            (true, true) => writeln!(out, "{prefix} {code:7}  {name}"),
            (true, false) => writeln!(out, "{prefix}  {name}"),
            (false, true) => writeln!(out, "{code:7}  {name}"),
            (false, false) => writeln!(out, "{name}"),
        })?;
    }
    Ok(())
}

fn codecs(value: &Value, args: &Args, out: &mut String) -> Done {
    let mut codecs: Vec<_> = items(value).map(|codec| (number(&codec["Code"]), text(&codec["Name"]))).collect();
    codecs.sort_unstable();
    codecs.into_iter().try_for_each(|(code, name)| {
        end(if args.is_set("numeric") { writeln!(out, "{code:5}  {name}") } else { writeln!(out, "{name}") })
    })
}

fn imported(value: &Value, args: &Args, out: &mut String) -> Done {
    let (root, stats) = (&value["Root"], &value["Stats"]);
    if args.is_set("silent") {
        return Ok(());
    }
    if root.is_null() {
        let (blocks, bytes) = (number(&stats["BlockCount"]), number(&stats["BlockBytesCount"]));
        return end(match args.is_set("stats") {
            true => writeln!(out, "Imported {blocks} blocks ({bytes} bytes)"),
            false => Ok(()),
        });
    }
    let cid = text(link(&root["Cid"]));
    match text(&root["PinErrorMsg"]) {
        "" => end(writeln!(out, "Pinned root\t{cid}\tsuccess")),
        why => Err(format!("pinning root {cid:?} FAILED: {why}")),
    }
}

fn resolved_node(value: &Value, _: &Args, out: &mut String) -> Done {
    out.push_str(text(link(&value["Cid"])));
    let rest = text(&value["RemPath"]);
    if !rest.is_empty() {
        end(write!(out, "/{}", rest.trim_matches('/')))?;
    }
    Ok(())
}

fn files(value: &Value, args: &Args, out: &mut String) -> Done {
    let mut entries: Vec<_> = items(&value["Entries"]).collect();
    if !args.is_set("U") {
        entries.sort_by_key(|entry| text(&entry["Name"]));
    }
    for entry in entries {
        let name = text(&entry["Name"]);
        let end_of_name = if entry["Type"] == 1 { "/" } else { "" };
        end(match args.is_set("long") {
            true => writeln!(out, "{name}{end_of_name}\t{}\t{}", text(&entry["Hash"]), number(&entry["Size"])),
            false => writeln!(out, "{name}"),
        })?;
    }
    Ok(())
}

fn reference(value: &Value, _: &Args, out: &mut String) -> Done {
    match text(&value["Err"]) {
        "" => end(writeln!(out, "{}", text(&value["Ref"]))),
        why => Err(why.to_owned()),
    }
}

fn keys(value: &Value, args: &Args, out: &mut String) -> Done {
    if !args.is_set("l") {
        return items(&value["Keys"]).try_for_each(|key| line(out, &key["Name"]));
    }
    let row = |key: &Value| vec![text(&key["Id"]).to_owned(), escaped(text(&key["Name"])), String::new()];
    columns(out, &items(&value["Keys"]).map(row).collect::<Vec<_>>(), 1);
    Ok(())
}

fn renamed(value: &Value, _: &Args, out: &mut String) -> Done {
    let over = if value["Overwrite"] == true { " with overwriting" } else { "" };
    end(writeln!(out, "Key {} renamed to {}{over}", text(&value["Id"]), escaped(text(&value["Now"]))))
}

fn published(value: &Value, args: &Args, out: &mut String) -> Done {
    let (name, target) = (escaped(text(&value["Name"])), escaped(text(&value["Value"])));
    end(match args.is_set("quieter") {
        true => writeln!(out, "{name}"),
        false => writeln!(out, "Published to {name}: {target}"),
    })
}

fn changes(value: &Value, args: &Args, out: &mut String) -> Done {
    for change in items(&value["Changes"]) {
        let (path, before, after) = (&change["Path"], text(link(&change["Before"])), text(link(&change["After"])));
        end(match (number(&change["Type"]), args.is_set("verbose")) {
            (0, true) => writeln!(out, "Added new link {path} pointing to {after}."),
            (1, true) => writeln!(out, "Removed link {path} (was {before})."),
            (_, true) => writeln!(out, "Changed {path} from {before} to {after}."),
            (0, false) => writeln!(out, "+ {after} {path}"),
            (1, false) => writeln!(out, "- {before} {path}"),
            (_, false) => writeln!(out, "~ {before} {after} {path}"),
        })?;
    }
    Ok(())
}

fn pinned(value: &Value, args: &Args, out: &mut String) -> Done {
    let how = if args.is_set("recursive") { "recursively" } else { "directly" };
    items(&value["Pins"]).try_for_each(|pin| end(writeln!(out, "pinned {} {how}", text(pin))))
}

fn pins(value: &Value, args: &Args, out: &mut String) -> Done {
    let mut pin = |cid: &str, pin: &Value| {
        end(match (args.is_set("quiet"), text(&pin["Name"])) {
            (true, _) => writeln!(out, "{cid}"),
            (false, "") => writeln!(out, "{cid} {}", text(&pin["Type"])),
            (false, name) => writeln!(out, "{cid} {} {name}", text(&pin["Type"])),
        })
    };
    match value["Keys"].as_object() {
        Some(keys) => keys.iter().try_for_each(|(cid, of_key)| pin(cid, of_key)),
        None if value.get("Cid").is_some() => pin(text(&value["Cid"]), value),
        None => Ok(()),
    }
}

fn remote_pin(value: &Value, _: &Args, out: &mut String) -> Done {
    let row = |name: &str, value: &Value| vec![format!("{name}:"), text(value).to_owned()];
    columns(out, &[row("CID", &value["Cid"]), row("Name", &value["Name"]), row("Status", &value["Status"])], 0);
    Ok(())
}

fn verified(value: &Value, args: &Args, out: &mut String) -> Done {
    let (cid, is_ok) = (text(&value["Cid"]), value["Ok"] == true);
    match (args.is_set("quiet"), is_ok) {
        (true, true) => return Ok(()),
        (true, false) => return end(writeln!(out, "{cid}")),
        (false, true) => return end(writeln!(out, "{cid} ok")),
        (false, false) => end(writeln!(out, "{cid} broken"))?,
    }
    items(&value["BadNodes"])
        .try_for_each(|node| end(writeln!(out, "  {}: {}", text(&node["Cid"]), text(&node["Err"]))))
}

fn removed(value: &Value, args: &Args, out: &mut String) -> Done {
    let before = if args.is_set("quiet") { "" } else { "removed " };
    match (text(&value["Error"]), value["Key"].is_object()) {
        _ if args.is_set("silent") => Ok(()),
        ("", true) => end(writeln!(out, "{before}{}", text(link(&value["Key"])))),
        ("", false) => Ok(()),
        (why, _) => end(writeln!(out, "Error: {why}")),
    }
}

fn peering(out: &mut String, verb: &str, value: &Value) -> Done {
    end(writeln!(out, "{verb} {} {}", text(&value["ID"]), text(&value["Status"])))
}

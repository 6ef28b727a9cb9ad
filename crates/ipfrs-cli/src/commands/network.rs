//! `swarm`, `ping` and `stats`.

use anyhow::Result;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{
    BandwidthTotals, BitswapStat, Lines, Peering, PeeringChange, PingLine, RepoStat, SwarmAddresses, SwarmPeers,
};

use crate::api::Api;
use crate::args::{PeeringCommand, PingArgs, StatsCommand, SwarmCommand};
use crate::output::{Output, printable};

pub(super) async fn swarm(api: &Api, command: SwarmCommand, out: &mut Output) -> Result<()> {
    let request = match command {
        SwarmCommand::Peers { verbose } => return peers(api, verbose, out).await,
        SwarmCommand::Peering(command) => return peering(api, command, out).await,
        SwarmCommand::Addrs => {
            let SwarmAddresses { addrs } = api.call(Request::query("swarm/addrs")).await?.json().await?;
            for (peer, addresses) in addrs {
                if out.is_json() {
                    out.object(&serde_json::json!({ "Peer": peer, "Addrs": addresses }))?;
                    continue;
                }
                out.line(&format!("{peer} ({})", addresses.len()))?;
                addresses.iter().try_for_each(|address| out.line(&format!("  {}", printable(address))))?;
            }
            return Ok(());
        }
        SwarmCommand::Listen => Request::query("swarm/addrs/listen"),
        SwarmCommand::Connect { addresses } => Request::command("swarm/connect").with_args(addresses),
        SwarmCommand::Disconnect { addresses } => Request::command("swarm/disconnect").with_args(addresses),
    };
    let lines: Lines = api.call(request).await?.json().await?;
    if out.is_json() {
        return out.object(&lines);
    }
    lines.strings.iter().try_for_each(|line| out.line(&printable(line)))
}

async fn peering(api: &Api, command: PeeringCommand, out: &mut Output) -> Result<()> {
    let request = match command {
        PeeringCommand::Ls => {
            let Peering { peers } = api.call(Request::query("swarm/peering/ls")).await?.json().await?;
            for peer in peers {
                if out.is_json() {
                    out.object(&peer)?;
                    continue;
                }
                out.line(&printable(&peer.id))?;
                peer.addrs.iter().try_for_each(|address| out.line(&format!("  {}", printable(address))))?;
            }
            return Ok(());
        }
        PeeringCommand::Add { addresses } => Request::command("swarm/peering/add").with_args(addresses),
        PeeringCommand::Rm { peers } => Request::command("swarm/peering/rm").with_args(peers),
    };
    let mut response = api.call(request).await?;
    while let Some(change) = response.line::<PeeringChange>().await? {
        match out.is_json() {
            true => out.object(&change)?,
            false => out.line(&format!("{} {}", printable(&change.id), printable(&change.status)))?,
        }
    }
    Ok(())
}

pub(super) async fn ping(api: &Api, args: &PingArgs, out: &mut Output) -> Result<()> {
    let mut response = api.call(Request::query("ping").with_arg(&args.peer).with("count", args.count)).await?;
    while let Some(line) = response.line::<PingLine>().await? {
        match out.is_json() {
            true => out.object(&line)?,
            false if line.text.is_empty() => {
                let milliseconds = std::time::Duration::from_nanos(line.time).as_secs_f64() * 1e3;
                out.line(&format!("{milliseconds:.2} ms"))?;
            }
            false => out.line(&printable(&line.text))?,
        }
    }
    Ok(())
}

async fn peers(api: &Api, verbose: bool, out: &mut Output) -> Result<()> {
    let request = Request::query("swarm/peers").with("direction", verbose).with("latency", verbose);
    let SwarmPeers { peers, .. } = api.call(request).await?.json().await?;
    for peer in peers {
        if out.is_json() {
            out.object(&peer)?;
            continue;
        }
        let direction = match peer.direction.filter(|_| verbose) {
            Some(1) => " inbound",
            Some(2) => " outbound",
            _ => "",
        };
        let line = format!("{}/p2p/{} {}{direction}", peer.addr, peer.peer, peer.latency);
        out.line(printable(line.trim_end()).as_str())?;
    }
    Ok(())
}

pub(super) async fn stats(api: &Api, command: StatsCommand, out: &mut Output) -> Result<()> {
    match command {
        StatsCommand::Bw => {
            let totals: BandwidthTotals = api.call(Request::query("stats/bw")).await?.json().await?;
            if out.is_json() {
                return out.object(&totals);
            }
            out.line(&format!("received: {} bytes, {:.0} bytes/s", totals.total_in, totals.rate_in))?;
            out.line(&format!("sent:     {} bytes, {:.0} bytes/s", totals.total_out, totals.rate_out))
        }
        StatsCommand::Bitswap => {
            let stat: BitswapStat = api.call(Request::query("stats/bitswap")).await?.json().await?;
            if out.is_json() {
                return out.object(&stat);
            }
            out.line(&format!("received: {} blocks, {} bytes", stat.blocks_received, stat.data_received))?;
            out.line(&format!("sent:     {} blocks, {} bytes", stat.blocks_sent, stat.data_sent))?;
            out.line(&format!("peers: {}, wanted: {}", stat.peers.len(), stat.wantlist.len()))
        }
        StatsCommand::Repo => {
            let stat: RepoStat = api.call(Request::query("stats/repo")).await?.json().await?;
            if out.is_json() {
                return out.object(&stat);
            }
            out.line(&format!("{} blocks, {} bytes", stat.num_objects.unwrap_or_default(), stat.repo_size))
        }
    }
}

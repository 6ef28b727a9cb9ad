//! `ping`: round trips to peers.

use std::time::Duration;

use axum::extract::State;
use ipfrs_core::{Error, ErrorKind};
use ipfrs_node::Name;
use ipfrs_rpc::types::PingLine;
use tokio::time::{MissedTickBehavior, interval};

use super::args::Args;
use super::command_result::CommandResult;
use super::unavailable::needs_peers;
use super::{long_command, swarm};
use crate::state::AppState;

/// Time from one round trip to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// `ping?arg=peer[&count=]`: sends the time of each round trip to a peer, one per second. An address that ends in
/// `/p2p/` and a peer ID is connected to first.
pub(super) async fn ping(State(state): State<AppState>, args: Args) -> CommandResult {
    needs_peers(&state)?;
    let target = args.text_at(0).to_owned();
    let id = target.rsplit_once("/p2p/").map_or(&*target, |(_, id)| id);
    let failed =
        |e: Error| Error::invalid(format!("failed to parse peer address '{target}': failed to parse peer ID: {e}"));
    let id = Name::parse(id).map_err(failed)?.peer_id();
    if id == state.node.identity().peer_id() {
        return Err(Error::invalid("error: can't ping self").into());
    }
    let count = args.number::<i32>("count")?.unwrap_or_default();
    if count <= 0 {
        return Err(Error::invalid(format!("ping count must be greater than 0, was {count}")).into());
    }
    long_command::answer(args.takes_trailers, state.config.idle_patience(), move |lines| async move {
        let text = |text: String| PingLine { success: true, time: 0, text };
        if target.starts_with('/') {
            state.node.connect_peer(&target).await?;
        } else if swarm::find(&state.node, &id)?.is_none() {
            lines.send(&text(format!("Looking up peer {id}"))).await?;
            let why = format!("peer lookup failed: routing: not found: peer {id} is not connected (swarm/connect)");
            return Err(Error::not_found(why));
        }
        lines.send(&text(format!("PING {id}."))).await?;
        let mut pinger = state.node.ping_peer(&id).await;
        let (mut total, mut received) = (Duration::ZERO, 0_u32);
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..count {
            ticks.tick().await;
            let round_trip = match &mut pinger {
                Ok(pinger) => pinger.ping().await,
                Err(_) => break,
            };
            match round_trip {
                Ok(time) => {
                    (total, received) = (total + time, received + 1);
                    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                    lines.send(&PingLine { success: true, time, text: String::new() }).await?;
                }
                Err(error) => {
                    lines.send(&PingLine { success: false, time: 0, text: format!("Ping error: {error}") }).await?;
                    // A stream that has failed once fails again.
                    pinger = state.node.ping_peer(&id).await;
                }
            }
        }
        if received == 0 {
            let why = pinger.err().map(|e| format!(": {e}")).unwrap_or_default();
            return Err(Error::new(ErrorKind::Unavailable, format!("ping failed{why}")));
        }
        let average = total.as_secs_f64() * 1e3 / f64::from(received);
        lines.send(&text(format!("Average latency: {average:.2}ms"))).await
    })
    .await
}

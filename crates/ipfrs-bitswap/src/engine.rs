//! Starts the tasks of peers and their streams.

use std::sync::Arc;

use libp2p::Stream;

use crate::client::writer;
use crate::context::Context;
use crate::peer::Peer;
use crate::reader;
use crate::server::responder;
use crate::verify::Verifier;

/// Starts the tasks of peers and their streams. Clones share their state.
#[derive(Clone)]
pub(crate) struct Engine {
    pub context: Arc<Context>,
    verifier: Verifier,
}

impl Engine {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let verifier = Verifier::start(Arc::clone(&context));
        Self { context, verifier }
    }

    /// Starts the tasks of a peer that has just connected. They end when the peer is closed.
    pub(crate) fn start_peer(&self, peer: &Arc<Peer>) {
        tokio::spawn(writer::run(Arc::clone(&self.context), Arc::clone(peer)));
        tokio::spawn(responder::run(Arc::clone(&self.context), Arc::clone(peer)));
    }

    /// Starts reading messages from a stream that a peer opened.
    pub(crate) fn accept(&self, peer: &Arc<Peer>, stream: Stream) {
        tokio::spawn(reader::run(Arc::clone(&self.context), self.verifier.clone(), Arc::clone(peer), stream));
    }
}

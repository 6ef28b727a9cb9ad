use bytes::Bytes;
use ipfrs_core::codec;
use ipfrs_core::hash::sha2_256;
use tokio::sync::mpsc;

use super::*;

fn block(number: u8) -> Block {
    let data = Bytes::from(vec![number]);
    Block::trusted(Cid::new_v1(codec::RAW, sha2_256(&data)), data)
}

fn book_with(sessions: &[SessionId]) -> (WantBook, mpsc::UnboundedReceiver<SessionEvent>) {
    let mut book = WantBook::new(PeerId::random());
    let (sender, receiver) = mpsc::unbounded_channel();
    sessions.iter().for_each(|id| book.attach(*id, sender.clone()));
    (book, receiver)
}

fn kinds(outgoing: &[(Cid, Outgoing)]) -> Vec<(Cid, Option<WantKind>)> {
    let kind = |outgoing: &Outgoing| match outgoing {
        Outgoing::Want { kind, .. } => Some(*kind),
        Outgoing::Cancel => None,
    };
    outgoing.iter().map(|(cid, outgoing)| (*cid, kind(outgoing))).collect()
}

#[test]
fn want_is_sent_once_for_two_sessions_and_cancelled_with_the_last() {
    let (a, b) = (SessionId::next(), SessionId::next());
    let (mut book, _events) = book_with(&[a, b]);
    let cid = *block(1).cid();
    book.want(cid, WantKind::Block, a);
    book.want(cid, WantKind::Block, b);
    assert_eq!(kinds(&book.take_outgoing(9)), [(cid, Some(WantKind::Block))]);
    book.cancel(&cid, a);
    assert!(book.take_outgoing(9).is_empty());
    book.cancel(&cid, b);
    assert_eq!(kinds(&book.take_outgoing(9)), [(cid, None)]);
}

#[test]
fn unsent_presence_want_is_forgotten_without_cancel() {
    let session = SessionId::next();
    let (mut book, _events) = book_with(&[session]);
    book.want(*block(1).cid(), WantKind::Have, session);
    book.cancel(block(1).cid(), session);
    assert!(book.take_outgoing(9).is_empty());
}

#[test]
fn want_after_cancel_in_one_message_is_a_want() {
    let session = SessionId::next();
    let (mut book, _events) = book_with(&[session]);
    let cid = *block(1).cid();
    book.want(cid, WantKind::Block, session);
    book.take_outgoing(9);
    book.cancel(&cid, session);
    book.want(cid, WantKind::Block, session);
    assert_eq!(kinds(&book.take_outgoing(9)), [(cid, Some(WantKind::Block))]);
}

#[test]
fn presence_want_is_upgraded_and_refused_want_stays() {
    let session = SessionId::next();
    let (mut book, mut events) = book_with(&[session]);
    let cid = *block(1).cid();
    book.want(cid, WantKind::Have, session);
    book.take_outgoing(9);
    book.want(cid, WantKind::Block, session);
    assert_eq!(kinds(&book.take_outgoing(9)), [(cid, Some(WantKind::Block))]);
    assert!(book.presence(&cid, false));
    assert!(matches!(events.try_recv(), Ok(SessionEvent::Presence { has_block: false, .. })));
    assert_eq!(
        book.deliver(&block(1), &MessageMemory::default()),
        Delivery::Wanted,
        "the peer received the block later"
    );
    assert!(matches!(events.try_recv(), Ok(SessionEvent::Block { .. })));
}

#[test]
fn blocks_are_wanted_late_or_unrequested() {
    let session = SessionId::next();
    let (mut book, mut events) = book_with(&[session]);
    book.want(*block(1).cid(), WantKind::Block, session);
    book.want(*block(2).cid(), WantKind::Block, session);
    book.take_outgoing(9);
    assert_eq!(book.deliver(&block(1), &MessageMemory::default()), Delivery::Wanted);
    assert!(matches!(events.try_recv(), Ok(SessionEvent::Block { .. })));
    assert_eq!(book.deliver(&block(1), &MessageMemory::default()), Delivery::Late);
    book.cancel(block(2).cid(), session);
    assert_eq!(book.deliver(&block(2), &MessageMemory::default()), Delivery::Late);
    assert_eq!(book.deliver(&block(3), &MessageMemory::default()), Delivery::Unrequested);
    assert!(events.try_recv().is_err());
}

#[test]
fn block_is_delivered_under_the_wanted_cid() {
    let session = SessionId::next();
    let (mut book, mut events) = book_with(&[session]);
    let cid = Cid::new_v0(*block(1).cid().hash()).unwrap();
    book.want(cid, WantKind::Block, session);
    assert_eq!(book.deliver(&block(1), &MessageMemory::default()), Delivery::Wanted);
    let Ok(SessionEvent::Block { received: Received { block, .. }, .. }) = events.try_recv() else {
        panic!("no block")
    };
    assert_eq!(*block.cid(), cid);
}

#[test]
fn detached_session_cancels_its_wants() {
    let (a, b) = (SessionId::next(), SessionId::next());
    let (mut book, _events) = book_with(&[a, b]);
    for number in 1..=3 {
        book.want(*block(number).cid(), WantKind::Block, a);
    }
    book.want(*block(3).cid(), WantKind::Block, b);
    book.take_outgoing(9);
    book.detach(a);
    let mut cancelled: Vec<Cid> = book.take_outgoing(9).into_iter().map(|(cid, _)| cid).collect();
    let mut expected = vec![*block(1).cid(), *block(2).cid()];
    cancelled.sort();
    expected.sort();
    assert_eq!((cancelled, book.len()), (expected, 1));
}

#[test]
fn messages_hold_at_most_max_changes_in_order_of_priority() {
    let session = SessionId::next();
    let (mut book, _events) = book_with(&[session]);
    (0..10).for_each(|number| book.want(*block(number).cid(), WantKind::Block, session));
    let first = book.take_outgoing(6);
    assert_eq!((first.len(), book.take_outgoing(6).len()), (6, 4));
    let priority = |outgoing: &Outgoing| match outgoing {
        Outgoing::Want { priority, .. } => *priority,
        Outgoing::Cancel => 0,
    };
    assert!(first.windows(2).all(|pair| priority(&pair[0].1) > priority(&pair[1].1)));
    book.requeue(&first);
    assert_eq!(book.take_outgoing(9).len(), 6);
}

#[test]
fn repeated_presence_is_reported_once() {
    let session = SessionId::next();
    let (mut book, mut events) = book_with(&[session]);
    let cid = *block(1).cid();
    book.want(cid, WantKind::Block, session);
    book.take_outgoing(9);
    for has_block in [true, false, true, false, false] {
        assert!(book.presence(&cid, has_block));
    }
    assert_eq!(std::iter::from_fn(|| events.try_recv().ok()).count(), 2);
    book.want(cid, WantKind::Block, session);
    book.take_outgoing(9);
    book.presence(&cid, false);
    assert!(events.try_recv().is_ok(), "the want was sent again");
}

#[test]
fn want_that_timed_out_is_kept_and_sent_again() {
    let session = SessionId::next();
    let (mut book, _events) = book_with(&[session]);
    let cid = *block(1).cid();
    book.want(cid, WantKind::Block, session);
    book.take_outgoing(9);
    book.time_out(&cid);
    assert!(book.take_outgoing(9).is_empty());
    book.want(cid, WantKind::Block, session);
    assert_eq!(kinds(&book.take_outgoing(9)), [(cid, Some(WantKind::Block))]);
    assert_eq!(book.deliver(&block(1), &MessageMemory::default()), Delivery::Wanted);
}

#[test]
fn queue_of_cancelled_wants_is_bounded() {
    let session = SessionId::next();
    let (mut book, _events) = book_with(&[session]);
    let cid = *block(1).cid();
    for _ in 0..10 * MAX_SKIPPED_ENTRIES {
        book.want(cid, WantKind::Block, session);
        book.cancel(&cid, session);
    }
    assert!(book.queue.len() <= MAX_SKIPPED_ENTRIES + 2);
}

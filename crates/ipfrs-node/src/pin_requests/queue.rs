//! The requests in memory, by the time of their creation.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use ipfrs_core::{Cid, Error, ErrorKind, Result, as_v1};
use ipfrs_rpc::types::PinState;
use tokio::time::Instant;

use super::record::{MadePin, Record};

#[derive(Debug, Default)]
pub(super) struct Queue {
    by_time: BTreeMap<u64, Record>,
    /// Times of creation by ID.
    times: HashMap<String, u64>,
    /// Number of requests of each owner.
    owned: HashMap<Option<String>, usize>,
    /// Number of requests that are for some content or replace one for it, by its CIDv1.
    concerned: HashMap<Cid, usize>,
    /// Number of failed attempts by time of creation, and when the next one is due.
    retries: HashMap<u64, (usize, Instant)>,
}

/// Time from the end of an attempt to the next one. The last value repeats.
const RETRY_AFTER: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// A time that is later than any attempt.
const FAR: Duration = Duration::from_secs(365 * 86_400);

impl Queue {
    pub(super) fn of(mut records: Vec<Record>) -> Self {
        let mut queue = Self::default();
        records.sort_unstable_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        for mut record in records {
            record.created = queue.next_time(record.created);
            queue.insert(record);
        }
        queue
    }

    /// Returns the time of a new request: `now`, or later than that of all others.
    pub(super) fn next_time(&self, now: u64) -> u64 {
        self.by_time.last_key_value().map_or(now, |(last, _)| now.max(last + 1))
    }

    /// Returns the requests, the oldest first.
    pub(super) fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.by_time.values()
    }

    /// Returns a request of an owner.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist.
    pub(super) fn find(&self, owner: Option<&str>, id: &str) -> Result<&Record> {
        let record = self.times.get(id).and_then(|time| self.by_time.get(time));
        let is_own = |record: &&Record| record.owner.as_deref() == owner;
        record.filter(is_own).ok_or_else(|| Error::not_found("there is no pin request with this requestid"))
    }

    /// Checks that an owner may have one more request after `freed` of its requests are removed. One owner may have as
    /// many as are free for others.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] otherwise.
    pub(super) fn check_room(&self, owner: Option<&str>, limit: usize, freed: usize) -> Result<()> {
        let all = self.by_time.len() - freed;
        let own = self.owned.get(&owner.map(str::to_owned)).map_or(0, |count| count - freed);
        let free = limit.saturating_sub(all);
        // Without authentication, there is one owner.
        let is_full = if owner.is_some() { own >= free } else { free == 0 };
        if is_full {
            let why = format!("there are {all} pin requests, {own} of them yours (pinning.max_requests = {limit})");
            return Err(Error::new(ErrorKind::RateLimited, format!("{why}: remove some")));
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, record: Record) {
        self.times.insert(record.id.clone(), record.created);
        *self.owned.entry(record.owner.clone()).or_default() += 1;
        self.count_content(&record);
        self.by_time.insert(record.created, record);
    }

    /// Leaves a pin of `from` to another request for its content, which then removes the pin when it is removed.
    /// Returns that request, if there is one. Its state does not change: it may be in work.
    pub(super) fn hand_over(&mut self, from: &Record, pin: &MadePin) -> Option<Record> {
        let mut others = self.by_time.values_mut().filter(|record| record.id != from.id);
        let heir = others.find(|record| as_v1(&record.cid) == as_v1(&pin.cid) && record.status != PinState::Failed)?;
        heir.made_pin = true;
        heir.direct = heir.direct.take().or_else(|| pin.direct.clone());
        Some(heir.clone())
    }

    /// Notes that pins of `cids` stay when requests for them are removed. Returns the requests that change. Their
    /// states do not: they may be in work.
    pub(super) fn disown(&mut self, cids: &[Cid]) -> Vec<Record> {
        if !self.concerns(cids) {
            return Vec::new();
        }
        let theirs: HashSet<_> = cids.iter().map(as_v1).collect();
        let is_theirs = |cid: &Cid| theirs.contains(&as_v1(cid));
        let mut changed = Vec::new();
        for record in self.by_time.values_mut() {
            if record.left_behind().any(|pin| is_theirs(&pin.cid)) {
                let old = record.clone();
                if is_theirs(&record.cid) {
                    (record.made_pin, record.direct) = (false, None);
                }
                record.replaces.retain(|replaced| !is_theirs(&replaced.cid));
                changed.push((old, record.clone()));
            }
        }
        for (old, new) in &changed {
            self.count_content(new);
            self.uncount_content(old);
        }
        changed.into_iter().map(|(_, new)| new).collect()
    }

    /// Returns the completed requests for `cids`.
    pub(super) fn pinned(&self, cids: &[Cid]) -> Vec<Record> {
        if !self.concerns(cids) {
            return Vec::new();
        }
        let content: HashSet<_> = cids.iter().map(as_v1).collect();
        let is_pinned = |record: &&Record| record.status == PinState::Pinned && content.contains(&as_v1(&record.cid));
        self.by_time.values().filter(is_pinned).cloned().collect()
    }

    /// Replaces a request, unless it was removed. Returns whether it is there.
    pub(super) fn update(&mut self, record: Record) -> bool {
        let Some(old) = self.by_time.get_mut(&record.created).filter(|old| old.id == record.id) else { return false };
        let old = std::mem::replace(old, record.clone());
        self.count_content(&record);
        self.uncount_content(&old);
        true
    }

    fn count_content(&mut self, record: &Record) {
        for cid in record.content() {
            *self.concerned.entry(cid).or_default() += 1;
        }
    }

    fn uncount_content(&mut self, record: &Record) {
        for cid in record.content() {
            if let Some(count) = self.concerned.get_mut(&cid) {
                *count -= 1;
                if *count == 0 {
                    self.concerned.remove(&cid);
                }
            }
        }
    }

    /// Whether a request is for any of `cids`, or replaces one for it.
    pub(super) fn concerns(&self, cids: &[Cid]) -> bool {
        !self.concerned.is_empty() && cids.iter().any(|cid| self.concerned.contains_key(&as_v1(cid)))
    }

    pub(super) fn remove(&mut self, created: u64) -> Option<Record> {
        let record = self.by_time.remove(&created)?;
        self.times.remove(&record.id);
        self.retries.remove(&created);
        self.uncount_content(&record);
        if let Some(count) = self.owned.get_mut(&record.owner) {
            *count -= 1;
            if *count == 0 {
                self.owned.remove(&record.owner);
            }
        }
        Some(record)
    }

    /// Returns a request as it is now, unless it was removed.
    pub(super) fn current(&self, record: &Record) -> Option<&Record> {
        self.by_time.get(&record.created).filter(|found| found.id == record.id)
    }

    /// Puts a request back after a failed attempt.
    pub(super) fn retry(&mut self, record: Record, now: Instant) {
        let created = record.created;
        if self.update(Record { status: PinState::Queued, ..record }) {
            let attempts = self.retries.get(&created).map_or(0, |(attempts, _)| *attempts);
            let delay = RETRY_AFTER[attempts.min(RETRY_AFTER.len() - 1)];
            self.retries.insert(created, (attempts + 1, now + delay));
        }
    }

    /// Returns when the next attempt of a request that is queued is due, after `now`.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.retries.values().map(|(_, due)| *due).filter(|due| *due > now).min()
    }

    /// Returns the next request to work on in one of `places`: the oldest one of the owner with the fewest requests in
    /// work. Of several owners, one has at most as many places as are free for others.
    pub(super) fn start_next(&mut self, places: usize, now: Instant) -> Option<Record> {
        let mut working: HashMap<Option<&str>, usize> = HashMap::new();
        for record in self.by_time.values().filter(|record| record.status == PinState::Pinning) {
            *working.entry(record.owner.as_deref()).or_default() += 1;
        }
        let of_owner = |record: &Record| working.get(&record.owner.as_deref()).copied().unwrap_or_default();
        let free = places.saturating_sub(working.values().sum());
        // Without authentication, there is one owner.
        let has_place = |record: &&Record| if record.owner.is_some() { of_owner(record) < free } else { free > 0 };
        let is_due = |record: &&Record| self.retries.get(&record.created).is_none_or(|(_, due)| *due <= now);
        let queued = self.by_time.values().filter(|record| record.status == PinState::Queued).filter(is_due);
        let next = queued.filter(has_place).min_by_key(|record| (of_owner(record), record.created));
        let created = next?.created;
        // Until the attempt ends, none is due.
        if let Some((_, due)) = self.retries.get_mut(&created) {
            *due = now + FAR;
        }
        let record = self.by_time.get_mut(&created)?;
        record.status = PinState::Pinning;
        Some(record.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ipfrs_rpc::types::RequestedPin;

    use super::*;

    const PLACES: usize = 16;

    fn record(owner: &str, created: u64) -> Record {
        let cid = ipfrs_core::parse_cid("bafkqaaa").unwrap();
        let pin =
            RequestedPin { cid: cid.to_string(), name: String::new(), origins: Vec::new(), meta: BTreeMap::new() };
        Record {
            id: format!("{owner}-{created}"),
            owner: Some(owner.to_owned()),
            created,
            status: PinState::Queued,
            cid,
            pin,
            details: String::new(),
            made_pin: false,
            direct: None,
            replaces: Vec::new(),
        }
    }

    #[test]
    fn owners_take_turns_and_share_the_room() {
        let mut queue = Queue::of((0..6).map(|time| record("a", time)).chain([record("b", 6)]).collect());
        let order: Vec<_> =
            std::iter::from_fn(|| queue.start_next(PLACES, Instant::now())).map(|record| record.id).collect();
        assert_eq!(order, ["a-0", "b-6", "a-1", "a-2", "a-3", "a-4", "a-5"]);
        // Seven of 12 are taken, five are free.
        assert!(queue.check_room(Some("a"), 12, 0).is_err());
        assert!(queue.check_room(Some("b"), 12, 0).is_ok());
        assert!(queue.check_room(Some("c"), 7, 0).is_err());
        assert!(queue.check_room(Some("b"), 7, 1).is_ok());
        assert_eq!(queue.next_time(3), 7);
        assert!(queue.find(Some("b"), "a-0").is_err());
        queue.remove(0).unwrap();
        assert!(queue.find(Some("a"), "a-0").is_err());
    }

    #[test]
    fn one_owner_leaves_places_for_others() {
        let mut queue = Queue::of((0..6).map(|time| record("a", time)).chain([record("b", 6)]).collect());
        let mut start =
            || std::iter::from_fn(|| queue.start_next(4, Instant::now())).map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(start(), ["a-0", "b-6", "a-1"]);
        queue.insert(record("c", 7));
        assert_eq!(queue.start_next(4, Instant::now()).unwrap().id, "c-7");
        assert!(queue.start_next(4, Instant::now()).is_none());
    }

    #[test]
    fn requests_concern_their_content_and_what_they_replace() {
        let [own, replaced] = ["bafkqaaa", "bafkqaaik"].map(|text| ipfrs_core::parse_cid(text).unwrap());
        let mut queue = Queue::of(vec![Record {
            made_pin: true,
            replaces: vec![MadePin { cid: replaced, direct: None }],
            ..record("a", 0)
        }]);
        queue.start_next(PLACES, Instant::now()).unwrap();
        assert!(queue.concerns(&[own]) && queue.concerns(&[replaced]));
        let changed = queue.disown(&[replaced]);
        assert!(changed[0].made_pin && changed[0].replaces.is_empty() && changed[0].status == PinState::Pinning);
        assert!(queue.concerns(&[own]) && !queue.concerns(&[replaced]));
        assert!(!queue.disown(&[own])[0].made_pin);
        assert_eq!((queue.disown(&[own]), queue.pinned(&[own])), (Vec::new(), Vec::new()));
        let pinned = Record { status: PinState::Pinned, ..queue.by_time[&0].clone() };
        assert!(queue.update(pinned.clone()));
        assert_eq!(queue.pinned(&[own]), [pinned]);
        queue.remove(0).unwrap();
        assert!(!queue.concerns(&[own]) && queue.concerned.is_empty());
    }

    #[test]
    fn content_is_handed_over_to_a_request_in_work() {
        let mut queue = Queue::of(vec![record("a", 0)]);
        let started = queue.start_next(PLACES, Instant::now()).unwrap();
        let pin = MadePin { cid: started.cid, direct: Some("before".to_owned()) };
        let removed = record("a", 1);
        queue.insert(removed.clone());
        let heir = queue.hand_over(&removed, &pin).unwrap();
        assert_eq!((heir.id.as_str(), heir.direct.as_deref()), ("a-0", Some("before")));
        assert!(heir.made_pin && heir.status == PinState::Pinning);
        queue.remove(1).unwrap();
        assert!(queue.start_next(PLACES, Instant::now()).is_none(), "it is not started twice");
        assert!(queue.hand_over(&heir, &pin).is_none());
        queue.update(Record { status: PinState::Failed, ..heir });
        assert!(queue.hand_over(&removed, &pin).is_none());
    }
}

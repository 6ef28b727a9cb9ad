//! Disk space that unfinished uploads still need.
//!
//! An upload reserves its space when it begins. As bytes are written to the disk, the reservation shrinks, because
//! the disk then reports them as used.

use std::time::{Duration, SystemTime};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::Disk;

use super::ledger::{Need, Reservation};
use super::state::{Phase, Upload, Uploads};
use crate::{Node, current_client, off_workers};

/// An upload whose last request ended this long ago no longer keeps others from the space that it reserved: otherwise
/// one client could announce a file as large as the disk, send nothing, and lock out everyone else until it expires.
const IDLE_AFTER: Duration = Duration::from_secs(600);

/// The disks that uploads are written to, which may be the same one.
#[derive(Debug)]
struct Disks {
    /// Device number of the file system that contains the directory of resumable uploads.
    spool_device: u64,
    spool_free: u64,
    /// `None` for engines without a disk.
    packs: Option<Disk>,
}

impl Disks {
    /// Returns the free bytes of the fuller disk.
    fn free(&self) -> u64 {
        self.packs.as_ref().map_or(self.spool_free, |disk| disk.free_bytes.min(self.spool_free))
    }

    /// Checks that `need` fits in addition to `promised`, the reservations of other uploads.
    fn check(&self, need: Need, promised: Need) -> Result<()> {
        let all = promised.plus(need);
        let packs = self.packs.as_ref();
        let kept = packs.map_or(0, |disk| disk.reserve.after(all.packs));
        let fits = |free: u64, needed: u64| match free >= needed {
            true => Ok(()),
            false => Err(insufficient_space(need, free, kept, promised)),
        };
        match packs {
            Some(disk) if disk.device == self.spool_device => {
                fits(disk.free_bytes, all.spool.saturating_add(all.packs).saturating_add(kept))
            }
            Some(disk) => {
                fits(disk.free_bytes, all.packs.saturating_add(kept))?;
                fits(self.spool_free, all.spool)
            }
            None => fits(self.spool_free, all.spool),
        }
    }
}

fn insufficient_space(need: Need, free: u64, kept: u64, promised: Need) -> Error {
    let (needed, promised) = (need.spool.saturating_add(need.packs), promised.spool.saturating_add(promised.packs));
    let twice = if need.spool > 0 { " (twice its length until it finishes)" } else { "" };
    Error::new(
        ErrorKind::NoSpace,
        format!(
            "the disk has {free} bytes left, of which {kept} are reserved for gc and {promised} for other \
             unfinished uploads, but the upload needs {needed}{twice}: free space, or finish or cancel other uploads"
        ),
    )
}

impl Node {
    /// Reserves space for a new upload.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if the disk lacks the space in addition to its reserve and the needs of other uploads;
    /// otherwise the error of the disk.
    pub(super) async fn reserve_upload(&self, need: Need) -> Result<Reservation> {
        let uploads = self.uploads().await?;
        let admitting = uploads.ledger.admitting.lock().await;
        let packs = self.inner.store.disk().await?;
        let spool = uploads.spool.clone();
        let (spool_device, spool_free) = off_workers(move || spool.free_bytes()).await?;
        let (client, promised) = (current_client(), uploads.ledger.needs.lock().total);
        let disks = Disks { spool_device, spool_free, packs };
        let admitted = disks.check(need, promised).or_else(|error| match self.idle_need(uploads) {
            idle if idle == Need::default() => Err(error),
            idle => disks.check(need, promised.minus(idle)),
        });
        // A client that has announced more than its share does not keep the others from theirs. Whether there is space
        // in the end, the writer checks for each batch.
        admitted.or_else(|error| match uploads.ledger.needs.lock().shared(client, need, disks.free()) {
            Some(promised) => disks.check(need, promised),
            None => Err(error),
        })?;
        let reserved = uploads.ledger.reserve(client, need);
        drop(admitting);
        Ok(reserved)
    }

    /// Returns what the uploads need that have been idle for [`IDLE_AFTER`]. When they are continued, the writer checks
    /// the disk for each batch.
    fn idle_need(&self, uploads: &Uploads) -> Need {
        let now = SystemTime::now();
        let lifetime = Duration::from_secs(self.inner.config.upload.expires_after_seconds);
        let is_idle = |upload: &Upload| {
            let state = upload.state.borrow();
            // An upload that was just touched expires after its whole lifetime.
            state.phase == Phase::Waiting && state.expires + IDLE_AFTER <= now + lifetime
        };
        let idle = uploads.all().into_iter().filter(|upload| is_idle(upload));
        idle.fold(Need::default(), |sum, upload| sum.plus(upload.reserved.need()))
    }

    /// Returns the number of bytes that resumable uploads keep free on their disk: the reserve of the store if its
    /// packs are on the same disk.
    pub(super) async fn kept_beside_spool(&self) -> Result<u64> {
        let Some(disk) = self.inner.store.disk().await? else { return Ok(0) };
        let spool = self.inner.uploads.spool.clone();
        let (device, _) = off_workers(move || spool.free_bytes()).await?;
        Ok(if device == disk.device { disk.reserve.after(0) } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ipfrs_store::Reserve;

    use super::super::ledger::Ledger;
    use super::*;

    fn need(spool: u64, packs: u64) -> Need {
        Need { spool, packs }
    }

    #[test]
    fn reservations_are_summed_and_returned() {
        let ledger = Ledger::default();
        let total = || ledger.needs.lock().total;
        let (one, two) = (ledger.reserve(None, need(10, 10)), ledger.reserve(None, need(0, 5)));
        assert_eq!(total(), need(10, 15));
        one.set(need(3, 10));
        assert_eq!(total(), need(3, 15));
        // After a failed import, the blocks must be written again.
        one.set(need(0, 4));
        one.set(need(0, 10));
        drop(two);
        assert_eq!(total(), need(0, 10));
        drop(one);
        assert_eq!(total(), Need::default());
    }

    #[test]
    fn a_client_that_announces_everything_leaves_a_share_to_others() {
        let ledger = Ledger::default();
        let [greedy, modest] = [1, 2].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        let _all = ledger.reserve(greedy, need(50, 50));
        let shared = |client, need| ledger.needs.lock().shared(client, need, 100);
        assert_eq!(shared(modest, need(20, 20)), Some(need(25, 25)));
        assert_eq!(shared(modest, need(26, 26)), None, "over its share");
        assert_eq!(shared(greedy, need(1, 0)), None);
        let _own = ledger.reserve(modest, need(10, 10));
        assert_eq!(shared(modest, need(15, 15)), Some(need(35, 35)));
        assert_eq!(shared(modest, need(16, 15)), None);
        let _earlier = ledger.reserve(None, need(40, 0));
        assert_eq!(shared(modest, need(15, 15)), Some(need(75, 35)));
    }

    #[test]
    fn one_disk_holds_spool_packs_reserve_and_promises() {
        let disk = Disk { dir: "/".into(), device: 1, free_bytes: 100, reserve: Reserve::default() };
        let one = Disks { spool_device: 1, spool_free: 0, packs: Some(disk.clone()) };
        one.check(need(50, 50), Need::default()).unwrap();
        one.check(need(20, 20), need(10, 50)).unwrap();
        assert_eq!(one.check(need(20, 20), need(11, 50)).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(one.check(need(u64::MAX, u64::MAX), need(1, 1)).unwrap_err().kind(), ErrorKind::NoSpace);
        let two = Disks { spool_device: 2, spool_free: 80, packs: Some(disk) };
        two.check(need(80, 100), Need::default()).unwrap();
        assert!(two.check(need(81, 1), Need::default()).is_err());
        assert!(two.check(need(1, 51), need(0, 50)).is_err());
        let none = Disks { spool_device: 2, spool_free: 80, packs: None };
        none.check(need(80, 800), Need::default()).unwrap();
    }
}

//! A small load, with changes of most kinds.

use super::{Load, Running};

impl Load<'_> {
    /// Makes changes of most kinds, one after the other.
    pub(crate) async fn run_each(&self, seed: u64) {
        let mut client = Running::new(self, 0, seed, self.channel());
        client.add().await;
        client.put_block().await;
        client.write_file().await;
        // The first object is a file below the repo, the second one a mutable file.
        for count in 2..=3 {
            client.count = count;
            client.ingest().await;
        }
        client.create_key().await;
        client.publish().await;
        client.complete_upload().await;
        client.move_file().await;
        client.unpin().await;
        client.collect().await;
        client.remove_file().await;
    }
}

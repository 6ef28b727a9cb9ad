//! Forwarding of calls from a view of a store to the store itself.

/// Implements methods of [`BlockStore`](crate::BlockStore) for a view of another store. They pass their calls on to the
/// store in a field: `forward_to_store!(inner: flush, stats);`, in an `impl` under `#[async_trait]`. The crate must
/// depend on `futures` and `ipfrs-core`.
///
/// There are no rules for the methods that return blocks, because these differ in each view.
// `async_trait` does not expand macros, so the signatures here are those that it generates.
#[macro_export]
macro_rules! forward_to_store {
    ($store:ident: $($method:ident),+ $(,)?) => {
        $($crate::forward_to_store! { @$method $store })+
    };
    (@put_many $store:ident) => {
        fn put_many<'a, 'async_trait>(
            &'a self,
            blocks: Vec<::ipfrs_core::Block>,
            mode: $crate::PutMode,
        ) -> ::futures::future::BoxFuture<'async_trait, Vec<::ipfrs_core::Result<$crate::Stored>>>
        where
            'a: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.put_many(blocks, mode)
        }
    };
    (@has_many $store:ident) => {
        fn has_many<'a, 'b, 'async_trait>(
            &'a self,
            cids: &'b [::ipfrs_core::Cid],
        ) -> ::futures::future::BoxFuture<'async_trait, ::ipfrs_core::Result<Vec<Option<u64>>>>
        where
            'a: 'async_trait,
            'b: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.has_many(cids)
        }
    };
    (@delete_many $store:ident) => {
        fn delete_many<'a, 'b, 'async_trait>(
            &'a self,
            cids: &'b [::ipfrs_core::Cid],
        ) -> ::futures::future::BoxFuture<'async_trait, ::ipfrs_core::Result<Vec<bool>>>
        where
            'a: 'async_trait,
            'b: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.delete_many(cids)
        }
    };
    (@delete_unless $store:ident) => {
        fn delete_unless<'a, 'b, 'async_trait>(
            &'a self,
            cids: &'b [::ipfrs_core::Cid],
            spared: $crate::Spared,
        ) -> ::futures::future::BoxFuture<'async_trait, ::ipfrs_core::Result<Vec<bool>>>
        where
            'a: 'async_trait,
            'b: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.delete_unless(cids, spared)
        }
    };
    (@iterate $store:ident) => {
        fn iterate(&self) -> ::futures::stream::BoxStream<'static, ::ipfrs_core::Result<::ipfrs_core::Cid>> {
            self.$store.iterate()
        }
    };
    (@iterate_after $store:ident) => {
        fn iterate_after(
            &self,
            after: &::ipfrs_core::Cid,
        ) -> ::futures::stream::BoxStream<'static, ::ipfrs_core::Result<::ipfrs_core::Cid>> {
            self.$store.iterate_after(after)
        }
    };
    (@scrub $store:ident) => {
        fn scrub(&self) -> ::futures::stream::BoxStream<'static, ::ipfrs_core::Result<$crate::Scrubbed>> {
            self.$store.scrub()
        }
    };
    (@compact $store:ident) => {
        fn compact<'a, 'async_trait>(
            &'a self,
            options: $crate::CompactOptions,
        ) -> ::futures::future::BoxFuture<'async_trait, ::ipfrs_core::Result<$crate::Compacted>>
        where
            'a: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.compact(options)
        }
    };
    (@flush $store:ident) => {
        fn flush<'a, 'async_trait>(&'a self) -> ::futures::future::BoxFuture<'async_trait, ::ipfrs_core::Result<()>>
        where
            'a: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.flush()
        }
    };
    (@stats $store:ident) => {
        fn stats<'a, 'async_trait>(
            &'a self,
        ) -> ::futures::future::BoxFuture<'async_trait, ::ipfrs_core::Result<$crate::Stats>>
        where
            'a: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.stats()
        }
    };
    (@epoch $store:ident) => {
        fn epoch(&self) -> $crate::StoreEpoch {
            self.$store.epoch()
        }
    };
    (@epoch_of $store:ident) => {
        fn epoch_of(&self, footprint: &$crate::Footprint) -> $crate::StoreEpoch {
            self.$store.epoch_of(footprint)
        }
    };
    (@note_use $store:ident) => {
        fn note_use(&self, cids: &[::ipfrs_core::Cid]) {
            self.$store.note_use(cids);
        }
    };
    (@watch $store:ident) => {
        fn watch(&self, cache: ::std::sync::Weak<dyn $crate::DropStale>) {
            self.$store.watch(cache);
        }
    };
    (@check $store:ident) => {
        fn check(&self) -> ::ipfrs_core::Result<()> {
            self.$store.check()
        }
    };
    (@disk $store:ident) => {
        fn disk<'a, 'async_trait>(
            &'a self,
        ) -> ::futures::future::BoxFuture<'async_trait, ::ipfrs_core::Result<Option<$crate::Disk>>>
        where
            'a: 'async_trait,
            Self: 'async_trait,
        {
            self.$store.disk()
        }
    };
    (@mappings $store:ident) => {
        fn mappings(&self) -> Option<$crate::Mappings> {
            self.$store.mappings()
        }
    };
}

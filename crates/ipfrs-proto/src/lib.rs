//! Messages, clients and servers of the gRPC services, generated from `proto/` by `cargo xtask codegen`. A test fails
//! if they differ from `proto/`. The `.proto` files and the types document their meaning.
//!
//! Payloads are [`Bytes`](bytes::Bytes): slices of received or mapped memory, not copies.

/// Descriptors of all `.proto` files, with their comments, as an encoded `google.protobuf.FileDescriptorSet` for
/// reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");

macro_rules! package {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        pub mod $name {
            /// Version 1.
            #[allow(missing_docs, unused_qualifications, clippy::all, rustdoc::bare_urls, reason = "generated")]
            pub mod v1 {
                include!(concat!("generated/", $file));
            }
        }
    };
}

package!(
    /// Blocks by content ID.
    block,
    "ipfrs.block.v1.rs"
);
package!(
    /// DAGs: nodes that link to each other by content ID.
    dag,
    "ipfrs.dag.v1.rs"
);
package!(
    /// Files and directories (UnixFS).
    file,
    "ipfrs.file.v1.rs"
);
package!(
    /// Tensors within files.
    tensor,
    "ipfrs.tensor.v1.rs"
);

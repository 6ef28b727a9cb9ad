//! Messages, clients and servers of the gRPC services, generated from `proto/` by `cargo xtask codegen`; a test fails when
//! they differ from it. What each means is said there, and in the documentation of the types here.
//!
//! Payloads are [`Bytes`](bytes::Bytes): slices of what was received or mapped, not copies.

/// The descriptors of all files with their comments, as an encoded `google.protobuf.FileDescriptorSet`: for reflection.
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

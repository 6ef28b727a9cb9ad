//! Access rules: what each method needs.

use ipfrs_middleware::auth::{Need, Scope};

/// Returns what a call of the method with this path needs. Unknown methods need the scope `admin`.
pub(crate) fn need(path: &str) -> Need {
    known(path).unwrap_or(Need::Scope(Scope::Admin))
}

fn known(path: &str) -> Option<Need> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    let scope = match (service, method) {
        ("grpc.health.v1.Health", "Check") => return Some(Need::Nothing),
        // A stream without an end is not for anonymous callers.
        ("grpc.health.v1.Health", "List" | "Watch") => Scope::Read,
        (
            "grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection",
            "ServerReflectionInfo",
        ) => Scope::Read,
        ("ipfrs.block.v1.BlockService", "GetBlock" | "HasBlock" | "BatchGetBlocks") => Scope::Read,
        // A stream may also put blocks.
        ("ipfrs.block.v1.BlockService", "PutBlock" | "DeleteBlock" | "BatchPutBlocks" | "StreamBlocks") => Scope::Write,
        ("ipfrs.dag.v1.DagService", "GetDag" | "ResolvePath" | "TraverseDag" | "GetDagStats") => Scope::Read,
        ("ipfrs.dag.v1.DagService", "PutDag") => Scope::Write,
        ("ipfrs.file.v1.FileService", "GetFile" | "ListDirectory" | "GetFileInfo") => Scope::Read,
        ("ipfrs.file.v1.FileService", "AddFile") => Scope::Write,
        ("ipfrs.file.v1.FileService", "PinFile" | "UnpinFile") => Scope::Pin,
        (
            "ipfrs.tensor.v1.TensorService",
            "GetTensor" | "GetTensorInfo" | "SliceTensor" | "GetTensorStats" | "StreamTensors",
        ) => Scope::Read,
        ("ipfrs.tensor.v1.TensorService", "PutTensor") => Scope::Write,
        _ => return None,
    };
    Some(Need::Scope(scope))
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn every_method_has_a_rule() {
        let sets = [
            ipfrs_proto::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let files = sets.iter().flat_map(|set| FileDescriptorSet::decode(*set).unwrap().file);
        let mut methods = 0;
        for file in files {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    assert!(known(&path).is_some(), "{path}");
                    methods += 1;
                }
            }
        }
        assert!(methods > 20);
        assert_eq!(need("/ipfrs.block.v1.BlockService/Unknown"), Need::Scope(Scope::Admin));
    }
}

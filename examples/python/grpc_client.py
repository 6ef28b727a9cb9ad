"""Adds a file over gRPC while reading it, and gets it back. Requires a running gateway: `ipfrs-cli gateway start`.

    pip install grpcio grpcio-tools
    python -m grpc_tools.protoc -I proto --python_out=. --grpc_python_out=. proto/ipfrs/file/v1/file.proto
    PYTHONPATH=. python examples/python/grpc_client.py FILE [HOST:PORT]
"""

import hashlib
import sys

import grpc
from ipfrs.file.v1 import file_pb2 as file
from ipfrs.file.v1.file_pb2_grpc import FileServiceStub

CHUNK_BYTES = 256 * 1024


def messages(path, digest):
    """Yields the metadata first, then chunks, which are read as the gateway receives them."""
    yield file.AddFileRequest(metadata=file.FileMetadata(cid_version=1))
    with open(path, "rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
            yield file.AddFileRequest(chunk=chunk)


def main(path, address="127.0.0.1:50051"):
    with grpc.insecure_channel(address) as channel:
        files = FileServiceStub(channel)
        sent, received = hashlib.sha256(), hashlib.sha256()
        added = files.AddFile(messages(path, sent))
        print(f"{path} is {added.cid}: {added.size} bytes in {added.blocks} blocks")
        for piece in files.GetFile(file.GetFileRequest(path=added.cid)):
            received.update(piece.data)
        print("received the same content" if sent.digest() == received.digest() else "received different content")
        try:
            files.GetFileInfo(file.GetFileInfoRequest(path="what"))
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
